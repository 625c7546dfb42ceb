"""Submissions to a Dask cluster: a stage's driver under a unique name, which outlives its submitter.

A submission's future is published, so it survives its client: Airflow may lose the worker, the triggerer or the
scheduler and find the submission again by name. Only its state and its events are read, which are plain text and
numbers; results and exceptions of the cluster are never unpickled here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce.fit_workers import FitWorkers, asked_of
from gnnflow.mapreduce.submitting import PREFIX, restart_if_ours
from gnnflow.mapreduce.submitting import submit as submit_task
from gnnflow.progress import never
from gnnflow.remote.driver import drive
from gnnflow.remote.handover import ABANDONED, HANDED_OVER, TAKEN_OVER, topic_of
from gnnflow.remote.task_log import SECONDS_BETWEEN
from gnnflow.storage.access import narrowed
from gnnflow.storage.documents import digest_of
from gnnflow_airflow.attempts import this_process
from gnnflow_airflow.driver_watch import DriverWatch

if TYPE_CHECKING:
    from distributed import Client, Security

    from gnnflow.storage.access import Access

Result = TypeVar("Result")

_CONNECT_SECONDS = 15.0
_LOOK_SECONDS = 0.5
_FIRST_LOOK_SECONDS = 0.05  # doubled until it is that: short stages end soon, and long ones are not asked too often
_GRACE_SECONDS = 3.0  # Airflow kills the process of a stopped task after 5
_NO_WORKERS_SECONDS = float(os.environ.get("GNNFLOW_NO_WORKERS_SECONDS", "600"))  # an autoscaler may need minutes
_SILENT_SECONDS = 10.0  # without workers or an answer, before the log tells
_STRANDINGS = 3  # as many lost workers does Dask allow a task
_LOST_SECONDS = 60.0  # a scheduler may be busy for a while
_HANDOVER_SECONDS = 15.0  # a trigger starts within two or three
_LAST_WORDS = ("finished", "failed", "stopped", ABANDONED)
_SUBMITTED = "submitted"
_CONNECTED = {"running", "connecting"}  # a client that has a scheduler, and one that looks for it again
_WAITING, _LEFT = "waiting", "left"

_UNDER_WAY = {"released", "waiting", "no-worker", "queued", "processing"}
_ENDED = {"memory", "erred"}
_WORKERS_DIED = {
    "kind": "failed",
    "error": "the workers that ran this stage kept dying, most often of short memory: see their own logs. Give them "
    "more, or raise graph.partitions; a retry resumes",
    "hopeless": False,
}
_NO_WORKERS = {
    "kind": "failed",
    "error": f"the Dask cluster has had no workers for {_NO_WORKERS_SECONDS:.0f} s. Start some, or see in their own "
    "logs why they ended; a retry resumes",
    "hopeless": False,
}
_STOPPED = {"kind": "stopped", "error": "it was stopped"}
_STRANDED = {
    "kind": "lost",
    "error": "the workers that could run this stage are gone; hands it to others that can, where it resumes. Nothing "
    "to do; if it repeats, see their own logs",
}
_ABANDONED = {"kind": "lost", "error": "it had stopped, since nobody waited for it; submits it again"}
_UNANSWERED = {"kind": "lost", "error": "the Dask scheduler does not answer any more"}
LOST = {"kind": "lost", "error": "the Dask cluster no longer knows this submission"}
UNFINISHED = {"kind": "unfinished"}
"""What `run` returns in place of a last event when its patience is over."""


def new_name(label: str) -> str:
    """Return a new, unique name, so that a cleared task never meets the submission that its predecessor cancels."""
    return f"{PREFIX}{label}-{uuid.uuid4().hex[:12]}"


def _digest(config: dict[str, Any]) -> str:
    return digest_of(config)[:12]


@contextlib.asynccontextmanager
async def connect(address: str, security: Security | None = None, *, seconds: float = _CONNECT_SECONDS) -> Any:
    """Connect to a Dask scheduler. Raises ClusterError if none answers."""
    from distributed import Client
    from distributed.versions import VersionMismatchWarning

    # Dask warns of each worker of other versions, used or not; we ask them ourselves and use those that are fit.
    warnings.filterwarnings("ignore", category=VersionMismatchWarning)
    try:
        client = await Client(address, asynchronous=True, timeout=seconds, security=security)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers ({type(error).__name__})",
            where=address,
            fix="Check the connection `dask` or cluster.address, and that the scheduler runs.",
        ) from error
    try:
        yield client
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            await client.close()


@dataclass(frozen=True)
class Submission:
    """A stage's driver with a config of plain values; its name holds the stage and a digest of them.

    marker: a file of the workspace that fit workers can read; empty where nobody could write one. asked: keys of the
    config's section `cluster` that the connection sets. access: to the storage, for the workers.
    """

    name: str
    stage: str
    config: dict[str, Any]
    marker: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)
    access: Access | None = field(default=None, repr=False)

    @staticmethod
    def new(
        stage: str,
        config: dict[str, Any],
        *,
        marker: str = "",
        asked: Mapping[str, Any] | None = None,
        access: Access | None = None,
    ) -> Submission:
        """Return a submission under a new name."""
        return Submission(new_name(f"{stage}-{_digest(config)}"), stage, config, marker, asked or {}, access)

    def has_work_of(self, name: str) -> bool:
        """Return whether the submission of this name runs the same stage with the same config."""
        return name.startswith(f"{PREFIX}{self.stage}-{_digest(self.config)}-")


@dataclass
class WorkerWait:
    """A clock for the time that a cluster has no workers; it reports a longer wait once."""

    say: Callable[[str], None]
    since: float = field(default_factory=time.monotonic)
    reported: bool = False

    def is_over(self, *, workers: int) -> bool:
        """Take the number of workers; return whether the wait for the first one has taken too long."""
        if workers:
            self.since, self.reported = time.monotonic(), False
            return False
        waited = time.monotonic() - self.since
        if waited > _SILENT_SECONDS and not self.reported:
            self.say(
                f"the Dask cluster has no workers; waits for one for at most {_NO_WORKERS_SECONDS:.0f} s, then fails. "
                "Start some, or see in their own logs why they ended; finished work is kept"
            )
            self.reported = True
        return waited > _NO_WORKERS_SECONDS


async def run(
    client: Client,
    submission: Submission,
    *,
    say: Callable[[str], None],
    seconds: float = SECONDS_BETWEEN,
    stopped: Callable[[], bool] = never,
    patience: float = math.inf,
) -> Any:
    """Submit unless the cluster has the submission already, wait until it ends, and return its last event.

    It is submitted to fit workers alone, not before there are some, and not once `stopped` is true. Where these are all
    lost it is submitted again, to others. patience: seconds after which UNFINISHED is returned and the submission left
    to the next who waits for it; where nobody does, its driver stops.
    """
    stranded, until = 0, time.monotonic() + patience
    fit, event = fit_workers(client, submission, say=say), None
    try:
        await _sign_on(client, submission.name, say)
        while True:
            event = await _begin(client, submission, fit, say=say, stopped=stopped, until=until)
            if event is None:
                async with fit.kept():
                    event = await watch(client, submission.name, say=say, seconds=seconds, stopped=stopped, until=until)
            if event is _STRANDED and (stranded := stranded + 1) > _STRANDINGS:
                event = _WORKERS_DIED
            if event is not _STRANDED and event is not _ABANDONED:
                return event
            say(event["error"])
    except ClusterError as error:
        return {"kind": "failed", "error": str(error), "hopeless": False}
    except OSError:
        say(_UNANSWERED["error"])
        return _UNANSWERED
    finally:
        if event is not UNFINISHED:  # else the access to the storage too is left to who waits next
            await fit.release()
        await _sign_off(client, submission.name)


async def _begin(
    client: Client,
    submission: Submission,
    fit: FitWorkers,
    *,
    say: Callable[[str], None],
    stopped: Callable[[], bool],
    until: float,
) -> Any:
    """Take over what the cluster has under this name, or submit it once there are fit workers.

    Returns an event where it is not submitted, else None.
    """

    def given_up() -> bool:
        return stopped() or time.monotonic() >= until

    if await _answer(say, is_known, client, submission.name):
        await client.log_event(topic_of(submission.name), {"kind": TAKEN_OVER})
        return None
    # looked for again after the wait, since workers may be lost meanwhile
    while not (workers := await fit.wait(stopped=stopped)) and not given_up():
        if not await _has_workers(client, say, given_up):
            return _NO_WORKERS
    if stopped():
        return _STOPPED
    if not workers:
        return UNFINISHED
    await submit(client, submission, workers=workers)
    say(f"submitted {submission.name}")
    return None


def fit_workers(client: Client, submission: Submission, *, say: Callable[[str], None]) -> FitWorkers:
    """Return the finder of workers that may run a submission; whoever waits for it hands out the same access."""
    scheduler: Any = client.scheduler
    asked = asked_of(submission.config, scheduler.address, submission.asked)
    access = narrowed(submission.name, submission.config, [submission.access] if submission.access else [])
    return FitWorkers(client, asked, marker=submission.marker, say=say, access=access)


async def submit(client: Client, submission: Submission, *, workers: Collection[str]) -> None:
    """Start the stage's driver on one of some workers, in a process that holds the submission's access."""
    name = submission.name
    given = submission.stage, submission.config, name, dict(submission.asked)
    await client.log_event(name, {"kind": _SUBMITTED})
    await client.log_event(topic_of(name), {"kind": TAKEN_OVER})  # else an old handover would end this driver too
    future = submit_task(client, drive, *given, key=name, workers=workers, access=name)
    with contextlib.suppress(KeyError):  # another triggerer, which assumed that this one is dead, was first
        await client.publish_dataset(future, name=name)


async def is_known(client: Client, name: str) -> bool:
    """Return whether the cluster still has a submission: waiting, running or ended."""
    return name in await client.list_datasets()


async def watch(
    client: Client,
    name: str,
    *,
    say: Callable[[str], None],
    seconds: float,
    stopped: Callable[[], bool],
    until: float = math.inf,
) -> Any:
    """Wait until a submission ends and return its last event; its progress goes to `say` every few seconds.

    It is cancelled once `stopped` is true, since a cancellation may have come before the cluster knew its name. After
    `until`, on the monotonic clock, it is handed over and UNFINISHED returned. Returns LOST if the cluster does not
    know it (a new scheduler, or it was cancelled). Raises OSError if the scheduler does not answer.
    """
    said, spoken, wait, pauses, driver = 0.0, 0.0, WorkerWait(say), _pauses(), DriverWatch(say)
    while (status := await _answer(say, _status, client, name)) in _UNDER_WAY:
        if stopped():
            await cancel(client, name, say=say)
            return _STOPPED
        if time.monotonic() >= until:
            await client.log_event(topic_of(name), {"kind": HANDED_OVER, "seconds": _HANDOVER_SECONDS})
            return UNFINISHED
        if not await _answer(say, is_known, client, name):
            break
        if time.monotonic() - spoken >= seconds:
            said, spoken = await _answer(say, _report, client, name, said, say), time.monotonic()
        workers = await _answer(say, _workers, client)
        driver.look(workers)
        if not driver.worker and status == "processing":
            driver.found(await _answer(say, _worker_of, client, name))
        if status == "no-worker" and workers:
            await cancel(client, name, say=say)
            return _STRANDED
        if wait.is_over(workers=len(workers)):
            await cancel(client, name, say=say)
            return _NO_WORKERS
        await asyncio.sleep(min(next(pauses), max(until - time.monotonic(), 0)))
    if status not in _ENDED:
        say(LOST["error"])
        return LOST
    await _report(client, name, said, say)
    return await _end(client, name, say)


async def _end(client: Client, name: str, say: Callable[[str], None]) -> Any:
    """Let the cluster forget a submission that has ended, and return its last event."""
    ended = [event for _, event in await _events(client, name) if event["kind"] in _LAST_WORDS]
    if ended and ended[-1]["kind"] == ABANDONED:
        await cancel(client, name, say=say)  # at once, since another is to have its name
        return _ABANDONED
    await client.unpublish_dataset(name)
    return ended[-1] if ended else _WORKERS_DIED


def _pauses() -> Iterator[float]:
    """Yield the seconds between looks at a submission."""
    for doublings in itertools.count():
        yield min(_FIRST_LOOK_SECONDS * 2**doublings, _LOOK_SECONDS)


async def _answer(
    say: Callable[[str], None], question: Callable[..., Coroutine[Any, Any, Result]], client: Client, *rest: Any
) -> Result:
    """Return the scheduler's answer to a question; report a long wait for it. Raises OSError if none comes."""
    asked = asyncio.ensure_future(_ask(question, client, *rest))
    try:
        done, _ = await asyncio.wait({asked}, timeout=_SILENT_SECONDS)
        if not done:
            say(
                f"the Dask scheduler has not answered for {_SILENT_SECONDS:.0f} s; waits at most "
                f"{_LOST_SECONDS:.0f} s, then submits the stage again, which resumes. Restart the scheduler if it does "
                "not run"
            )
        return await asyncio.wait_for(asked, timeout=_LOST_SECONDS)
    finally:
        asked.cancel()


