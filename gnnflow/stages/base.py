"""What every stage shares: its fingerprint, the check whether its work is already done, and the commit.

A stage's fingerprint covers its config keys, its inputs' fingerprints and its format version. Where a committed
artifact has that fingerprint the stage does nothing; otherwise its rounds run in the work folder, resuming what is
there, and one manifest is written last.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gnnflow.config import stage_keys
from gnnflow.graph.errors import ConfigError, LayerError, ParityError, StorageError, TableError, TrainingError
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.progress import Silent
from gnnflow.storage.filesystem import join, remove_tree, stamp
from gnnflow.storage.lease import sole_worker
from gnnflow.storage.manifest import MANIFEST, Manifest, commit, committed, fingerprint_of, read_manifest
from gnnflow.storage.tables import scan
from gnnflow.storage.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.config import Config
    from gnnflow.mapreduce.rounds import RoundTiming
    from gnnflow.mapreduce.schedulers import Scheduler
    from gnnflow.progress import Progress

# Raised when the same config and inputs would give other bytes than before.
FORMAT_VERSIONS = {"ingest": 2, "flat": 1, "train": 1, "infer": 1}
_HOPELESS = (TableError, StorageError, ConfigError, LayerError, TrainingError, ParityError)
INPUTS = {"ingest": (), "flat": ("ingest",), "train": ("flat",), "infer": ("ingest", "train")}


@dataclass(frozen=True)
class StageContext:
    """What a stage runs with. `scheduler` runs tasks, `progress` hears of them; neither changes a result."""

    config: Config
    scheduler: Scheduler
    progress: Progress

    @staticmethod
    def of(config: Config, scheduler: Scheduler | None = None, progress: Progress | None = None) -> StageContext:
        """Return a context; by default tasks run in this process and progress is silent."""
        return StageContext(config, scheduler or Synchronous(), progress or Silent())

    @property
    def workspace(self) -> Workspace:
        """The workspace the config names."""
        return Workspace.at(self.config.workspace)


@dataclass(frozen=True)
class StageResult:
    """A committed stage: where it is, what it holds, and whether it was already there."""

    stage: str
    artifact: str
    manifest: Manifest
    reused: bool
    seconds: float

    @property
    def manifest_uri(self) -> str:
        """Where the manifest lies."""
        return join(self.artifact, MANIFEST)

    @property
    def digest(self) -> str:
        """The digest over the artifact's files."""
        return self.manifest.digest


def fingerprints(config: Config) -> dict[str, str]:
    """Return every stage's fingerprint. Reads the input tables' sizes and versions, never their rows."""
    found: dict[str, str] = {}
    for stage, needs in INPUTS.items():
        keys = stage_keys(config, stage)  # type: ignore[arg-type] # INPUTS' keys are the stages
        inputs: dict[str, Any] = {name: found[name] for name in needs}
        if stage == "ingest":
            inputs = _stamps(config)
            # Where the tables lie is no part of what they hold: a copy elsewhere has its own stamps.
            keys = {"graph": {key: value for key, value in keys["graph"].items() if key not in {"nodes", "edges"}}}
        found[stage] = fingerprint_of(stage, keys=keys, inputs=inputs, format_version=FORMAT_VERSIONS[stage])
    return found


def _stamps(config: Config) -> dict[str, Any]:
    tables = {"nodes": config.graph.nodes, "edges": config.graph.edges}
    for name, uri in tables.items():
        if not isinstance(uri, str):
            raise StorageError(
                f"graph.{name} is a map of types",
                where="config",
                fix="One node type and one edge type for now: give a path.",
            )
    return {
        name: [asdict(stamp(file)) for file in dict.fromkeys(chunk.uri for chunk in scan(str(uri)))]
        for name, uri in tables.items()
    }


def upstream(context: StageContext, stage: str) -> StageResult:
    """Return the committed artifact of an earlier stage. Raises StorageError where there is none."""
    artifact = context.workspace.artifact(stage, fingerprints(context.config)[stage])
    if not committed(artifact):
        raise StorageError(
            f"stage {stage} has not run for this config",
            where=artifact,
            fix=f"Run `gnnflow {stage} CONFIG` or `gnnflow run CONFIG`.",
        )
    return StageResult(stage, artifact, read_manifest(artifact), reused=True, seconds=0.0)


def run_stage(
    context: StageContext,
    stage: str,
    work: Callable[[str, RoundRunner], Manifest],
    *,
    fingerprint: str | None = None,
) -> StageResult:
    """Do a stage's work once: reuse the committed artifact, or run `work(artifact, runner)` and commit it.

    Where another run is doing the same work this one waits for it. fingerprint replaces the config's own, where more
    than the config decides the result.
    """
    begin = time.monotonic()
    fingerprint = fingerprint or fingerprints(context.config)[stage]
    artifact = context.workspace.artifact(stage, fingerprint)
    reused = committed(artifact)
    if not reused:
        folder = context.workspace.work(stage, fingerprint)
        with sole_worker(folder, done=lambda: committed(artifact), progress=context.progress) as alone:
            reused = not alone or committed(artifact)
            if not reused:
                _do(context, stage, artifact, folder, work)
    seconds = time.monotonic() - begin
    context.progress.stage_finished(stage, seconds, reused=reused)
    return StageResult(stage, artifact, read_manifest(artifact), reused, seconds)


def _do(
    context: StageContext, stage: str, artifact: str, folder: str, work: Callable[[str, RoundRunner], Manifest]
) -> None:
    begin = time.monotonic()
    context.progress.stage_started(stage)
    try:
        made = work(artifact, RoundRunner(folder, context.scheduler, context.progress))
        commit(artifact, replace(made, timings={**made.timings, "seconds": time.monotonic() - begin}))
    except _HOPELESS:
        # The same inputs would fail again, so nothing is worth keeping; a killed or lost run keeps its tasks.
        if not committed(artifact):
            remove_tree(artifact)
        remove_tree(folder)
        raise
    remove_tree(folder)


def timings_of(timings: Sequence[RoundTiming]) -> dict[str, Any]:
    """Return rounds' timings as the manifest holds them."""
    return {"rounds": [asdict(timing) for timing in timings]}
