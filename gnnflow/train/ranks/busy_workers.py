"""Asks workers whether they still compute a rank that was told to stop, which the scheduler forgets at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

_ANSWER_SECONDS = 2.0


def busy_workers(client: Client, workers: Sequence[str], prefix: str) -> list[str]:
    """Return the workers that compute a task whose key begins with the prefix, or that do not answer in time.

    The scheduler may not know yet that such a task has begun.
    """
    if not workers:
        return []
    told: Sequence[bool] = client.sync(_ask, client, workers, prefix)
    return [worker for worker, computes in zip(workers, told, strict=True) if computes]


async def _ask(client: Client, workers: Sequence[str], prefix: str) -> Sequence[bool]:
    # each by itself: one that hangs says nothing of the others
    return await asyncio.gather(*(_computes(client, worker, prefix) for worker in workers))


async def _computes(client: Client, worker: str, prefix: str) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            asked: Any = client.run(_has_thread, prefix, workers=[worker], on_error="ignore")
            told: dict[str, bool] = await asked
    except TimeoutError:
        return True
    return told.get(worker, True)  # one that is gone meanwhile is not asked again


def _has_thread(prefix: str, dask_worker: Any = None) -> bool:
    """On a worker: return whether a thread computes a task whose key begins with the prefix."""
    return any(str(key).startswith(prefix) for key in dask_worker.active_threads.values())
