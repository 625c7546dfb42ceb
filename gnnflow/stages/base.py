"""The context of a run, the inputs and results of its stages, and their artifacts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gnnflow.config import STAGES
from gnnflow.graph.errors import StorageError
from gnnflow.graph.facts import SelectFacts
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.native import malloc
from gnnflow.neighbors.selected import Neighbors
from gnnflow.progress import Silent
from gnnflow.stages.resolve import ResolvedRun, resolve
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import Manifest, committed, read_facts, read_manifest
from gnnflow.storage.workspace import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.config import Config
    from gnnflow.mapreduce.schedulers import Scheduler
    from gnnflow.progress import Progress
    from gnnflow.storage.writing import FileEntry

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class StageContext:
    """A resolved run, with the scheduler of its tasks and a listener for progress; neither changes a result.

    config_uri: the file that the config was read from; "" for a config made in Python.
    """

    run: ResolvedRun
    scheduler: Scheduler
    progress: Progress
    config_uri: str = ""

    @staticmethod
    def of(
        config: Config, scheduler: Scheduler | None = None, progress: Progress | None = None, *, config_uri: str = ""
    ) -> StageContext:
        """Resolve a config; by default tasks run in this process and progress is silent."""
        return StageContext(resolve_here(config), scheduler or Synchronous(), progress or Silent(), config_uri)

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.run.config

    def artifact(self, stage: str) -> Artifact:
        """Return the committed artifact of a stage. Raises StorageError if there is none."""
        uri = self.run.artifact(stage)
        if not committed(uri):
            raise _not_run(stage, uri)
        return Artifact(uri, read_manifest(uri))


def resolve_here(config: Config) -> ResolvedRun:
    """Resolve a config whose stages run in this process."""
    # One heap for all threads. glibc gives each of the first threads its own, whose holes no other uses (60 MiB beyond
    # a `train.memory` of 130), and which returns large pieces at once, whatever `kept_memory` asks for: an epoch of
    # mini-batches then took 12 % longer. Existing heaps stay, so this comes before threads begin.
    malloc.set_options({malloc.ARENA_MAX: 1})
    return resolve(config)


def _not_run(stage: str, uri: str) -> StorageError:
    """Return the error for a missing artifact: the stage never ran, or the config or a table changed since."""
    others, again = uri.rsplit("/", 1)[0], f"`gnnflow {stage} CONFIG` or `gnnflow run CONFIG`"
    if any(committed(join(others, name)) for name in list_names(others)):
        return StorageError(
            f"stage {stage} has run in this workspace, but not for this config and its current tables",
            where=uri,
            fix="Give the `--set` that the run was given. If the config or a table has changed since, run it again: "
            f"{again}; in Airflow clear its task with those after it.",
        )
    return StorageError(f"stage {stage} has not run for this config", where=uri, fix=f"Run {again}.")


@dataclass(frozen=True)
class Artifact:
    """The committed result of a stage: the folder of its files, and its manifest."""

    uri: str
    manifest: Manifest

    def facts(self, kind: type[Facts]) -> Facts:
        """Return the facts for later stages. Raises StorageError if the manifest lacks them."""
        return read_facts(self.uri, self.manifest, kind)


@dataclass(frozen=True)
class StageRun:
    """The input of a stage's work function: the resolved run, artifacts of earlier stages and a runner of rounds.

    Files go below `folder`: the artifact's folder, or the folder of this attempt if another attempt could write other
    bytes. `rounds.work` is a scratch folder that an interrupted attempt leaves to the next. attempt: the name of this
    attempt there.
    """

    stage: str
    resolved: ResolvedRun
    artifact: str
    inputs: Mapping[str, Artifact]
    rounds: RoundRunner
    attempt: str = ""

    @property
    def folder(self) -> str:
        """The folder for the stage's files."""
        return join(self.rounds.work, self.attempt) if self.attempt else self.artifact

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.resolved.config

    @property
    def failed(self) -> str:
        """A folder for files about a failed attempt; the next attempt that succeeds empties it."""
        return self.resolved.workspace.failed(self.stage, self.artifact.rsplit("/", 1)[1])

    @property
    def store(self) -> GraphStore:
        """The graph store that this stage computes on, with the selected relations."""
        return _store_in(self.inputs)

    @property
    def neighbors(self) -> Neighbors:
        """The in-edges this run aggregates over."""
        return _neighbors_in(self.inputs, self.config)

    def facts(self, stage: str, kind: type[Facts]) -> Facts:
        """Return the facts of an input."""
        return self.inputs[stage].facts(kind)

    def tell(self, text: str) -> None:
        """Send a message to whoever listens to progress."""
        self.rounds.progress.message(text)


def neighbors_of(context: StageContext) -> Neighbors:
    """Return the in-edges that a run aggregates over, after its select stage."""
    inputs = {stage: context.artifact(stage) for stage in (context.run.store_stage, "select")}
    return _neighbors_in(inputs, context.config)


def _store_in(inputs: Mapping[str, Artifact]) -> GraphStore:
    written = next(artifact for name, artifact in inputs.items() if STAGES[name].writes_store)
    store = GraphStore.of(written.uri, written.manifest)
    selected = inputs.get("select")
    return store if selected is None else store.selected(selected.uri, selected.facts(SelectFacts).relations)


def _neighbors_in(inputs: Mapping[str, Artifact], config: Config) -> Neighbors:
    selected = inputs["select"]
    kept = selected.facts(SelectFacts).kept is not None
    return Neighbors(_store_in(inputs), selected.uri if kept else "", config.sampling)


@dataclass(frozen=True)
class Made:
    """The result of a stage's work function, from which the manifest is written.

    files: in an order that depends only on the result, since the digest covers it. facts: a frozen dataclass for later
    stages, as in `gnnflow.graph.facts`.
    """

    files: tuple[FileEntry, ...]
    rows_in: int
    rows_out: int
    facts: Any
    rows_quarantined: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """A stage's name, its seconds, and whether an earlier result was reused."""

    stage: str
    seconds: float
    reused: bool = False

    def summary(self) -> dict[str, Any]:
        """Return plain values, for `--json`, a task's return value or a log."""
        return {"stage": self.stage, "reused": self.reused, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, kw_only=True)
class ArtifactResult(StageResult):
    """A committed artifact: its folder and its manifest."""

    artifact: str
    manifest: Manifest

    @property
    def digest(self) -> str:
        """The digest over the artifact's files."""
        return self.manifest.digest

    def facts(self, kind: type[Facts]) -> Facts:
        """Return the facts for later stages. Raises StorageError if the manifest lacks them."""
        return read_facts(self.artifact, self.manifest, kind)

    def summary(self) -> dict[str, Any]:
        """Return the artifact's folder, its digest and its row counts."""
        held = self.manifest
        counts = {"rows_in": held.rows_in, "rows_out": held.rows_out, "rows_quarantined": held.rows_quarantined}
        artifact = {"artifact": self.artifact, "manifest": join(self.artifact, MANIFEST), "digest": self.digest}
        return {**super().summary(), **artifact, **counts}
