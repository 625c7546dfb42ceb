"""Versions: the model of a completed run with its origin, under the next number.

A number is claimed by creating `claims/<number>.json`, which only one writer can. Registering walks the numbers from 1:
a claim of the same run is that run's version; the first number without a claim is tried, and a lost race is read like
any other claim. So two registrations never share a number, and one run never gets two, however many try at once. The
varying values (the time, the revision) are in the claim, so writing a version can be repeated: the next registration
completes one that was killed.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gnnflow.graph.encodings import ColumnState
from gnnflow.graph.errors import RegistryError, StorageError
from gnnflow.graph.facts import GraphFacts, SelectFacts
from gnnflow.graph.narrow import ColumnRanges
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.graph.scales import ColumnScale
from gnnflow.registry.signature import Signature, signature_of
from gnnflow.storage.documents import encode_document, read_document, write_document
from gnnflow.storage.filesystem import exists, join, list_names, read_bytes
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.run_folder import METRICS, check_run, read_metrics, read_run
from gnnflow.storage.verified import entries_of, is_whole, read_verified
from gnnflow.storage.workspace import MODEL_FILES, VERSION, Workspace, same_run
from gnnflow.storage.writing import FileEntry, create_exclusive, encode_json, write_atomic

CONFIG = "config.json"
ALIASES = "aliases"
_CLAIMS = "claims"
_DAMAGED = "The file is damaged: restore it from a copy, or delete it alone and publish the run again."
_GONE = "Publish its run again with `gnnflow publish CONFIG`, or restore the file from a copy."
_LATER = ("ranges", "metric_class")  # keys that are left out where they say nothing, so that documents stay the same
_GIT_SECONDS = 10
_STATES = TypeAdapter(dict[str, tuple[ColumnState, ...]])
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_name(text: str) -> bool:
    """Return whether a model may have this name."""
    return _NAME.fullmatch(text) is not None


def model_folder(workspace: str, name: str) -> str:
    """Return the folder of a model. Raises RegistryError for a name that is not allowed."""
    if not is_name(name):
        raise RegistryError(
            f"{name!r} is not a model name",
            where="registry",
            fix="Use up to 100 letters, digits, dots, dashes and underscores, a letter or digit first.",
        )
    return join(Workspace.at(workspace).uri, "registry", name)


def numbered(uri: str, *, suffix: str = "") -> list[int]:
    """Return the numbers among the names in a folder, ascending."""
    names = [name.removesuffix(suffix) for name in list_names(uri) if name.endswith(suffix)]
    return sorted(int(name) for name in names if name.isdecimal())


@dataclass(frozen=True)
class Version:
    """A published model. uri is its folder, run the present location of its run.

    fingerprints, digests: of every stage's artifact. revision: the git revision of the config's folder. scales: of its
    tables' columns; class_names: of its classes; both empty where there are none, and in older versions. code: a hash
    of the source of each of the user's own modules that scored, likewise. states: of its tables' fitted columns.
    ranges: of its tables' columns that are stored as steps. metric_class: see `TrainFacts`.
    """

    name: str
    version: int
    uri: str
    run: str
    created: str
    revision: str | None
    signature: Signature
    metrics: dict[str, float]
    fingerprints: dict[str, str]
    digests: dict[str, str]
    artifacts: dict[str, str]
    tables: dict[str, Any]
    files: tuple[FileEntry, ...]
    scales: dict[str, ColumnScale] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    code: dict[str, str] = field(default_factory=dict)
    states: dict[str, tuple[ColumnState, ...]] = field(default_factory=dict)
    ranges: dict[str, ColumnRanges] = field(default_factory=dict)
    metric_class: str = ""

    @property
    def pinned(self) -> str:
        """The name of exactly this version in a config."""
        return f"{self.name}/{self.version}"

    @property
    def predictions(self) -> str:
        """The folder of the predictions of the version's run."""
        return join(self.run, "predictions")

    @property
    def report(self) -> str:
        """The report of the version's run."""
        return join(self.run, "report.html")

    def read(self, name: str) -> bytes:
        """Return one of the version's files. Raises StorageError where it has changed since publication."""
        (entry,) = (entry for entry in self.files if entry.name == name)
        where = join(self.uri, name)
        content = read_bytes(where)
        if (found := hashlib.sha256(content).hexdigest()) != entry.sha256:
            raise StorageError(
                f"is not the file that was published: its sha256 is {found}, {VERSION} says {entry.sha256}",
                where=where,
                fix="Restore it from a copy, or publish the run again.",
            )
        return content


