"""What is passed to a stage and what it gives: the context of a run, artifacts, and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gnnflow.config import STAGES
from gnnflow.config.train_section import is_streamed
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


def _share_freed_memory() -> None:
    """Have all threads of the process, from now on, take memory that any of them has freed.

    glibc gives each of the first threads a heap of its own, whose holes serve no other: 60 MiB beyond a budget
    (`train.memory`) of 130. A heap that is there stays, so this comes before threads begin.
    """
    malloc.set_options({malloc.ARENA_MAX: 1})


@dataclass(frozen=True)
class StageContext:
    """A resolved run and what its stages run with.

    `scheduler` runs tasks, `progress` hears of them; neither changes a result. config_uri: where the config was read
    from, "" where it was made in Python.
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
        if is_streamed(config.train):
            _share_freed_memory()
        return StageContext(resolve(config), scheduler or Synchronous(), progress or Silent(), config_uri)

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.run.config

    def artifact(self, stage: str) -> Artifact:
        """Return the committed artifact of a stage. Raises StorageError where there is none."""
        uri = self.run.artifact(stage)
        if not committed(uri):
            raise _not_run(stage, uri)
        return Artifact(uri, read_manifest(uri))


def _not_run(stage: str, uri: str) -> StorageError:
    """Return what to say of a stage without its artifact: it may have run before the tables or the config changed."""
    others, again = uri.rsplit("/", 1)[0], f"`gnnflow {stage} CONFIG` or `gnnflow run CONFIG`"
    if any(committed(join(others, name)) for name in list_names(others)):
        return StorageError(
            f"stage {stage} has run in this workspace, but not for this config on its tables as they are now",
            where=uri,
            fix=f"If the config or a table has changed since, run it again: {again}; in Airflow clear its task with "
            "those after it.",
        )
    return StorageError(f"stage {stage} has not run for this config", where=uri, fix=f"Run {again}.")


@dataclass(frozen=True)
class Artifact:
    """What a stage committed: where its files lie, and its manifest."""

    uri: str
    manifest: Manifest

    def facts(self, kind: type[Facts]) -> Facts:
        """Return what the stage tells later ones. Raises StorageError where the manifest does not hold it."""
        return read_facts(self.uri, self.manifest, kind)


@dataclass(frozen=True)
class StageRun:
    """What a stage's work function is given: its config, its inputs, a folder for its files and a runner of rounds.

    Files go below `folder`, which is the artifact's own, or that of this attempt where another could write other bytes;
    `rounds.work` is a scratch folder that an interrupted attempt leaves to the next. attempt: this one's name there.
    """

    stage: str
    context: StageContext
    artifact: str
    inputs: Mapping[str, Artifact]
    rounds: RoundRunner
    attempt: str = ""

    @property
    def folder(self) -> str:
        """Where its files go."""
        return join(self.rounds.work, self.attempt) if self.attempt else self.artifact

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.context.config

    @property
    def failed(self) -> str:
        """A folder for what a person may want to see of a failed attempt; the next that succeeds empties it."""
        return self.context.run.workspace.failed(self.stage, self.artifact.rsplit("/", 1)[1])

    @property
    def store(self) -> GraphStore:
        """The graph store this stage computes on, whichever wrote it, with the relations that were selected."""
        return _store_in(self.inputs)

    @property
    def neighbors(self) -> Neighbors:
        """The in-edges this run aggregates over."""
        return _neighbors_in(self.inputs, self.config)

    def facts(self, stage: str, kind: type[Facts]) -> Facts:
        """Return what an input tells."""
        return self.inputs[stage].facts(kind)


def neighbors_of(context: StageContext) -> Neighbors:
    """Return the in-edges that a run aggregates over, once its selection is made."""
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
    return Neighbors(_store_in(inputs), selected.uri if kept else "", config.neighbors.sampling.kind, config.fanouts)


@dataclass(frozen=True)
class Made:
    """What a stage's work function made. The manifest is written from it.

    files: in an order that depends on nothing but the result, since the digest covers it. facts: a frozen dataclass of
    `gnnflow.graph.facts` (or the stage's own) for later stages.
    """

    files: tuple[FileEntry, ...]
    rows_in: int
    rows_out: int
    facts: Any
    rows_quarantined: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """What every stage gives: its name, how long it took, and whether its work was there already."""

    stage: str
    seconds: float
    reused: bool = False

    def summary(self) -> dict[str, Any]:
        """Return it as plain values, for `--json`, a task's return value or a log."""
        return {"stage": self.stage, "reused": self.reused, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, kw_only=True)
class ArtifactResult(StageResult):
    """A committed artifact: where it is and what it holds."""

    artifact: str
    manifest: Manifest

    @property
    def digest(self) -> str:
        """The digest over the artifact's files."""
        return self.manifest.digest

    def facts(self, kind: type[Facts]) -> Facts:
        """Return what the stage tells later ones. Raises StorageError where the manifest does not hold it."""
        return read_facts(self.artifact, self.manifest, kind)

    def summary(self) -> dict[str, Any]:
        """Return where the artifact is, its digest and its row counts."""
        held = self.manifest
        counts = {"rows_in": held.rows_in, "rows_out": held.rows_out, "rows_quarantined": held.rows_quarantined}
        artifact = {"artifact": self.artifact, "manifest": join(self.artifact, MANIFEST), "digest": self.digest}
        return {**super().summary(), **artifact, **counts}