async def _ask(question: Callable[..., Coroutine[Any, Any, Result]], client: Client, *rest: Any) -> Result:
    """Return the answer to a question, which is put again while a client that lost its scheduler looks for it."""
    while True:
        try:
            return await question(client, *rest)
        except OSError:
            await asyncio.sleep(_LOOK_SECONDS)
            if client.status not in _CONNECTED:
                raise


async def _has_workers(client: Client, say: Callable[[str], None], stopped: Callable[[], bool]) -> bool:
    """Wait for the cluster's first worker, unless stopped; return False if none comes."""
    wait, probe = WorkerWait(say), None
    try:
        while not await _answer(say, _workers, client) and not stopped():
            if wait.is_over(workers=0):
                return False
            # A cluster that scales with its waiting tasks starts a worker for this task.
            probe = probe or submit_task(client, int, key=new_name("lure"), workers=None)
            await asyncio.sleep(_LOOK_SECONDS)
        return True
    finally:
        if probe is not None and client.status in _CONNECTED:
            await client.cancel([probe], force=True)


async def _workers(client: Client) -> Collection[str]:
    scheduler: Any = client.scheduler  # None only before a client is connected
    found: dict[str, int] = await scheduler.ncores()
    return found


async def _sign_on(client: Client, name: str, say: Callable[[str], None]) -> None:
    """Note in a submission's events who waits for it, and tell the log where somebody did and never left."""
    events = await _answer(say, _all_events, client, name)
    before = [event for event in events if event["kind"] in {_WAITING, _LEFT}]
    me = this_process()
    if before and before[-1]["kind"] == _WAITING and await is_known(client, name):
        say(
            f"{before[-1]['by']}, which waited for {name}, is gone, and {me} waits for it now. Nothing was lost and "
            "nothing is to be done; if it repeats, see why Airflow's triggerer ends"
        )
    await client.log_event(name, {"kind": _WAITING, "by": me})


