"""Running a stage: its work is done once per fingerprint, in a work folder, and committed last.

A committed artifact under the stage's fingerprint is reused. Otherwise the work function runs, resuming from the work
folder of an earlier attempt, and one manifest is written last, here and nowhere else. The work folder also holds the
digests of the artifacts that the work reads, and the seconds of all attempts; no result depends on the seconds.
"""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

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
from gnnflow.storage.documents import read_document, write_document
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.lease import LEASE, is_abandoned, sole_worker
from gnnflow.storage.manifest import Manifest, claim, commit, committed, complete, read_manifest
from gnnflow.storage.verified import check_file
from gnnflow.storage.writing import remove_file, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gnnflow.progress import Progress

# The same inputs would fail again, so nothing of the attempt is worth keeping.
_REPEATABLE = (TableError, StorageError, ConfigError, LayerError, TrainingError, ParityError, ScoringError)

ELAPSED = "elapsed.json"
INPUTS = "inputs.json"
"""The digests of the artifacts that the work reads."""
_WRITE_SECONDS = 5.0
_KEY = "seconds"


def run_stage(context: StageContext, stage: str) -> StageResult:
    """Run one stage by its name, which `entry.perform` has checked.

    This stage may be the last one to read an existing result, so that is verified as a whole. Raises StorageError if an
    earlier stage has not run, or its own result is damaged.
    """
    if STAGES[stage].keys is None:
        result: StageResult = load_named(STAGES[stage].work)(context)
        return result
    made = make_artifact(context, stage)
    if made.reused:
        for file in made.manifest.files:
            check_file(made.artifact, file.name)
    return made


def is_done(context: StageContext, stage: str) -> bool:
    """Return whether running a stage would find its result, or cost no more than a few small files."""
    row = STAGES[stage]
    if row.keys is not None:
        return committed(context.run.artifact(stage))
    return bool(row.quick) and bool(load_named(row.quick)(context))


def make_artifact(context: StageContext, stage: str) -> ArtifactResult:
    """Return a stage's artifact; run the stage if there is none yet."""
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
    """Do work under a fingerprint unless it is done, and return the committed artifact.

    Waits if another run is doing the same work.
    """
    begin, workspace, progress = time.monotonic(), context.run.workspace, context.progress
    artifact, folder = workspace.artifact(stage, fingerprint), workspace.work(stage, fingerprint)

    def attempt() -> bool:
        with work_on(folder, _digests_of(inputs)):
            earlier = elapsed_before(folder)
            rounds = RoundRunner(folder, context.scheduler, progress, artifact=artifact, earlier=earlier)
            return _attempt(StageRun(stage, context.run, artifact, inputs, rounds), work, fingerprint=fingerprint)

    reused = not do_alone(folder, attempt, done=lambda: complete(artifact, work=folder), progress=progress)
    seconds = time.monotonic() - begin
    manifest = read_manifest(artifact)
    _check_inputs(artifact, manifest, inputs)
    progress.stage_finished(stage, seconds, reused=reused)
    return ArtifactResult(stage=stage, seconds=seconds, reused=reused, artifact=artifact, manifest=manifest)


def do_alone(folder: str, work: Callable[[], bool], *, done: Callable[[], bool], progress: Progress) -> bool:
    """Do work unless it is done or another run does it; wait for that run. Return True if this run did it.

    folder: holds the lease during the work. work returns False if it found nothing to do.
    """
    if done():
        if is_abandoned(folder):  # the run that committed was killed before it deleted this
            try:
                remove_tree(folder)
            except (MachineError, StorageError) as error:  # not allowed: what is committed can be read all the same
                progress.message(f"a killed run's work stays: {error}")
        return False
    with sole_worker(folder, done=done, progress=progress) as alone:
        return alone and not done() and work()


