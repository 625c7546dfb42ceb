"""Reads the models of a workspace: versions with their certificate, where they come from, and what they scored.

The rules of `contents.py` hold: names are looked up, and a file is read only if it lies in the workspace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnflow import registry
from gnnflow.config import STAGES
from gnnflow.graph.errors import GnnflowError, StorageError
from gnnflow.graph.labels import is_bound, of_class
from gnnflow.graph.run_facts import InferFacts
from gnnflow.report.formats import metric_name, score_cell
from gnnflow.storage.filesystem import absolute, exists, join, list_names
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.workspace import MANIFEST, RUN, VERSION, WEIGHTS
from gnnflow_airflow.pages.contents import NOT_A_RECORD, AbsentError, find_file, find_folder, is_inside, read_page

if TYPE_CHECKING:
    from gnnflow_airflow.places import Place

_CONFIG = "config.json"
_SPLITS = ("test", "valid", "train")
_MOST_SCORINGS = 20
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<version>[0-9]+)")
_SCORING_PAGE = re.compile(r"[0-9]{8}\.html")


@dataclass(frozen=True)
class Model:
    """A model with its versions, newest first. damaged: why a version cannot be read."""

    name: str
    aliases: registry.Aliases
    versions: Sequence[dict[str, Any]]
    damaged: Sequence[str]


@dataclass(frozen=True)
class Certificate:
    """The parity certificate of a version. holds: None where it is not known."""

    holds: bool | None
    text: str

    @property
    def verdict(self) -> str:
        """The outcome in a few words."""
        return {True: "Parity holds", False: "Parity is broken", None: "Parity is not known"}[self.holds]


@dataclass(frozen=True)
class Origin:
    """One thing that a version was made from. path: of its page, empty without one."""

    kind: str
    text: str
    path: str = ""


@dataclass(frozen=True)
class MadeStage:
    """A stage of a version's run."""

    name: str
    fingerprint: str
    digest: str
    path: str


@dataclass(frozen=True)
class Scoring:
    """A scoring of tables by a version. report, predictions: paths of pages, empty where they are gone."""

    at: str
    tables: Mapping[str, str]
    report: str
    predictions: str


@dataclass(frozen=True)
class ShownVersion:
    """A version with everything that its page shows. metrics: a name, and a cell for each split of `splits`."""

    row: Mapping[str, Any]
    reason: str
    splits: Sequence[str]
    metrics: Sequence[tuple[str, Sequence[str]]]
    certificate: Certificate
    origins: Sequence[Origin]
    stages: Sequence[MadeStage]
    scorings: Sequence[Scoring]
    moves: Sequence[Mapping[str, Any]]


def list_models(place: Place) -> list[Model]:
    """Return the models of the workspace's registry."""
    folder = join(place.uri, "registry")
    if not exists(folder):
        return []
    if not is_inside(place, folder):
        raise AbsentError
    found = []
    for name in registry.list_models(place.uri):
        try:
            found.append(read_model(place, name))
        except AbsentError:  # its folder is a link to another place, or holds nothing of ours
            continue
        except GnnflowError as error:  # damaged aliases, without which the other models can still be moved
            found.append(Model(name, registry.Aliases(), (), [str(error)]))
    return found


def read_model(place: Place, name: str) -> Model:
    """Return a model with its versions. Raises AbsentError where the registry has none of that name."""
    find_folder(place, "registry", name)
    aliases = registry.read_aliases(place.uri, name)
    versions, damaged = [], []
    for number in registry.published_versions(place.uri, name)[::-1]:
        try:
            version = registry.read_version(place.uri, name, number)
            versions.append({**registry.version_row(version, aliases), "path": _run_path(place, version)})
        except GnnflowError as error:
            damaged.append(str(error))
        except NOT_A_RECORD as error:
            damaged.append(f"version {number} cannot be shown: a value of it is of another kind ({error!r})")
    if not versions and not damaged:
        raise AbsentError
    return Model(name, aliases, versions, damaged)


def show_version(place: Place, name: str, number: int) -> ShownVersion:
    """Return a version for its page.

    Raises AbsentError where the registry has none of that number, StorageError where it cannot be shown.
    """
    where = find_file(place, find_folder(place, "registry", name, str(number)), VERSION)
    try:
        return _shown(place, name, number)
    except NOT_A_RECORD as error:
        raise StorageError(
            f"cannot be shown: a value of it is of another kind ({error!r})", where=where, fix="It is damaged."
        ) from error


