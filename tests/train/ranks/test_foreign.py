"""Ranks on a Dask cluster that others started, whose workers nobody looks after."""

from __future__ import annotations

import importlib
import os
import signal
import time

import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import AddressCluster
from gnnflow.graph.errors import ClusterError
from gnnflow.train.ranks.gang import train_on_ranks
from tests.killing import of_a_killed_process
from tests.mapreduce.foreign_cluster import foreign_cluster
from tests.train.planted import Recording, planted
from tests.train.ranks.test_gang import SHARDS, job_of, nothing_is_left_soon

pytestmark = [
    of_a_killed_process,
    pytest.mark.distributed,
    pytest.mark.slow,
    # a client whose scheduler was killed leaves sockets to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


class At(Recording):
    """Does something once, when training has come to a step."""

    def __init__(self, step, function):
        super().__init__()
        self.at, self.function = step, function

    def step(self, name, done, total, fields):
        super().step(name, done, total, fields)
        if done >= self.at and self.function is not None:
            self.function, function = None, self.function
            function()


@pytest.fixture
def foreign(tmp_path):
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        for name in ("one", "two"):
            cluster.start_worker(name)
        yield cluster


def job(**keys):
    return job_of(SHARDS, batch_size=8, workers=2, epochs=4000, patience=0, **keys)


def pid_of(client, *, rank):
    (worker,) = [
        worker
        for worker, keys in client.processing().items()
        for key in keys
        if str(key).startswith("gnnflow-rank") and str(key).endswith(f"-{rank}")
    ]
    return client.run(os.getpid, workers=[worker])[worker]


@pytest.mark.parametrize("gives_up", [False, True], ids=["the client looks for it", "the client has given up"])
def test_a_lost_scheduler_ends_the_run_with_the_reason(foreign, gives_up):
    with Cluster(AddressCluster(address=foreign.address)) as cluster:
        client = cluster.dask_client()
        client.wait_for_workers(2, timeout=60)
        client._timeout = 5  # seconds for which it looks for a scheduler that is gone; 15 by default

        def lose():
            foreign.processes["scheduler"].kill()
            if gives_up:
                client.close()  # as it does itself after those seconds

        progress = At(20, lose)
        begin = time.monotonic()
        with pytest.raises(ClusterError, match="the Dask scheduler was lost"):
            train_on_ranks(job(), client, progress=progress, open_source=SHARDS.open_source)
        assert time.monotonic() - begin < job().train.step_seconds / 10
    for name in ("one", "two"):
        foreign.processes[name].wait(60)  # the workers end with their scheduler, and their ranks with them


def test_a_rank_whose_process_stands_still_is_named(foreign):
    with Cluster(AddressCluster(address=foreign.address)) as cluster:
        client = cluster.dask_client()
        client.wait_for_workers(2, timeout=60)
        client.run(importlib.import_module, "tests.train.ranks.test_gang")  # no import then lasts as long as the limit
        stopped = []

        def stop():
            stopped.append(pid_of(client, rank=1))
            os.kill(stopped[0], signal.SIGSTOP)

        with pytest.raises(ClusterError, match=r"rank 1 is stuck: .* (says nothing|is still at .*) after 30 s"):
            train_on_ranks(job(step_seconds=30), client, progress=At(20, stop), open_source=SHARDS.open_source)
        os.kill(stopped[0], signal.SIGCONT)
        nothing_is_left_soon(client, events=1000)


def test_a_worker_that_never_comes_back_is_waited_for_and_named_by_number(foreign):
    graph = planted(train_shards=8)
    with Cluster(AddressCluster(address=foreign.address)) as cluster:
        client = cluster.dask_client()
        client.wait_for_workers(2, timeout=60)
        client.run(importlib.import_module, "tests.train.ranks.test_gang")  # ranks then begin within the limit below
        progress = At(20, lambda: os.kill(pid_of(client, rank=1), signal.SIGKILL))
        with pytest.raises(ClusterError, match=r"2 ranks need as many workers, and after 15 s 1 of 1 are free"):
            train_on_ranks(job(start_seconds=15), client, progress=progress, open_source=graph.open_source)
        assert any("rank 1 was lost" in text for text in progress.messages)
