"""The scores that published models gave, in order: which version scored which tables, and where the predictions lie.

registry/<name>/scores/<number>.json    written once, exclusively; the highest number is the last scoring
registry/<name>/scores/<number>.html    its report, made again from the record where it is missing

Artifacts are named by content alone, so without this list nobody could say which predictions are current, what the
month before looked like, or which model made a folder of embeddings. It holds figures, no predictions. Whoever deletes
an artifact of `score` may leave the list as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import RegistryError, StorageError
from gnnflow.registry.aliases import find_named
from gnnflow.registry.versions import list_models, model_folder, numbered
from gnnflow.storage.documents import encode_document, read_document
from gnnflow.storage.filesystem import absolute, exists, join
from gnnflow.storage.workspace import MANIFEST, RUN, Workspace
from gnnflow.storage.writing import create_exclusive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SCORES = "scores"
_PREDICTIONS = "predictions"
_FIX = "Delete this one file: it only says what was scored, and the next `gnnflow score` writes such a file again."


@dataclass(frozen=True)
class ScoreRecord:
    """One scoring of tables by a published model.

    folder: of the artifact, or of the run whose predictions are the version's. tables: `nodes` and `edges` as the
    config names them. figures: what `gnnflow.stages.score_figures` says of the predictions; drift: how they differ from
    the ones before.
    """

    name: str
    number: int
    version: int
    folder: str
    tables: dict[str, Any]
    at: str
    figures: dict[str, Any]
    drift: dict[str, Any]

    @property
    def predictions(self) -> str:
        """The folder of the predictions."""
        return join(self.folder, _PREDICTIONS)

    def page_in(self, workspace: str) -> str:
        """Return the place of this scoring's report."""
        return join(model_folder(workspace, self.name), _SCORES, f"{self.number:08d}.html")

    @property
    def is_there(self) -> bool:
        """True if the predictions still exist."""
        return any(exists(join(self.folder, listing)) for listing in (MANIFEST, RUN))


def read_scores(workspace: str, name: str) -> Iterator[ScoreRecord]:
    """Yield a model's scorings, the last one first. Raises StorageError for a damaged record."""
    folder = join(model_folder(workspace, name), _SCORES)
    for number in reversed(numbered(folder, suffix=".json")):
        where = join(folder, f"{number:08d}.json")
        held = read_document(where, fix=_FIX)
        try:
            record = ScoreRecord(**held)
        except TypeError as error:
            raise StorageError(f"is not a record of scores ({error})", where=where, fix=_FIX) from error
        yield replace(record, folder=Workspace.at(workspace).now_at(record.folder))


def last_score(workspace: str, name: str, *, version: int | None = None) -> ScoreRecord | None:
    """Return the last scoring of a model, or of one version; None without one."""
    records = read_scores(workspace, name)
    return next((each for each in records if version is None or each.version == version), None)


def record_score(
    workspace: str,
    name: str,
    *,
    version: int,
    folder: str,
    tables: Mapping[str, Any],
    figures: Mapping[str, Any],
    drift: Mapping[str, Any],
) -> ScoreRecord:
    """Append a scoring and return its record."""
    above = join(model_folder(workspace, name), _SCORES)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    while True:
        number = max(numbered(above, suffix=".json"), default=0) + 1
        record = ScoreRecord(name, number, version, folder, dict(tables), at, dict(figures), dict(drift))
        if create_exclusive(join(above, f"{number:08d}.json"), encode_document(asdict(record))):
            return record


def find_scoring(named: str, *, workspace: str) -> ScoreRecord | None:
    """Return the scoring that a person names: NAME@champion for a version's last one, or the folder of predictions.

    None where the text names neither. Raises RegistryError where a version has scored nothing.
    """
    version = find_named(named, workspace=workspace)
    if version is None:
        return find_score(named) if exists(join(_artifact_of(named), MANIFEST)) else None
    record = last_score(workspace, version.name, version=version.version)
    if record is None or not record.is_there:
        raise RegistryError(
            f"version {version.version} has no scores" + ("" if record is None else ": their folder is gone"),
            where=named,
            fix="Run `gnnflow score CONFIG` first.",
        )
    return record


def find_score(folder: str) -> ScoreRecord | None:
    """Return the last scoring that left its predictions in a folder; None where no published model did.

    folder: as `gnnflow score` prints it, or the artifact above.
    """
    artifact = _artifact_of(folder)
    workspace = Workspace.of(artifact).uri
    records = (each for name in list_models(workspace) for each in read_scores(workspace, name))
    return next((each for each in records if each.folder.rstrip("/") == artifact), None)


def _artifact_of(folder: str) -> str:
    return join(absolute(folder)).rstrip("/").removesuffix(f"/{_PREDICTIONS}")
