"""A progress that kills workers, for tests which say that nothing of it is seen in a result."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from gnnflow.mapreduce.schedulers import Dask
from gnnflow.progress import Silent

if TYPE_CHECKING:
    from gnnflow.cluster import Cluster

of_a_killed_process = pytest.mark.keeps("shared_memory")
"""A killed command leaves the names of its semaphores."""


class KillAWorkerInEveryRound(Silent):
    """Kills one of two worker processes as each round starts, or `only` this one; the nanny brings another."""

    def __init__(self, cluster: Cluster, *, only: str = "") -> None:
        self.cluster = cluster
        self.only = only
        self.killed: list[str] = []

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        if self.only not in {"", name}:
            return
        scheduler = self.cluster.scheduler()
        assert isinstance(scheduler, Dask)
        pids: list[int] = []
        while len(pids) < 2:  # one that was killed a moment ago may still be counted, and does not answer
            scheduler.client.wait_for_workers(2, timeout=60)
            pids = sorted(scheduler.client.run(os.getpid, on_error="ignore").values())
        os.kill(pids[len(self.killed) % len(pids)], signal.SIGKILL)
        self.killed.append(name)
