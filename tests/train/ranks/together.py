"""Ranks as threads of one process, joined as ranks on workers are: for what needs no process of its own."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gnnflow.train.ranks.group import RankGroup, find_store, join_group, open_store
from gnnflow.train.ranks.operations import Place, Position

HOST = "127.0.0.1"
_START_SECONDS = 60.0  # the threads of a busy machine may not all run within a few


def together(function: Callable[[RankGroup], Any], size: int, *, step_seconds: float = 60.0) -> list[Any]:
    """Return what the function returns on each rank. Raises the error of the rank that failed first, if one did."""
    failed: list[Exception] = []
    found = outcomes(function, size, step_seconds=step_seconds, failed=failed)
    if failed:
        raise failed[0]
    return found


def outcomes(
    function: Callable[[RankGroup], Any],
    size: int,
    *,
    step_seconds: float = 60.0,
    failed: list[Exception] | None = None,
) -> list[Any]:
    """Return what the function returns on each rank; an error of a rank stands in its place.

    failed: takes the errors in the order in which they came.
    """
    store = open_store(HOST, start_seconds=_START_SECONDS)

    def one(rank: int) -> Any:
        place = Place(rank, size, start_seconds=_START_SECONDS, step_seconds=step_seconds)
        found = store if rank == 0 else find_store(HOST, store.port, start_seconds=_START_SECONDS, position=Position())
        try:
            # Named, so that it is let go of last: torch's own wrapper would end gloo's threads while it holds the GIL,
            # which such a thread may be waiting for.
            group = join_group(found, place, host=HOST, position=Position())
            return function(group)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            error.add_note(f"on rank {rank} of {size}, here:\n{traceback.format_exc()}")
            error.__cause__ = error.__context__ = None
            if failed is not None:
                failed.append(error)
            return error.with_traceback(None)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))
