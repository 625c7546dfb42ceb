"""`gnnflow models` and `gnnflow report`: odd names and versions, documents that hold something else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.command_line import Shown
from tests.robustness.case import Case, accepted, anything, either, refused
from tests.robustness.inputs import Inputs, Spoil, both, disk, line


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _models()
    yield from _reports()


def _models() -> Iterator[Case]:
    where = ("--workspace", "{folder}/runs")
    lines: dict[str, tuple[list[str], str]] = {
        "show an unknown model": (["show", "nobody"], "nobody"),
        "show an unknown model's version": (["show", "nobody", "3"], "nobody"),
        "show no version at all": (["show", "odd", "abc"], "odd"),
        "show version 0": (["show", "odd", "0"], "odd"),
        "show version -1": (["show", "odd", "--", "-1"], "odd"),
        "show version 10^30": (["show", "odd", "9" * 30], "odd"),
        "show version ²": (["show", "odd", "²"], "odd"),
        "show version \u0663": (["show", "odd", "\u0663"], "odd"),
        "show an empty version": (["show", "odd", ""], "odd"),
        "show ../x": (["show", "../x"], "../x"),
        "show an empty name": (["show", ""], "name"),
        "show a name with NUL": (["show", "a\0b"], "name"),
        "show a very long name": (["show", "a" * 5000], "aaaa"),
        "list an unknown model": (["list", "nobody"], "nobody"),
        "list ../x": (["list", "../x"], "../x"),
        "promote an unknown model": (["promote", "nobody", "1"], "nobody"),
        "promote an unknown version": (["promote", "odd", "7"], "odd"),
        "promote version 10^30": (["promote", "odd", "9" * 30], "odd"),
        "roll back an unknown model": (["rollback", "nobody"], "nobody"),
        "roll back ..": (["rollback", ".."], ".."),
    }
    for name, (words, word) in lines.items():
        must = either if words[0] == "list" else refused
        more: dict[str, Any] = {"check": anything} if must is either else {}
        tail = words[words.index("--") :] if "--" in words else []
        head = words[: words.index("--")] if "--" in words else words
        yield must(f"models: {name}", line("models", *head, *where, *tail), word, **more)
    for name, words in {
        "promote version x": ["promote", "odd", "x"],
        "promote nothing": ["promote"],
        "an unknown command": ["burn"],
        "list too much": ["list", "a", "b"],
    }.items():
        yield refused(f"models: {name}", line("models", *words), "Usage|error", usage=True)
    for place, word in {
        "nowhere://x": "nowhere",
        "http://127.0.0.1:9/x": "http",
        "{folder}/config.yaml": "config.yaml",
        "\0": "workspace|path|NUL|null",
        "s3://": "s3",
    }.items():
        must = either if place.endswith("config.yaml") else refused
        yield must(
            f"models list in {place!r}",
            line("models", "list", "--workspace", place),
            word,
            **({"check": anything} if must is either else {}),
        )
    yield accepted(
        "models list where there are none",
        line("models", "list", *where),
        check=_says_none,
    )
    registry = "runs/registry/odd/1/version.json"
    for name, content in {
        "JSON of no version": "{}",
        "no JSON": "{",
        "a list": "[]",
        "null": "null",
        "a number": "5",
        "binary": "\x00\x01",
        "empty": "",
    }.items():
        spoil = both(disk(holding(registry, content)), line("models", "show", "odd", "1", *where))
        yield refused(f"models: version.json holds {name}", spoil, "version.json")
        spoil = both(disk(holding(registry, content)), line("models", "list", *where))
        yield refused(f"models list: version.json holds {name}", spoil, "version.json")


def holding(name: str, content: str) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        file = inputs.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    return spoil


def _reports() -> Iterator[Case]:
    for name in (
        "nobody",
        "",
        "..",
        "../..",
        "{folder}",
        "{folder}/config.yaml",
        "\0",
        "a" * 5000,
        "*",
        "nowhere://x",
        "http://127.0.0.1:9/x",
        "s3://",
        "runs/",
        "é",
    ):
        yield refused(
            f"report {name[:20]!r}",
            line("report", name, "--workspace", "{folder}/runs"),
            name.replace("{folder}", "")[:20].split("\0")[0].lstrip("/") or "run",
        )
    for name, content in {
        "no JSON": "{",
        "a list": "[]",
        "an empty record": "{}",
        "null": "null",
        "of nothing": '{"artifacts": {}}',
        "of another place": '{"artifacts": {"ingest": "/nonexistent"}, "store": "ingest"}',
        "of numbers": '{"artifacts": 5}',
    }.items():
        spoil = both(
            disk(holding("runs/runs/odd/1/run.json", content), holding("runs/runs/odd/1/metrics.json", "{}")),
            line("report", "{folder}/runs/runs/odd/1"),
        )
        yield refused(f"report: run.json is {name}", spoil, "run.json|/nonexistent|runs/odd/1")
    for name, content in {
        "no JSON": "{",
        "a list": "[]",
        "an empty record": "{}",
        "null": "null",
        "of another place": '{"run": "/nonexistent"}',
        "a number": '{"run": 5}',
    }.items():
        spoil = both(
            disk(holding("runs/runs/odd/latest.json", content)), line("report", "odd", "--workspace", "{folder}/runs")
        )
        yield refused(f"report: latest.json is {name}", spoil, "latest.json|/nonexistent|odd")


def _says_none(inputs: Inputs, shown: Shown) -> list[str]:
    return [] if "no models" in shown.out else [shown.out]
