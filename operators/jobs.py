"""Jobs on a Dask cluster: a stage's driver under a name of its own, that outlives its submitter.

A job's future is published, so it lives on when the client goes: Airflow may lose the worker, the triggerer or the
scheduler and come back to it by name. All that is read of a job is its state and its events, which are plain text and
numbers; results and exceptions of the cluster are never unpickled here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from operators.driver import drive
from operators.progress import SECONDS_BETWEEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client, Security

_CONNECT_SECONDS = 15
_LOOK_SECONDS = 0.5
_GRACE_SECONDS = 4.0
_NO_WORKERS_SECONDS = 600.0  # time for an autoscaler to bring up the first
_LAST_WORDS = ("finished", "failed", "stopped")

_UNDER_WAY = {"released", "waiting", "no-worker", "queued", "processing"}
_ENDED = {"memory", "erred"}
_WORKERS_DIED = {"kind": "failed", "error": "the workers that ran this job kept dying", "hopeless": False}
_NO_WORKERS = {
    "kind": "failed",
    "error": f"the Dask cluster has had no workers for {_NO_WORKERS_SECONDS:.0f} s; start some, a retry resumes",
    "hopeless": False,
}
LOST = {"kind": "lost", "error": "the Dask cluster no longer knows this job"}


def new_job(stage: str) -> str:
    """Return a name no job had before: a cleared task must not meet the job its predecessor is just cancelling."""
    return f"gnnflow-{stage}-{uuid.uuid4().hex[:12]}"


@contextlib.asynccontextmanager
async def connect(address: str, security: Security | None = None) -> Any:
    """Connect to a Dask scheduler. Raises ClusterError where none answers."""
    from distributed import Client

    from gnnflow.graph.errors import ClusterError

    try:
        client = await Client(address, asynchronous=True, timeout=_CONNECT_SECONDS, security=security)
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
class Job:
    """A stage's driver under a name: the config as plain values is all it needs."""

    name: str
    stage: str
    config: dict[str, Any]


async def run(client: Client, job: Job, *, say: Callable[[str], None], seconds: float = SECONDS_BETWEEN) -> Any:
    """Start a job unless the cluster has it already, wait until it ends and return its last event."""
    if not await is_known(client, job.name):
        await submit(client, job)
        say(f"submitted {job.name}")
    return await watch(client, job.name, say=say, seconds=seconds)


async def submit(client: Client, job: Job) -> None:
    """Start a job."""
    future = client.submit(drive, job.stage, job.config, job.name, key=job.name, pure=False)
    await client.publish_dataset(future, name=job.name)


async def is_known(client: Client, job: str) -> bool:
    """Return whether the cluster still has a job: waiting, running or ended."""
    return job in await client.list_datasets()


async def watch(client: Client, job: str, *, say: Callable[[str], None], seconds: float = SECONDS_BETWEEN) -> Any:
    """Wait until a job ends and return its last event; its progress goes to `say` every few seconds.

    A job the cluster does not know (a new scheduler, a cancelled job) gives LOST.
    """
    said, spoken, workers_seen = 0, 0.0, time.monotonic()
    try:
        while (state := await _state(client, job)) in _UNDER_WAY and await is_known(client, job):
            if time.monotonic() - spoken >= seconds:
                said, spoken = await _speak(client, job, said, say), time.monotonic()
            if await _has_workers(client):
                workers_seen = time.monotonic()
            elif time.monotonic() - workers_seen > _NO_WORKERS_SECONDS:
                await cancel(client, job, say=say)
                return _NO_WORKERS
            await asyncio.sleep(_LOOK_SECONDS)
        if state not in _ENDED:
            return LOST
        await _speak(client, job, said, say)
        ended = [event for event in await _events(client, job) if event["kind"] in _LAST_WORDS]
        await client.unpublish_dataset(job)
    except OSError:
        return LOST
    return ended[-1] if ended else _WORKERS_DIED


async def _state(client: Client, job: str) -> str | None:
    """Return the scheduler's word for a job's state, None where it has never heard of it."""
    scheduler: Any = client.scheduler  # None only before a client is connected
    found = await scheduler.get_task_status(keys=[job])
    state: str | None = found[job]
    return state


async def cancel(client: Client, job: str, *, say: Callable[[str], None]) -> None:
    """Stop a job and free its worker.

    The driver stops at its next progress event. Where it does not within a few seconds its worker is restarted: its
    nanny brings up an empty one, and tasks of others that ran there are run again by Dask.
    """
    from distributed import Future

    if not await is_known(client, job):
        return
    worker = await _worker_of(client, job)
    await client.cancel([Future(job, client=client)], force=True)
    await client.unpublish_dataset(job)
    if worker is None or await _stopped(client, job):
        say(f"stopped {job}")
        return
    try:
        await client.restart_workers([worker], timeout=_CONNECT_SECONDS, raise_for_error=False)
        say(f"stopped {job} by restarting its worker {worker}")
    except ValueError as error:
        say(f"{job} is cancelled, but its worker {worker} has no nanny to restart it: {error}")


async def _stopped(client: Client, job: str) -> bool:
    end = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < end:
        if any(event["kind"] in _LAST_WORDS for event in await _events(client, job)):
            return True
        await asyncio.sleep(_LOOK_SECONDS)
    return False


async def _has_workers(client: Client) -> bool:
    scheduler: Any = client.scheduler
    return bool(await scheduler.ncores())


async def _worker_of(client: Client, job: str) -> str | None:
    for worker, keys in (await client.processing()).items():
        if job in keys:
            return str(worker)
    return None


async def _events(client: Client, job: str) -> list[Any]:
    return [event for _, event in await client.get_events(job)]


async def _speak(client: Client, job: str, said: int, say: Callable[[str], None]) -> int:
    """Say the progress lines not yet said and return how many events there are."""
    events = await _events(client, job)
    for event in events[said:]:
        if event["kind"] == "progress":
            say(event["line"])
    return len(events)
