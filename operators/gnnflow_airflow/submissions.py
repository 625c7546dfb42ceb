"""Submissions to a Dask cluster: a stage's driver under a name of its own, that outlives its submitter.

A submission's future is published, so it lives on when the client goes: Airflow may lose the worker, the triggerer or
the scheduler and come back to it by name. All that is read of it is its state and its events, which are plain text and
numbers; results and exceptions of the cluster are never unpickled here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnflow.remote.driver import drive
from gnnflow.remote.task_log import SECONDS_BETWEEN

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
_WORKERS_DIED = {"kind": "failed", "error": "the workers that ran this stage kept dying", "hopeless": False}
_NO_WORKERS = {
    "kind": "failed",
    "error": f"the Dask cluster has had no workers for {_NO_WORKERS_SECONDS:.0f} s; start some, a retry resumes",
    "hopeless": False,
}
LOST = {"kind": "lost", "error": "the Dask cluster no longer knows this submission"}


def new_name(stage: str) -> str:
    """Return a name never used before: a cleared task must not meet what its predecessor is just cancelling."""
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
class Submission:
    """A stage's driver under a name: the config as plain values is all it needs."""

    name: str
    stage: str
    config: dict[str, Any]


async def run(
    client: Client, submission: Submission, *, say: Callable[[str], None], seconds: float = SECONDS_BETWEEN
) -> Any:
    """Submit it unless the cluster has it already, wait until it ends and return its last event."""
    if not await is_known(client, submission.name):
        await submit(client, submission)
        say(f"submitted {submission.name}")
    return await watch(client, submission.name, say=say, seconds=seconds)


async def submit(client: Client, submission: Submission) -> None:
    """Start the stage's driver."""
    name = submission.name
    future = client.submit(drive, submission.stage, submission.config, name, key=name, pure=False)
    await client.publish_dataset(future, name=name)


async def is_known(client: Client, name: str) -> bool:
    """Return whether the cluster still has a submission: waiting, running or ended."""
    return name in await client.list_datasets()


async def watch(client: Client, name: str, *, say: Callable[[str], None], seconds: float = SECONDS_BETWEEN) -> Any:
    """Wait until a submission ends and return its last event; its progress goes to `say` every few seconds.

    One that the cluster does not know (a new scheduler, or it was cancelled) gives LOST.
    """
    scheduler: Any = client.scheduler  # None only before a client is connected
    said, spoken, workers_seen = 0, 0.0, time.monotonic()
    try:
        # A status is None where the scheduler has never heard of the name.
        while (status := (await scheduler.get_task_status(keys=[name]))[name]) in _UNDER_WAY:
            if not await is_known(client, name):
                break
            if time.monotonic() - spoken >= seconds:
                said, spoken = await _speak(client, name, said, say), time.monotonic()
            if await scheduler.ncores():
                workers_seen = time.monotonic()
            elif time.monotonic() - workers_seen > _NO_WORKERS_SECONDS:
                await cancel(client, name, say=say)
                return _NO_WORKERS
            await asyncio.sleep(_LOOK_SECONDS)
        if status not in _ENDED:
            return LOST
        await _speak(client, name, said, say)
        ended = [event for event in await _events(client, name) if event["kind"] in _LAST_WORDS]
        await client.unpublish_dataset(name)
    except OSError:
        return LOST
    return ended[-1] if ended else _WORKERS_DIED


async def cancel(client: Client, name: str, *, say: Callable[[str], None]) -> None:
    """Stop a submission and free its worker.

    The driver stops at its next progress event. Where it does not within a few seconds its worker is restarted: its
    nanny brings up an empty one, and tasks of others that ran there are run again by Dask.
    """
    from distributed import Future

    if not await is_known(client, name):
        return
    worker = next((worker for worker, keys in (await client.processing()).items() if name in keys), None)
    await client.cancel([Future(name, client=client)], force=True)
    await client.unpublish_dataset(name)
    if worker is None or await _stopped(client, name):
        say(f"stopped {name}")
        return
    try:
        await client.restart_workers([worker], timeout=_CONNECT_SECONDS, raise_for_error=False)
        say(f"stopped {name} by restarting its worker {worker}")
    except ValueError as error:
        say(f"{name} is cancelled, but its worker {worker} has no nanny to restart it: {error}")


async def _stopped(client: Client, name: str) -> bool:
    end = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < end:
        if any(event["kind"] in _LAST_WORDS for event in await _events(client, name)):
            return True
        await asyncio.sleep(_LOOK_SECONDS)
    return False


async def _events(client: Client, name: str) -> list[Any]:
    return [event for _, event in await client.get_events(name)]


async def _speak(client: Client, name: str, said: int, say: Callable[[str], None]) -> int:
    """Say the progress lines not yet said and return how many events there are."""
    events = await _events(client, name)
    for event in events[said:]:
        if event["kind"] == "progress":
            say(event["line"])
    return len(events)
