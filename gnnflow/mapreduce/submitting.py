"""Submits tasks to a Dask cluster. No other module does, so each task says on which workers it may run."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

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
    actor: bool = False,
) -> Future[Any]:
    """Submit one task. workers: those it may run on; None where this process started all of them."""
    future: Future[Any] = client.submit(
        function, *given, key=key, pure=False, retries=0, actor=actor, **_places(workers)
    )
    return future


def submit_all(
    client: Client, function: Callable[[Any], Any], values: Sequence[Any], *, workers: Collection[str] | None
) -> list[Future[Any]]:
    """Submit a task for each value."""
    stem = f"{PREFIX}task-{getattr(function, '__name__', 'part')}-{uuid.uuid4().hex[:12]}"
    keys = [f"{stem}-{number}" for number in range(len(values))]
    futures: list[Future[Any]] = client.map(function, list(values), key=keys, pure=False, retries=0, **_places(workers))
    return futures


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