def _attempt(run: StageRun, work: Callable[[StageRun], Made], *, fingerprint: str) -> bool:
    """Do the work and commit it. Return False if another run committed it first."""
    run.rounds.progress.stage_started(run.stage)
    # Files in the artifact's folder that no attempt of this work wrote are not ours to delete.
    ours = not list_names(run.artifact) or has_work(run.rounds.work)
    try:
        with keep_elapsed(run.rounds.work, started=run.rounds.started):
            try:
                _make(run, work, fingerprint=fingerprint)
            except ExchangeError as error:  # files between rounds are damaged or gone
                if committed(run.artifact):
                    raise  # another run was done first and removed them
                run.tell(f"{run.stage} starts anew: {error}")
                remove_tree(run.rounds.work, keep=(LEASE,))
                _make(replace(run, rounds=_restarted(run)), work, fingerprint=fingerprint)
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


def _restarted(run: StageRun) -> RoundRunner:
    rounds = run.rounds
    earlier = time.monotonic() - rounds.started
    return RoundRunner(rounds.work, rounds.scheduler, rounds.progress, artifact=run.artifact, earlier=earlier)


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
        timings={"rounds": rounds, "seconds": time.monotonic() - run.rounds.started, **run.rounds.remarks},
        versions=dict(made.versions),
        code=run.resolved.code_of(run.stage),
        made_of=_digests_of(run.inputs),
    )
    commit(run.folder, manifest)
    if run.attempt:
        claim(run.artifact, work=run.rounds.work, attempt=run.attempt)


def _digests_of(inputs: Mapping[str, Artifact]) -> dict[str, str]:
    return {need: artifact.manifest.digest for need, artifact in inputs.items()}


def _check_inputs(artifact: str, manifest: Manifest, inputs: Mapping[str, Artifact]) -> None:
    """Raise StorageError if an artifact was made from inputs other than the present ones.

    A training that is repeated, after its artifact was deleted, may give another model under the same fingerprint.
    """
    now = _digests_of(inputs)
    for need, digest in manifest.made_of.items():
        if now.get(need, digest) != digest:
            raise StorageError(
                f"was made from another result of {need} (digest {digest[:12]}) than the present one "
                f"({now[need][:12]}), which was made again since",
                where=artifact,
                fix="Delete this folder and run again.",
            )


def elapsed_before(work: str) -> float:
    """Return the seconds of earlier attempts in a work folder; 0 if they are not recorded."""
    try:
        return float(read_document(join(work, ELAPSED), fix="")[_KEY])
    except (StorageError, KeyError, TypeError, ValueError):
        return 0.0


def has_work(work: str) -> bool:
    """Return whether tasks left anything in a work folder."""
    ignored = (LEASE, ELAPSED, INPUTS)  # also under their temporary names, which contain these
    return any(not any(each in name for each in ignored) for name in list_names(work))


@contextmanager
def work_on(work: str, digests: dict[str, str]) -> Iterator[None]:
    """Work in a folder on artifacts with these digests, by stage; first delete earlier work on other artifacts.

    The record of the digests is removed again if nothing was done.
    """
    where = join(work, INPUTS)
    try:
        held: dict[str, Any] | None = read_document(where, fix="")
    except StorageError:  # a new folder, or one of an earlier version
        held = None
    if held not in (None, digests):
        remove_tree(work, keep=(LEASE,))
    if held != digests:
        write_document(where, digests, durable=False)
    try:
        yield
    finally:
        with suppress(OSError, StorageError):
            if not has_work(work):
                remove_file(where)


@contextmanager
def keep_elapsed(work: str, *, started: float) -> Iterator[None]:
    """Write the seconds since `started` (by `monotonic`) to a work folder, while the block runs and at its end.

    A kill loses only the last few seconds. Nothing is written before tasks leave work for a next attempt.
    """
    stop = threading.Event()

    def write() -> None:
        with suppress(OSError, StorageError):  # a figure is no reason to fail
            if has_work(work):
                write_document(join(work, ELAPSED), {_KEY: time.monotonic() - started}, durable=False)

    def write_until_stopped() -> None:
        while not stop.wait(_WRITE_SECONDS):
            write()

    writer = threading.Thread(target=write_until_stopped, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()
        write()