def register(workspace: str, run_uri: str, *, name: str | None = None, revision: str | None = None) -> Version:
    """Publish a completed run as the next version of a model, and return it. The same run gives the same version.

    name defaults to the run's. Costs one small read for every lower number, and one of the run's predictions. Raises
    StorageError where there is no such run or its files have changed, RegistryError for a bad name.
    """
    record = read_run(run_uri)
    check_run(run_uri)
    name = name or str(record["name"])
    number, claim = _claim(model_folder(workspace, name), run_uri, revision)
    uri = join(model_folder(workspace, name), str(number))
    if exists(join(uri, VERSION)):
        version = read_version(workspace, name, number)
        if all(is_whole(uri, file) for file in version.files):
            return version
    _write(uri, name, number, claim=claim, record=record)  # the same bytes again where a file was damaged since
    return read_version(workspace, name, number)


def _claim(folder: str, run_uri: str, revision: str | None) -> tuple[int, dict[str, Any]]:
    """Return the number and the claim of a run."""
    own = {"run": run_uri, "created": datetime.now(UTC).isoformat(timespec="seconds"), "revision": revision}
    taken = set(numbered(join(folder, _CLAIMS), suffix=".json"))
    for number in count(1):
        where = join(folder, _CLAIMS, f"{number}.json")
        if number not in taken:
            # in this order: another registration may have claimed and written it after the claims were listed
            if exists(join(folder, str(number), VERSION)) and not exists(where):
                create_exclusive(where, encode_document({**_claim_of(folder, number), "version": number}))
            elif create_exclusive(where, encode_document({**own, "version": number})):
                return number, own
        claim = read_document(where, fix=_DAMAGED)
        if claim.pop("version", number) != number or claim.keys() != own.keys():
            raise StorageError(f"is not the claim of version {number}", where=where, fix=_DAMAGED)
        if same_run(claim["run"], run_uri):
            return number, {**claim, "run": run_uri}
    raise AssertionError("numbers do not end")


def _claim_of(folder: str, number: int) -> dict[str, Any]:
    """Return the claim of a version whose claim was lost, from its document. Raises StorageError where that is damaged.

    A claim is written before its version, so without one nobody else is about to write this number.
    """
    version = _read(folder, number)
    return {"run": version.run, "created": version.created, "revision": version.revision}


def _write(uri: str, name: str, number: int, *, claim: dict[str, Any], record: dict[str, Any]) -> None:
    """Copy the run's files, then commit the version."""
    manifests = {stage: read_manifest(artifact) for stage, artifact in record["artifacts"].items()}
    trained, metrics = record["artifacts"]["train"], read_metrics(claim["run"])
    store, select = record["artifacts"][record["store"]], record["artifacts"]["select"]
    documents = {
        **{file: read_verified(trained, file) for file in MODEL_FILES},
        CONFIG: encode_json(record["config"]),
        METRICS: encode_json(metrics),
    }
    files = tuple(write_atomic(join(uri, file), content) for file, content in documents.items())
    graph = record["config"]["graph"]
    facts = read_facts(store, manifests[record["store"]], GraphFacts)
    version = Version(
        name=name,
        version=number,
        uri=uri,
        **claim,
        signature=signature_of(facts, read_facts(select, manifests["select"], SelectFacts)),
        metrics=metrics,
        fingerprints={stage: manifest.fingerprint for stage, manifest in manifests.items()},
        digests={stage: manifest.digest for stage, manifest in manifests.items()},
        artifacts=dict(record["artifacts"]),
        tables={side: graph[side] for side in ("nodes", "edges")},
        files=files,
        scales=facts.scales,
        ranges=dict(facts.ranges),
        states={name: tuple(columns) for name, columns in facts.states.items()},
        class_names=facts.class_names,
        metric_class=read_facts(trained, manifests["train"], TrainFacts).metric_class,
        # without training's code: a loss does not change scores, and inference ran the same layers
        code={name: held for stage, each in manifests.items() if stage != "train" for name, held in each.code.items()},
    )
    held = {key: each for key, each in asdict(version).items() if key != "uri" and (key not in _LATER or each)}
    write_document(join(uri, VERSION), held)


