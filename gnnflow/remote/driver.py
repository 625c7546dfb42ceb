"""The driver of a stage, on a Dask worker or in the task's own process.

On a worker the driver is one task that starts the stage's tasks through the worker's own client. It returns nothing: it
reports events of plain text and numbers under the submission's name, so that reading them unpickles nothing, and a
client that comes back later still finds them. A thread cannot be interrupted, so the driver checks at every progress
event whether its task was cancelled.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from gnnflow.config import Config, config_from_dict
from gnnflow.graph.errors import ClusterError, GnnflowError, MachineError
from gnnflow.progress import never
from gnnflow.remote.handover import ABANDONED, Handover, topic_of
from gnnflow.remote.task_log import Stopped, TaskLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distributed import Client

    from gnnflow.mapreduce.fit_workers import FitWorkers
    from gnnflow.mapreduce.schedulers import Scheduler
    from gnnflow.stages.resolve import ResolvedRun

Result = TypeVar("Result")

PASSING = (ClusterError, MachineError)
"""The errors of a stage that a later attempt may not meet: what failed is no part of its config and tables."""


@dataclass(frozen=True)
class Watched:
    """A scheduler that stops starting tasks when the work is no longer wanted."""

    scheduler: Scheduler
    log: TaskLog

    @property
    def on_this_machine(self) -> bool:
        """True if the scheduler's tasks all run on this machine."""
        return self.scheduler.on_this_machine

    def run(self, function: Callable[[int], Result], indices: Sequence[int]) -> Iterator[Result]:
        """Yield results as they become ready. Raises Stopped, which cancels the tasks not yet started."""
        from gnnflow.mapreduce.rounds import TaskRecord

        self.log.check()
        for result in self.scheduler.run(function, indices):
            self.log.check()
            if isinstance(result, TaskRecord):
                self.log.count_memory(result.peak_bytes)
            yield result

    def dask_client(self) -> Client | None:
        """Return the scheduler's Dask client. Raises Stopped where the work is no longer wanted."""
        self.log.check()
        return self.scheduler.dask_client()

    def fit_workers(self) -> FitWorkers | None:
        """Return the scheduler's finder of workers that may get tasks."""
        return self.scheduler.fit_workers()


def run_here(
    stage: str, config: Config, *, say: Callable[[str], None], stopped: Callable[[], bool] = never
) -> dict[str, Any]:
    """Run a stage in this process, on the cluster that the command line would choose, and return its outcome."""
    from gnnflow.stages.base import resolve_here
    from gnnflow.stages.entry import cluster_of

    log = TaskLog(say, stopped=stopped)
    run = resolve_here(config)
    with cluster_of(run, say=log.message) as cluster:
        return _run(stage, run, Watched(cluster, log), log)


def outcome_if_done(stage: str, config: Config, *, say: Callable[[str], None]) -> dict[str, Any] | None:
    """Return the outcome of a stage that is already done, None where it has work to do.

    Called before a stage is submitted: it reads a few small files and starts no cluster.
    """
    from gnnflow.stages.base import StageContext
    from gnnflow.stages.entry import perform
    from gnnflow.stages.running import is_done

    context = StageContext.of(config, progress=TaskLog(say))
    return perform(context, stage).summary() if is_done(context, stage) else None


def artifact_of(stage: str, config: Config) -> str:
    """Return the folder of a stage's artifact, whether or not it is made yet."""
    from gnnflow.stages.base import resolve_here

    return resolve_here(config).artifact(stage)


def drive(stage: str, content: Mapping[str, Any], name: str, asked: Mapping[str, Any]) -> None:
    """Run a stage from inside a Dask task and report under a submission's name.

    content: the config as values. asked: keys of its section `cluster` that the submitter sets. The access to the
    storage that this worker holds under the submission's name is handed on to all fit workers, as a part of it, until
    the stage has ended.
    """
    from distributed import get_worker, worker_client

    from gnnflow.mapreduce.fit_workers import FitWorkers, asked_of, marked
    from gnnflow.mapreduce.schedulers import Dask
    from gnnflow.stages.base import resolve_here
    from gnnflow.storage.access import part_of

    worker = get_worker()
    key = worker.get_current_task()
    handover: Handover | None = None

    def report(kind: str, **fields: Any) -> None:
        worker.log_event(name, {"kind": kind, **fields})

    def cancelled() -> bool:
        state = worker.state.tasks.get(key)
        is_gone = state is None or state.state in {"cancelled", "released", "forgotten"}
        return is_gone or (handover is not None and handover.check())

    log = TaskLog(lambda line: report("progress", line=line), stopped=cancelled)
    try:
        run = resolve_here(config_from_dict(content))
        with worker_client() as client, marked(run.config.workspace) as marker:
            handover = Handover(lambda: [event for _, event in client.get_events(topic_of(name))])
            cluster = asked_of(content, worker.scheduler.address, asked)
            fit = FitWorkers(client, cluster, marker=marker, say=log.message, access=part_of(name), code=run.code)
            try:
                report("finished", **_run(stage, run, Watched(Dask(client, fit=fit, say=log.message), log), log))
            finally:
                client.sync(fit.release)
    except Stopped:
        report(ABANDONED if handover is not None and handover.is_abandoned else "stopped")
    except GnnflowError as error:
        report("failed", error=str(error), hopeless=not isinstance(error, PASSING))
    except Exception as error:  # noqa: BLE001 - other errors are our bugs: the task log must show them, and a retry may help
        report("failed", error=f"{type(error).__name__}: {error}", hopeless=False, trace=traceback.format_exc())


def _run(stage: str, run: ResolvedRun, scheduler: Scheduler, log: TaskLog) -> dict[str, Any]:
    from gnnflow.mapreduce.rounds import peak_bytes
    from gnnflow.stages.base import StageContext
    from gnnflow.stages.entry import perform

    outcome = perform(StageContext(run, scheduler, log), stage).summary()
    log.count_memory(peak_bytes())
    log.outcome(stage, outcome)
    return outcome
