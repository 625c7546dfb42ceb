"""Damages to a finished workspace: which files, how they are spoilt, what is asked then, and how the answer is judged.

A workspace's records hold absolute places, so every damage happens at one place: the whole workspace is put back there
by hard links before each (files are replaced, never written into, so the template stays as it was).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.command_line import Shown, run_cli
from tests.robustness.case import refusal_faults
from tests.small_graphs import graph_config, write_graph

KINDS = {
    "manifests": "artifacts/*/*/manifest.json",
    "partitions' nodes": "artifacts/ingest/*/nodes-*.parquet",
    "partitions' edges": "artifacts/ingest/*/edges-*.parquet",
    "selected edges": "artifacts/select/*/*.parquet",
    "shards": "artifacts/flat/*/shards/*.parquet",
    "weights": "artifacts/train/*/model.safetensors",
    "model.json": "artifacts/train/*/model.json",
    "scored rows": "artifacts/infer/*/predictions/*.parquet",
    "predictions": "runs/*/*/predictions/*.parquet",
    "run.json": "runs/*/*/run.json",
    "metrics.json": "runs/*/*/metrics.json",
    "latest.json": "runs/*/latest.json",
    "versions": "registry/*/*/version.json",
    "versions' files": "registry/*/*/[!v]*.*",
    "claims": "registry/*/claims/*.json",
    "aliases": "registry/*/aliases/*.json",
}
_BLOCK = 512
_RESULT = ("stage", "fingerprint", "digest", "files", "inputs", "rows_in", "rows_out", "rows_quarantined")


@dataclass(frozen=True)
class Damage:
    """One damage: to which file, how, and the command that is asked after it."""

    kind: str
    how: str
    command: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        """Return it in a line."""
        return f"{self.how} {' and '.join(self.files)}, then {self.command}"


@dataclass
class Template:
    """A finished workspace, kept aside, and what every command answers on it."""

    folder: Path
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.folder / "runs"

    @property
    def kept(self) -> Path:
        return self.folder / "template"

    def restore(self) -> None:
        """Put the workspace back as it was."""
        shutil.rmtree(self.workspace, ignore_errors=True)
        shutil.copytree(self.kept, self.workspace, copy_function=os.link)

    def files_of(self, kind: str) -> list[str]:
        """Return the files of a kind, relative to the workspace."""
        return sorted(str(file.relative_to(self.kept)) for file in self.kept.glob(KINDS[kind]))


def finished(folder: Path) -> Template:
    """Run and publish two models on a small sampled graph, and note what each command answers."""
    write_graph(folder)
    config = graph_config(
        folder,
        graph={"partitions": 2},
        neighbors={"sampling": {"kind": "uniform", "fanout": [4, 3]}},
        model={"kind": "sage", "hidden": 4},
        train={"epochs": 2, "batch_size": 16, "threads": 1},
        infer={"parity_samples": 8},
        publish={"incomparable": "promote"},
    )
    template = Template(folder)
    (folder / "config.yaml").write_text(config.model_dump_json(exclude_none=True))
    for lr in ("0.02", "0.01"):
        for name in ("run", "publish"):
            done = run_cli([name, str(folder / "config.yaml"), "--set", f"train.lr={lr}"])
            assert done.code == 0, done.err
    template.workspace.rename(template.kept)
    for name in COMMANDS:
        template.restore()
        shown = ask(template, name)
        assert shown.code == 0, shown.err
        template.answers[name] = answer(template, name, shown)
    return template


def ask(template: Template, name: str) -> Shown:
    """Run a command on the workspace as it lies."""
    if name == "report":
        for file in template.workspace.glob("runs/*/*/report.html"):
            file.unlink()
    places = {"CONFIG": str(template.folder / "config.yaml"), "WORKSPACE": str(template.workspace)}
    return run_cli([places.get(word, word) for word in COMMANDS[name].split()])


COMMANDS = {
    "run": "run CONFIG --json",
    "infer": "infer CONFIG --json",
    "infer again": "infer CONFIG --set infer.embeddings=true --json",
    "flat again": "flat CONFIG --set flat.shard_size=9 --json",
    "train again": "train CONFIG --set train.lr=0.03 --json",
    "run again": "run CONFIG --set train.lr=0.04 --json",
    "publish": "publish CONFIG --json",
    "score": "score CONFIG --json",
    "report": "report small --workspace WORKSPACE",
    "models list": "models list --workspace WORKSPACE --json",
    "models show": "models show small --workspace WORKSPACE --json",
}
# What a kind of file is read for; any command may follow, and these follow half of the time.
_READS = {
    "partitions' nodes": ("infer again", "flat again", "report"),
    "partitions' edges": ("infer again", "flat again"),
    "selected edges": ("infer again", "flat again"),
    "shards": ("train again",),
    "weights": ("infer again", "publish"),
    "model.json": ("infer again", "publish"),
    "scored rows": ("infer", "run", "report"),
    "predictions": ("run", "publish", "score", "report"),
    "run.json": ("run", "publish", "report"),
    "metrics.json": ("run", "report", "publish"),
    "latest.json": ("report", "run"),
    "versions": ("models show", "models list", "publish", "score"),
    "versions' files": ("publish", "score", "models show"),
    "claims": ("publish", "models list"),
    "aliases": ("publish", "score", "models list", "models show"),
    "manifests": ("run", "infer", "infer again", "publish", "report"),
}
_COSTLY = {"report", "run again"}  # a page with its pictures takes a second


def random_damage(template: Template, pick: random.Random) -> Damage:
    """Choose a damage: every kind of file is as likely as any other."""
    kind = pick.choice(sorted(KINDS))
    command = pick.choice(_READS[kind] if pick.random() < 0.7 else sorted(COMMANDS))
    if command in _COSTLY and pick.random() < 0.7:
        command = pick.choice([name for name in COMMANDS if name not in _COSTLY])
    files, how = template.files_of(kind), pick.choice(["flip", "zero", "truncate", "swap", "delete"])
    first = pick.choice(files)
    others = [file for file in files if file != first] or template.files_of(pick.choice(sorted(KINDS)))
    return Damage(kind, how, command, (first, pick.choice(others)) if how == "swap" else (first,))


def spoil(template: Template, damage: Damage, pick: random.Random) -> None:
    """Spoil the workspace's files."""
    files = [template.workspace / name for name in damage.files]
    contents = [file.read_bytes() for file in files]
    for file in files:
        file.unlink()
    if damage.how == "delete":
        return
    for file, content in zip(files, reversed(contents) if damage.how == "swap" else contents, strict=True):
        file.write_bytes(SPOILT.get(damage.how, lambda held, _: held)(content, pick))