def _shown(place: Place, name: str, number: int) -> ShownVersion:
    version, aliases = registry.read_version(place.uri, name, number), registry.read_aliases(place.uri, name)
    splits, metrics = _metric_rows(version)
    return ShownVersion(
        row={**registry.version_row(version, aliases), "path": _run_path(place, version)},
        reason=str((aliases.rejection(number) or aliases.decided(number)).get("reason", "")),
        splits=splits,
        metrics=metrics,
        certificate=_certificate(place, version),
        origins=[*_origins(place, version)],
        stages=[
            MadeStage(
                stage,
                version.fingerprints[stage],
                version.digests[stage],
                _training_path(place, stage, version.artifacts[stage]),
            )
            for stage in dict.fromkeys((*STAGES, *version.artifacts))
            if stage in version.artifacts
        ],
        scorings=[*_scorings(place, version)],
        moves=[move for move in reversed(aliases.history) if number in {move["from"], move["to"]}],
    )


def read_scoring(place: Place, name: str, page: str) -> bytes:
    """Return the page of a scoring. Raises AbsentError where there is none."""
    if _SCORING_PAGE.fullmatch(page) is None:
        raise AbsentError
    return read_page(place, find_folder(place, "registry", name, "scores"), page)


def _run_path(place: Place, version: registry.Version) -> str:
    """Return the path of a version's run; empty where it is gone."""
    inside = is_inside(place, version.run) and exists(join(version.run, RUN))
    return place.find_path(absolute(version.run)) if inside else ""


def _training_path(place: Place, stage: str, artifact: str) -> str:
    """Return the path of the learning curves of a training; empty for other stages, or where it is gone."""
    there = stage == "train" and is_inside(place, artifact) and exists(join(artifact, MANIFEST))
    return place.find_path(absolute(artifact)) if there else ""


def _metric_rows(version: registry.Version) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the splits that have metrics, and a row of cells for each metric of test and valid."""
    metrics = version.metrics
    keys = [key for key in sorted(metrics) if key.startswith(("test.", "valid.")) and not is_bound(key)]
    names = [*dict.fromkeys(key.partition(".")[2] for key in keys)]
    splits = [split for split in _SPLITS if any(f"{split}.{name}" in metrics for name in names)]
    return splits, [
        (
            metric_name(name) + of_class(name, version.metric_class),
            [score_cell(metrics, f"{split}.{name}") for split in splits],
        )
        for name in names
    ]


def _certificate(place: Place, version: registry.Version) -> Certificate:
    """Return the parity certificate, which is kept by the artifact of infer, if that is still the published one."""
    artifact = version.artifacts["infer"]
    if not is_inside(place, artifact) or not exists(join(artifact, MANIFEST)):
        return Certificate(None, "its artifact of infer is not in this workspace any more")
    try:
        manifest = read_manifest(artifact)
        parity = read_facts(artifact, manifest, InferFacts).parity
    except GnnflowError as error:
        return Certificate(None, str(error))
    if manifest.digest != version.digests["infer"]:
        return Certificate(holds=False, text="the artifact of infer is another one than was published")
    return Certificate(parity.holds, parity.text)


def _origins(place: Place, version: registry.Version) -> Iterator[Origin]:
    """Yield what a version was made from: its tables, an earlier model, the code."""
    for name, table in registry.list_tables(version.tables).items():
        yield Origin(name, table)
    find_file(place, version.uri, _CONFIG)
    config = json.loads(version.read(_CONFIG))
    for kind, named in (
        ("weights at the start", config["train"].get("start")),
        ("scales of", config["graph"].get("scaled_as")),
    ):
        if named:
            yield Origin(kind, str(named), _version_path(place, str(named)))
    yield Origin("git revision", version.revision or "not known: the config was in no checkout")
    for module, digest in version.code.items():
        yield Origin(f"code of {module}", digest)
    (weights,) = (entry for entry in version.files if entry.name == WEIGHTS)
    yield Origin("sha256 of the weights", weights.sha256)


def _version_path(place: Place, pinned: str) -> str:
    """Return the path of the page of another version, NAME/NUMBER; empty where there is none."""
    found = _PINNED.fullmatch(pinned)
    if found is None or not exists(join(place.uri, "registry", found["name"], found["version"], VERSION)):
        return ""
    return f"registry/{pinned}"


def _scorings(place: Place, version: registry.Version) -> Iterator[Scoring]:
    """Yield the latest scorings by a version, the last one first."""
    above = join(place.uri, "registry", version.name)
    if "scores" not in list_names(above):
        return
    pages = list_names(find_folder(place, "registry", version.name, "scores"))
    found = (each for each in registry.read_scores(place.uri, version.name) if each.version == version.version)
    for record, _ in zip(found, range(_MOST_SCORINGS), strict=False):
        page = record.page_in(place.uri).rpartition("/")[2]
        predictions = record.predictions if is_inside(place, record.folder) and record.is_there else ""
        yield Scoring(
            record.at,
            registry.list_tables(record.tables),
            f"registry/{version.name}/scores/{page}" if page in pages else "",
            place.find_path(absolute(predictions)) if predictions else "",
        )
