"""Trains on the ranks of a Dask cluster, and starts them again when one is lost.

Each rank is one task, pinned to one worker that no other rank has. They are one unit: where one dies, cannot be reached
or does not come in time, all of them end, and begin again from the last checkpoint on the workers that are there then.
The log and the result name the rank and the reason. Errors of the job itself end the run as they would on one rank.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnflow.graph.errors import ClusterError
from gnnflow.graph.run_facts import RankAttempt
from gnnflow.train.ranks.attempt import LOOK_SECONDS, PREFIX, Attempt, RankFailedError, WorkerTakenError
from gnnflow.train.ranks.busy_workers import busy_workers
from gnnflow.train.ranks.operations import RankLostError
from gnnflow.train.ranks.patience import Patience
from gnnflow.train.ranks.scheduler import needing_scheduler

if TYPE_CHECKING:
    from distributed import Client

    from gnnflow.mapreduce.fit_workers import FitWorkers
    from gnnflow.progress import Progress
    from gnnflow.train.job import TrainJob
    from gnnflow.train.source import OpenSource
    from gnnflow.train.trainer import TrainResult

_TAKEN_SECONDS = 2.0
"""Within so long after another training took a worker this one looks for others."""


@dataclass(frozen=True)
class Trained:
    """Rank 0's result, and how the ranks fared until then."""

    result: TrainResult
    attempts: tuple[RankAttempt, ...]


def train_on_ranks(
    job: TrainJob,
    client: Client,
    *,
    progress: Progress,
    fit: FitWorkers | None = None,
    open_source: OpenSource | None = None,
) -> Trained:
    """Train on `train.workers` ranks, one on each of as many workers of the cluster.

    fit: finds the workers that may get a rank; None where this process started all of them.

    Raises ClusterError where there are too few workers, where ranks are lost more often than `train.restarts`, and
    where one is stuck, SchedulerLostError where the scheduler is gone, and what a rank raises about the job itself.
    """
    attempts: list[RankAttempt] = []
    try:
        with needing_scheduler(client):
            return _run_attempts(job, client, attempts, progress=progress, fit=fit, open_source=open_source)
    except RankFailedError as failed:
        raise failed.raised from None


def _run_attempts(
    job: TrainJob,
    client: Client,
    attempts: list[RankAttempt],
    *,
    progress: Progress,
    fit: FitWorkers | None,
    open_source: OpenSource | None,
) -> Trained:
    busy: list[str] = []
    while True:
        workers, others = _workers_for(job, client, busy=busy, progress=progress, fit=fit)
        access = "" if fit is None else fit.access.name
        attempt = Attempt(
            job, client, progress=progress, workers=workers, others=others, open_source=open_source, access=access
        )
        try:
            result = attempt.run()
        except WorkerTakenError as error:  # two trainings chose it at once: one of them looks again
            progress.message(f"train: {error}; looks for others")
            time.sleep(random.uniform(0, _TAKEN_SECONDS))  # noqa: S311 - so that both do not look at once again
        except RankLostError as error:
            attempts.append(RankAttempt(len(workers), error.problem))
            if len(attempts) > job.train.restarts:
                raise _attempts_error(attempts) from error
            progress.message(f"{error.problem}; the ranks begin again from the last checkpoint")
        else:
            return Trained(result, (*attempts, RankAttempt(len(workers))))
        busy = [*busy, *attempt.busy]


def _attempts_error(attempts: Sequence[RankAttempt]) -> ClusterError:
    return ClusterError(
        f"ranks were lost {len(attempts)} times; the last time: {attempts[-1].lost}",
        where="train.restarts",
        fix="The last checkpoint is kept. Check the workers (memory, network, time to start) and run again.",
    )


class _Workers(NamedTuple):
    """A worker for each rank, and those left over."""

    ranks: list[str]
    others: list[str]


def _workers_for(
    job: TrainJob, client: Client, *, busy: Sequence[str], progress: Progress, fit: FitWorkers | None = None
) -> _Workers:
    """Return a worker for each rank, idle ones first, and those left over.

    busy: workers that computed a rank of an earlier attempt when that ended. fit: see `train_on_ranks`.

    Raises ClusterError where too few come in time.
    """
    asked, patience, said = job.train.workers, Patience(job.train.start_seconds), False
    while True:
        there: dict[str, Any] = client.processing()
        if fit is not None:
            able = client.sync(fit.look, asked)
            there = {each: keys for each, keys in there.items() if each in able}
        busy = busy_workers(client, [each for each in busy if each in there], PREFIX)
        idle = {each: keys for each, keys in there.items() if each not in busy}
        free = {each: keys for each, keys in idle.items() if not any(str(key).startswith(PREFIX) for key in keys)}
        if len(free) >= asked:
            found = sorted(free, key=lambda each: (len(free[each]), each))
            return _Workers(found[:asked], found[asked:])
        if patience.is_over():
            break
        if not said:
            progress.message(f"train: {asked} ranks wait for workers, {len(free)} of {len(there)} are free")
            said = True
        time.sleep(LOOK_SECONDS)
    if job.train.elastic and free:
        progress.message(f"train: goes on with {len(free)} ranks instead of {asked}, on the workers that are there")
        return _Workers(sorted(free), [])
    advice = (
        "Start more workers, or wait for those that others use."
        if job.train.elastic
        else "Start more workers, ask for fewer ranks, or set train.elastic to true."
    )
    raise ClusterError(
        f"{asked} ranks need as many workers, and after {job.train.start_seconds:g} s {len(free)} of {len(there)} are "
        "free",
        where="train.workers",
        fix=advice if fit is None else f"{advice}{fit.unfit_text()}",
    )