def _flipped(content: bytes, pick: random.Random) -> bytes:
    spoilt, place = bytearray(content), pick.randrange(len(content))
    spoilt[place] ^= 1 << pick.randrange(8)
    return bytes(spoilt)


def _zeroed(content: bytes, pick: random.Random) -> bytes:
    start = pick.randrange(max(1, len(content) - _BLOCK))
    return content[:start] + bytes(min(_BLOCK, len(content) - start)) + content[start + _BLOCK :]


SPOILT: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": _flipped,
    "zero": _zeroed,
    "truncate": lambda content, pick: content[: pick.randrange(len(content))],
}


def outcome(template: Template, damage: Damage, pick: random.Random) -> tuple[str, str]:
    """Do a damage, ask, and return (found, harmless, silent, unclear or traceback; what was seen)."""
    template.restore()
    spoil(template, damage, pick)
    shown = ask(template, damage.command)
    if "Traceback" in shown.err or shown.code not in {0, 2}:
        return "traceback", shown.err.strip().splitlines()[-1] if shown.err.strip() else f"exit code {shown.code}"
    if shown.code == 2:
        faults = refusal_faults(shown) + (
            [] if _names_place(shown.message, damage) else [f"names no file: {shown.message}"]
        )
        return ("unclear", "; ".join(faults)) if faults else ("found", shown.message)
    have, want = answer(template, damage.command, shown), template.answers[damage.command]
    if have == want:
        return "harmless", ""
    return "silent", ", ".join(sorted(key for key in {*have, *want} if have.get(key) != want.get(key)))


def _names_place(message: str, damage: Damage) -> bool:
    """Return whether a message names a damaged file, or the run, model or artifact that it belongs to."""
    return any(Path(file).name in message or Path(file).parent.name in message for file in damage.files)


def answer(template: Template, name: str, shown: Shown) -> dict[str, Any]:
    """Return all that a command gives: what it printed but for times, and the content of the files it points to."""
    if name == "report":
        page = Path(shown.out.strip())
        return {"place": str(page), "report.html": _digest(page)}
    printed = json.loads(shown.out)
    found: dict[str, Any] = {"printed": _timeless(printed)}
    if isinstance(printed, dict):
        # Where the answer sends its reader; a list of models only names places.
        places = () if name.startswith("models") else ("artifact", "predictions", "uri")
        for place in places:
            held = printed.get(place)
            if isinstance(held, str):
                found |= _contents(Path(held), place)
    return found


def _contents(folder: Path, place: str) -> dict[str, Any]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {f"{place}/{file.relative_to(folder)}": _content(file) for file in files} or {place: "missing"}


def _content(file: Path) -> Any:
    """Return a file's digest; of a document, its values but for times."""
    if file.suffix == ".html":
        return None
    if file.suffix != ".json":
        return _digest(file)
    try:
        document = json.loads(file.read_bytes())
    except ValueError:
        return "damaged"
    # The rest of a manifest tells how the work went, such as its times and its memory.
    told = _RESULT if file.name == "manifest.json" else document
    return _timeless({key: document.get(key) for key in told} if isinstance(document, dict) else document)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "missing"


def _timeless(value: Any) -> Any:
    """Return a document without what differs from one healthy run to the next."""
    if isinstance(value, dict):
        return {
            key: _timeless(held)
            for key, held in value.items()
            if not ("second" in key or key in {"reused", "timings", "created"})
        }
    return [_timeless(held) for held in value] if isinstance(value, list) else value
