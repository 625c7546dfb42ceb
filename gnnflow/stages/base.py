"""What every stage shares: the check whether its work is already done, the work folder, and the commit.

Where a committed artifact has the stage's fingerprint nothing is done; otherwise its work function runs, resuming what
an earlier attempt left in the work folder, and one manifest is written last, here and nowhere else.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from gnnflow.config import STAGES
from gnnflow.config.pipelines import load_named
from gnnflow.graph.errors import (
    ConfigError,
    LayerError,
    ParityError,
    ScoringError,
    StorageError,
    TableError,
    TrainingError,
)
from gnnflow.graph.facts import SelectFacts
from gnnflow.mapreduce.exchange import ExchangeError
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.selected import Neighbors
from gnnflow.progress import Silent
from gnnflow.stages.check import check_run
from gnnflow.stages.resolve import ResolvedRun, resolve
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.lease import LEASE, is_abandoned, sole_worker
from gnnflow.storage.manifest import Manifest, commit, committed, read_facts, read_manifest
from gnnflow.storage.removal import remove_tree
from gnnflow.storage.verified import check_file
from gnnflow.storage.workspace import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gnnflow.config import Config
    from gnnflow.mapreduce.schedulers import Scheduler
    from gnnflow.progress import Progress
    from gnnflow.storage.filesystem import FileEntry

Facts = TypeVar("Facts")

# The same inputs would fail again, so nothing of the attempt is worth keeping.
_REPEATABLE = (TableError, StorageError, ConfigError, LayerError, TrainingError, ParityError, ScoringError)


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
        return StageContext(resolve(config), scheduler or Synchronous(), progress or Silent(), config_uri)

    @property
    def config(self) -> Config:
        """The run's config."""
        return self.run.config

    def artifact(self, stage: str) -> Artifact:
        """Return the committed artifact of a stage. Raises StorageError where there is none."""
        uri = self.run.artifact(stage)
        if not committed(uri):
            raise StorageError(
                f"stage {stage} has not run for this config",
                where=uri,
                fix=f"Run `gnnflow {stage} CONFIG` or `gnnflow run CONFIG`.",
            )
        return Artifact(uri, read_manifest(uri))


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

    Files go below `artifact`; `rounds.work` is a scratch folder that an interrupted attempt leaves to the next.
    """

    stage: str
    context: StageContext
    artifact: str
    inputs: Mapping[str, Artifact]
    rounds: RoundRunner

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


def run_stage(context: StageContext, stage: str) -> StageResult:
    """Run one stage by its name. Raises StorageError where an earlier stage has not run, or its own result is damaged.

    A stage that a person asks for alone may be the last to be read here, so what it made earlier is verified whole.
    """
    if STAGES[stage].keys is not None:
        _check_asked_for(context, stage)
        check_run(context.run, (stage,))
        made = make_artifact(context, stage)
        if made.reused:
            for file in made.manifest.files:
                check_file(made.artifact, file.name)
        return made
    result: StageResult = load_named(STAGES[stage].work)(context)
    return result


def _check_asked_for(context: StageContext, stage: str) -> None:
    """Raise ConfigError where a run of this config does not have the stage."""
    if stage not in context.run.stages:
        has = ", ".join(context.run.stages)
        raise ConfigError(
            f"a run of this config has no stage {stage}, it has {has}",
            where=f"gnnflow {stage}",
            fix=f"Set {STAGES[stage].asked_by}, or leave the stage out.",
        )


def is_done(context: StageContext, stage: str) -> bool:
    """Return whether running a stage would find its result, or take no more than a few small files."""
    row = STAGES[stage]
    if row.keys is not None:
        return committed(context.run.artifact(stage))
    return bool(row.quick) and bool(load_named(row.quick)(context))


def make_artifact(context: StageContext, stage: str) -> ArtifactResult:
    """Commit a stage's artifact, or find the one that is there."""
    needs = context.run.needs(stage)
    for need in needs:
        if STAGES[need].on_demand and not committed(context.run.artifact(need)):
            make_artifact(context, need)
    inputs = {need: context.artifact(need) for need in needs}
    fingerprint = context.run.fingerprints[stage]
    return do_once(context, stage, load_named(STAGES[stage].work), fingerprint=fingerprint, inputs=inputs)


