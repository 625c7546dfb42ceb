"""Running a stage: the check whether its work is already done, the work folder, and the commit.

Where a committed artifact has the stage's fingerprint nothing is done; otherwise its work function runs, resuming what
an earlier attempt left in the work folder, and one manifest is written last, here and nowhere else.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from gnnflow.config import STAGES
from gnnflow.config.pipelines import load_named
from gnnflow.graph.errors import (
    ConfigError,
    LayerError,
    MachineError,
    ParityError,
    ScoringError,
    StorageError,
    TableError,
    TrainingError,
)
from gnnflow.mapreduce.exchange import ExchangeError
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.stages.base import Artifact, ArtifactResult, Made, StageContext, StageResult, StageRun
from gnnflow.stages.check import check_run
from gnnflow.stages.work_folder import elapsed_before, has_work, keep_elapsed, work_on
from gnnflow.storage.filesystem import list_names
from gnnflow.storage.lease import LEASE, is_abandoned, sole_worker
from gnnflow.storage.manifest import Manifest, claim, commit, committed, complete, read_manifest
from gnnflow.storage.verified import check_file
from gnnflow.storage.writing import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The same inputs would fail again, so nothing of the attempt is worth keeping.
_REPEATABLE = (TableError, StorageError, ConfigError, LayerError, TrainingError, ParityError, ScoringError)


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

    def make() -> bool:
        with work_on(folder, _digests_of(inputs)):
            earlier = elapsed_before(folder)
            rounds = RoundRunner(folder, context.scheduler, context.progress, artifact=artifact, earlier=earlier)
            return _do(StageRun(stage, context, artifact, inputs, rounds), work, fingerprint=fingerprint)

    reused = not do_alone(context, folder, make, done=lambda: complete(artifact, work=folder))
    seconds = time.monotonic() - begin
    manifest = read_manifest(artifact)
    _check_made_of(artifact, manifest, inputs)
    context.progress.stage_finished(stage, seconds, reused=reused)
    return ArtifactResult(stage=stage, seconds=seconds, reused=reused, artifact=artifact, manifest=manifest)


def _digests_of(inputs: Mapping[str, Artifact]) -> dict[str, str]:
    return {need: artifact.manifest.digest for need, artifact in inputs.items()}


def _check_made_of(artifact: str, manifest: Manifest, inputs: Mapping[str, Artifact]) -> None:
    """Raise StorageError where an artifact was made of others than those that are there now.

    A training that is repeated, after its artifact was deleted, may give another model under the same fingerprint.
    """
    now = _digests_of(inputs)
    for need, digest in manifest.made_of.items():
        if now.get(need, digest) != digest:
            raise StorageError(
                f"was made of another result of {need} (digest {digest[:12]}) than the one that is there "
                f"({now[need][:12]}), which has been made again since",
                where=artifact,
                fix="Delete this folder and run again.",
            )


def do_alone(context: StageContext, folder: str, work: Callable[[], bool], *, done: Callable[[], bool]) -> bool:
    """Do work unless it is done or another run does it, which is waited for. Returns whether this run did it.

    folder: where the lease lies while the work goes on; what work returns says whether it did anything.
    """
    if done():
        if is_abandoned(folder):  # by a run that was killed between its commit and this
            _clear(folder, context)
        return False
    with sole_worker(folder, done=done, progress=context.progress) as alone:
        return alone and not done() and work()


def _clear(folder: str, context: StageContext) -> None:
    """Delete a work folder that nobody needs; where that is not allowed it stays, and what is committed can be read."""
    try:
        remove_tree(folder)
    except (MachineError, StorageError) as error:
        context.progress.message(f"a killed run's work stays: {error}")


def _do(run: StageRun, work: Callable[[StageRun], Made], *, fingerprint: str) -> bool:
    """Do the work and commit it. Returns False where another run committed it before this one could."""
    run.context.progress.stage_started(run.stage)
    # An artifact's folder that holds files which no attempt of this work wrote is not ours to delete.
    ours = not list_names(run.artifact) or has_work(run.rounds.work)
    try:
        with keep_elapsed(run.rounds.work, started=run.rounds.started):
            _make_whole(run, work, fingerprint=fingerprint)
    except _REPEATABLE:
        done_elsewhere = complete(run.artifact, work=run.rounds.work)
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
        held = run.rounds
        earlier = time.monotonic() - held.started
        rounds = RoundRunner(held.work, held.scheduler, held.progress, artifact=run.artifact, earlier=earlier)
        _make(replace(run, rounds=rounds), work, fingerprint=fingerprint)


def _make(run: StageRun, work: Callable[[StageRun], Made], *, fingerprint: str) -> None:
    if STAGES[run.stage].may_differ:
        run = replace(run, attempt=f"attempt-{uuid.uuid4().hex}")
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
        timings={"rounds": rounds, "seconds": time.monotonic() - run.rounds.started},
        versions=dict(made.versions),
        code=run.context.run.code_of(run.stage),
        made_of=_digests_of(run.inputs),
    )
    commit(run.folder, manifest)
    if run.attempt:
        claim(run.artifact, work=run.rounds.work, attempt=run.attempt)
