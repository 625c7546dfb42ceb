"""Workers on cores of their own: which ones, and putting a worker's threads there. For benchmarks alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def cores() -> list[list[int]]:
    """Return the processors that this process may use, those that share a core together."""
    found: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        file = Path(_SIBLINGS.format(cpu))
        found.setdefault(file.read_text().strip() if file.exists() else str(cpu), []).append(cpu)
    return list(found.values())


def dealt_cores(there: Sequence[Sequence[int]], *, ranks: int, threads: int) -> list[list[int]]:
    """Return each rank's processors: as many whole cores as it has threads where there are enough, at least one each.

    Empty where there are fewer cores than ranks.
    """
    each = min(len(there) // ranks, threads)
    if not each:
        return []
    return [[cpu for core in there[rank * each : (rank + 1) * each] for cpu in core] for rank in range(ranks)]


def pin_workers(client: Client, *, threads: int) -> list[list[int]]:
    """Put each worker on cores of its own where there are enough, and return the processors of each.

    In the order of the addresses, in which ranks are given to workers that are all free.
    """
    workers = sorted(client.nthreads())
    placed = dealt_cores(cores(), ranks=len(workers), threads=threads)
    for worker, cpus in zip(workers, placed, strict=False):
        client.run(_pin, cpus, workers=[worker])
    return placed


def _pin(cpus: Sequence[int]) -> None:
    """Move all threads of this process; those that begin later go where the thread is that begins them."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cpus)