def do_once(
    context: StageContext,
    stage: str,
    work: Callable[[StageRun], Made],
    *,
    fingerprint: str,
    inputs: Mapping[str, Artifact],
) -> ArtifactResult:
    """Do work under a fingerprint unless it is done, and return what is committed then.

    Where another run is doing the same work this one waits for it.
    """
    begin = time.monotonic()
    workspace = context.run.workspace
    artifact = workspace.artifact(stage, fingerprint)
    folder = workspace.work(stage, fingerprint)
    reused = committed(artifact)
    if reused and is_abandoned(folder):  # by a run that was killed between its commit and this
        remove_tree(folder)
    if not reused:
        with sole_worker(folder, done=lambda: committed(artifact), progress=context.progress) as alone:
            reused = not alone or committed(artifact)
            if not reused:
                rounds = RoundRunner(folder, context.scheduler, context.progress, artifact=artifact)
                run = StageRun(stage, context, artifact, inputs, rounds)
                reused = not _do(run, work, fingerprint=fingerprint)
    seconds = time.monotonic() - begin
    context.progress.stage_finished(stage, seconds, reused=reused)
    return ArtifactResult(
        stage=stage, seconds=seconds, reused=reused, artifact=artifact, manifest=read_manifest(artifact)
    )


def _do(run: StageRun, work: Callable[[StageRun], Made], *, fingerprint: str) -> bool:
    """Do the work and commit it. Returns False where another run committed it before this one could."""
    run.context.progress.stage_started(run.stage)
    # An artifact's folder that holds files which no attempt of this work wrote is not ours to delete.
    ours = not list_names(run.artifact) or any(LEASE not in name for name in list_names(run.rounds.work))
    try:
        _make_whole(run, work, fingerprint=fingerprint)
    except _REPEATABLE:
        done_elsewhere = committed(run.artifact)
        if ours and not done_elsewhere:
            remove_tree(run.artifact)
        remove_tree(run.rounds.work, keep=(LEASE,))
        if done_elsewhere:
            return False
        raise
    remove_tree(run.rounds.work, keep=(LEASE,))
    return True


def _make_whole(run: StageRun, work: Callable[[StageRun], Made], *, fingerprint: str) -> None:
    """Do the work, once more from its start where files between its rounds are not what they were."""
    try:
        _make(run, work, fingerprint=fingerprint)
    except ExchangeError as error:
        if committed(run.artifact):
            raise  # another run was done first and removed them
        run.context.progress.message(f"{run.stage} starts anew: {error}")
        remove_tree(run.rounds.work, keep=(LEASE,))
        rounds = RoundRunner(run.rounds.work, run.rounds.scheduler, run.rounds.progress, artifact=run.artifact)
        _make(replace(run, rounds=rounds), work, fingerprint=fingerprint)


def _make(run: StageRun, work: Callable[[StageRun], Made], *, fingerprint: str) -> None:
    begin = time.monotonic()
    made = work(run)
    rounds = [asdict(timing) for timing in run.rounds.timings]
    manifest = Manifest(
        stage=run.stage,
        fingerprint=fingerprint,
        format_version=STAGES[run.stage].version,
        files=made.files,
        inputs={need: artifact.manifest.fingerprint for need, artifact in run.inputs.items()},
        rows_in=made.rows_in,
        rows_out=made.rows_out,
        rows_quarantined=made.rows_quarantined,
        facts=asdict(made.facts),
        timings={"rounds": rounds, "seconds": time.monotonic() - begin},
        versions=dict(made.versions),
    )
    commit(run.artifact, manifest)