def read_version(workspace: str, name: str, number: int) -> Version:
    """Return a version.

    Raises RegistryError, which names the existing versions, where there is none, and StorageError where its document is
    damaged.
    """
    folder = model_folder(workspace, name)
    where = join(folder, str(number), VERSION)
    if not exists(where):
        if not exists(join(folder, _CLAIMS, f"{number}.json")):
            raise unknown_version(workspace, name, str(number))
        raise StorageError("is missing: its publication was cut short, or the file was deleted", where=where, fix=_GONE)
    version = _read(folder, number)
    if (version.name, version.version) != (name, number):
        raise StorageError(f"says it is {version.name} {version.version}", where=where, fix=_DAMAGED)
    return version


def _read(folder: str, number: int) -> Version:
    """Return the version of a document. Raises StorageError where it is damaged."""
    uri = join(folder, str(number))
    where = join(uri, VERSION)
    content, home = read_document(where, fix=_DAMAGED), Workspace.of(uri)
    try:
        held = {
            **content,
            "run": home.now_at(content["run"]),
            "artifacts": {stage: home.now_at(each) for stage, each in content["artifacts"].items()},
            "signature": Signature(**content["signature"]),
            "files": entries_of(content["files"], where=where, fix=_DAMAGED),
            "scales": {name: _scale(each) for name, each in content.get("scales", {}).items()},
            "states": _STATES.validate_python(content.get("states", {})),
            "class_names": tuple(content.get("class_names", ())),
            "ranges": {
                name: ColumnRanges(tuple(each["low"]), tuple(each["high"]))
                for name, each in content.get("ranges", {}).items()
            },
        }
        return Version(**held, uri=uri)
    except (TypeError, KeyError, AttributeError, ValidationError) as error:
        raise StorageError(f"is not a version ({error})", where=where, fix=_DAMAGED) from error


def _scale(held: dict[str, list[float]]) -> ColumnScale:
    return ColumnScale(mean=tuple(held["mean"]), deviation=tuple(held["deviation"]))


def list_versions(workspace: str, name: str) -> tuple[int, ...]:
    """Return the numbers of completely written versions, ascending; empty where there is no such model."""
    folder = model_folder(workspace, name)
    return tuple(number for number in numbered(folder) if exists(join(folder, str(number), VERSION)))


def list_models(workspace: str) -> tuple[str, ...]:
    """Return the names of all models with published versions."""
    root = join(Workspace.at(workspace).uri, "registry")
    names = filter(is_name, list_names(root))  # file managers leave files such as .DS_Store
    return tuple(name for name in names if list_names(join(root, name, ALIASES)) or list_versions(workspace, name))


def unknown_model(workspace: str, name: str) -> RegistryError:
    """Return the error for a model that was not published; it names the published ones."""
    models = list_models(workspace)
    fix = f"Models: {', '.join(models)}." if models else "Publish a run with `gnnflow publish CONFIG`."
    return RegistryError(f"no model {name!r}", where=join(Workspace.at(workspace).uri, "registry"), fix=fix)


def unknown_version(workspace: str, name: str, which: str) -> RegistryError:
    """Return the error for a version that was not published; it names the published ones."""
    versions = list_versions(workspace, name)
    if not versions:
        return unknown_model(workspace, name)
    return RegistryError(
        f"model {name!r} has no version {which}",
        where=model_folder(workspace, name),
        fix=f"Versions: {', '.join(map(str, versions))}.",
    )


def git_revision(config_uri: str) -> str | None:
    """Return the commit of a config file's checkout.

    None where the file is not on this machine, not in a checkout, or git is not installed. Whether files differ from
    the commit is not looked at: git would run programs that the checkout's own configuration names.
    """
    folder = Path(config_uri).expanduser().absolute().parent
    if not config_uri or "://" in config_uri or not folder.is_dir():
        return None
    command = ["git", "-C", str(folder), "rev-parse", "--verify", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)  # noqa: S603 - a fixed command; only the folder varies
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