async def _sign_off(client: Client, name: str) -> None:
    """Note in a submission's events that whoever waited for it has left, unless its scheduler is lost."""
    if client.status == "running":
        with contextlib.suppress(OSError):  # a TimeoutError too
            await asyncio.wait_for(client.log_event(name, {"kind": _LEFT}), timeout=_GRACE_SECONDS)


async def _status(client: Client, name: str) -> str | None:
    """Return the state of a submission's task; None if the scheduler does not know it."""
    scheduler: Any = client.scheduler
    found: str | None = (await scheduler.get_task_status(keys=[name]))[name]
    return found


async def cancel(client: Client, name: str, *, say: Callable[[str], None]) -> None:
    """Stop a submission and free its worker.

    The driver stops at its next progress event. If it does not within a few seconds, its worker is restarted by its
    nanny, unless others work there too.
    """
    from distributed import Future

    if not await is_known(client, name):
        return
    worker = await _worker_of(client, name)
    await client.cancel([Future(name, client=client)], force=True)
    await client.unpublish_dataset(name)
    if worker is None or await _stopped(client, name):
        say(f"stopped {name}")
        return
    why = await restart_if_ours(client, worker, seconds=_CONNECT_SECONDS)
    if why:
        say(f"{name} is cancelled, but may still run on its worker {worker}, which is not restarted: {why}")
    else:
        say(f"stopped {name} by restarting its worker {worker}")


async def _worker_of(client: Client, name: str) -> str | None:
    return next((worker for worker, keys in (await client.processing()).items() if name in keys), None)


async def _stopped(client: Client, name: str) -> bool:
    end = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < end:
        if any(event["kind"] in _LAST_WORDS for _, event in await _events(client, name)):
            return True
        await asyncio.sleep(_LOOK_SECONDS)
    return False


async def _all_events(client: Client, name: str) -> list[Any]:
    return [event for _, event in await client.get_events(name)]


async def _events(client: Client, name: str) -> list[tuple[float, Any]]:
    """Return the events since a submission was last submitted, with their moments by the scheduler's clock."""
    events = list(await client.get_events(name))
    begins = [at for at, (_, event) in enumerate(events) if event["kind"] == _SUBMITTED]
    return events[begins[-1] :] if begins else events


async def _report(client: Client, name: str, said: float, say: Callable[[str], None]) -> float:
    """Report the progress lines after a moment, and return the last event's moment.

    Moments, not numbers of events: Dask keeps a thousand of these and forgets the first ones of a long stage.
    """
    events = await _events(client, name)
    for moment, event in events:
        if moment > said and event["kind"] == "progress":
            say(event["line"])
    return events[-1][0] if events else said
