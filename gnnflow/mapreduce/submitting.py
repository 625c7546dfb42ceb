"""Submits tasks to a Dask cluster. No other module does, so each task says where it may run.

Dask knows workers by their addresses. A process that a nanny starts again, or another machine's at the same address,
was not asked whether it can run our tasks, and holds no access to the storage. So a task that is meant for fit workers
also names the access of its run. A process that does not hold it sends the task back to Dask unopened, until somebody
has asked it or another worker takes the task.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from gnnflow.mapreduce.preflight import by_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from distributed import Client, Future

PREFIX = "gnnflow-"
"""What the keys of all our tasks begin with, on any cluster."""


def submit(
    client: Client,
    function: Callable[..., Any],
    *given: Any,
    key: str,
    workers: Collection[str] | None,
    access: str = "",
    actor: bool = False,
) -> Future[Any]:
    """Submit one task.

    workers: those it may run on; None where this process started all of them. access: the name of what the process that
    runs it has to hold, empty where any process of these workers may.
    """
    if access:
        function, given = _guarded(access, function, given), ()
    future: Future[Any] = client.submit(
        function, *given, key=key, pure=False, retries=0, actor=actor, **_places(workers)
    )
    return future


def submit_all(
    client: Client,
    function: Callable[[Any], Any],
    values: Sequence[Any],
    *,
    workers: Collection[str] | None,
    access: str = "",
) -> list[Future[Any]]:
    """Submit a task for each value."""
    stem = f"{PREFIX}task-{getattr(function, '__name__', 'part')}-{uuid.uuid4().hex[:12]}"
    keys = [f"{stem}-{number}" for number in range(len(values))]
    if access:
        function = _guarded(access, function)
    futures: list[Future[Any]] = client.map(function, list(values), key=keys, pure=False, retries=0, **_places(workers))
    return futures


def _guarded(access: str, function: Callable[..., Any], given: Sequence[Any] = ()) -> Callable[..., Any]:
    """Return a task that runs a function where an access is held. It names no module of ours until then."""
    from distributed.protocol.pickle import dumps

    return partial(by_value(_begin), access, dumps((function, tuple(given))))


def _begin(access: str, packed: bytes, *rest: Any) -> Any:
    """On a worker: run a packed function if this process holds an access, else let Dask send the task again."""
    import sys
    import time

    from distributed import Reschedule
    from distributed.protocol.pickle import loads

    holding = sys.modules.get("gnnflow.storage.access")
    if holding is None or holding.held(access) is None:
        time.sleep(0.5)  # else it would come back at once
        raise Reschedule
    function, given = loads(packed)
    return function(*given, *rest)


def _places(workers: Collection[str] | None) -> dict[str, Any]:
    return {} if workers is None else {"workers": sorted(workers), "allow_other_workers": False}


async def restart_if_ours(client: Client, worker: str, *, seconds: float) -> str:
    """Restart a worker whose task cannot be stopped otherwise, and return why that was not done; nothing if it was.

    A worker that computes or holds something of another tenant is left alone.
    """
    computed: Any = await client.processing([worker])
    held: Any = await client.has_what([worker])
    if any(not str(key).startswith(PREFIX) for found in (computed, held) for key in found.get(worker, ())):
        return "work of others is there"
    try:
        await client.restart_workers([worker], timeout=seconds, raise_for_error=False)
    except ValueError:  # Dask's answer where a worker has no nanny
        return "it has no nanny to restart it"
    return ""
