"""Every scheduler keeps the contract of `Scheduler.run`. A new one is a line in `SCHEDULERS`."""

from __future__ import annotations

import gc
import os
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import AddressCluster, LocalCluster, SynchronousCluster
from gnnflow.graph.errors import ClusterError, TableError
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, RoundRunner, TaskOutput
from gnnflow.mapreduce.schedulers import Dask, Synchronous
from tests.leaks import SHARED

WORKERS = 2


@contextmanager
def synchronous():
    yield Synchronous()


@contextmanager
def dask_on_two_workers():
    from distributed import Client
    from distributed import LocalCluster as DaskLocalCluster

    with (
        DaskLocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield Dask(client)


def lazy_synchronous():
    return Cluster(SynchronousCluster())


def lazy_local():
    return Cluster(LocalCluster(workers=WORKERS, memory_limit="2GiB"))


IN_THIS_PROCESS = {"Synchronous": synchronous, "Cluster synchronous": lazy_synchronous}
ON_WORKERS = {"Dask": dask_on_two_workers, "Cluster local": lazy_local}
SCHEDULERS = {**IN_THIS_PROCESS, **ON_WORKERS}


DISTRIBUTED = [pytest.param(name, marks=[pytest.mark.distributed, pytest.mark.merge]) for name in ON_WORKERS]


@pytest.fixture(scope="module", params=[*IN_THIS_PROCESS, *DISTRIBUTED])
def named(request):
    """A scheduler and its name."""
    with SCHEDULERS[request.param]() as scheduler:
        lasting = [request.param] if request.param in ON_WORKERS else []
        SHARED.extend(lasting)
        yield scheduler, request.param
    SHARED[:] = [each for each in SHARED if each not in lasting]


@pytest.fixture
def scheduler(named):
    return named[0]


def squared(index):
    return index, index**2


def fail_at(index, *, bad, error):
    if index == bad:
        raise error
    return index


def leave_a_mark(index, *, folder, seconds=0.0):
    (Path(folder) / str(index)).touch()
    time.sleep(seconds)
    return index


def wait_for_the_next(index, *, folder):
    """Task 0 ends a second after task 1 has."""
    if index == 0:
        while not (Path(folder) / "1").exists():
            time.sleep(0.01)
        time.sleep(1.0)
    return leave_a_mark(index, folder=folder)


def test_each_index_is_given_to_the_function_and_yields_one_result(scheduler):
    indices = [7, 0, 3, 11, 4]
    assert sorted(scheduler.run(squared, indices)) == [(index, index**2) for index in sorted(indices)]


def test_a_scheduler_tells_its_dask_client_and_none_where_tasks_run_here(named):
    scheduler, name = named
    client = scheduler.dask_client()
    assert scheduler.fit_workers() is None
    if name in IN_THIS_PROCESS:
        assert client is None
    else:
        assert client.submit(squared, 3, pure=False).result() == (3, 9)


def test_one_scheduler_runs_several_rounds(scheduler):
    assert [sorted(scheduler.run(squared, range(size))) for size in (3, 1)] == [[(0, 0), (1, 1), (2, 4)], [(0, 0)]]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("first", 2),
        TimeoutError("no answer"),
        TableError("12 dangling endpoints", where="edges.parquet", fix="Drop them."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_error_of_a_task_comes_through_unchanged(scheduler, error):
    with pytest.raises(type(error)) as caught:
        list(scheduler.run(partial(fail_at, bad=1, error=error), range(4)))
    assert str(caught.value) == str(error)
    assert caught.value.args == error.args
    assert vars(caught.value) == vars(error)


def test_after_an_error_the_next_run_starts_afresh(scheduler):
    with pytest.raises(ValueError, match="stop"):
        list(scheduler.run(partial(fail_at, bad=0, error=ValueError("stop")), range(6)))
    assert sorted(scheduler.run(squared, range(2))) == [(0, 0), (1, 1)]


def test_no_indices_start_nothing(scheduler, tmp_path):
    assert list(scheduler.run(partial(leave_a_mark, folder=tmp_path), [])) == []
    assert not list(tmp_path.iterdir())


def test_closing_the_results_early_leaves_nothing_running(named, tmp_path):
    scheduler, name = named
    with closing(scheduler.run(partial(leave_a_mark, folder=tmp_path, seconds=0.1), range(600))) as results:
        next(results)
    begun = [0, len(list(tmp_path.iterdir()))]
    while begun[-1] != begun[-2] and name in ON_WORKERS:  # tasks that had begun end
        time.sleep(1.0)
        begun.append(len(list(tmp_path.iterdir())))
    assert 1 <= begun[-1] < 200


@pytest.mark.parametrize("named", DISTRIBUTED, indirect=True)
def test_workers_yield_results_as_they_become_ready(scheduler, tmp_path):
    assert list(scheduler.run(partial(wait_for_the_next, folder=tmp_path), range(2))) == [1, 0]


@dataclass(frozen=True)
class Backwards:
    """Yields the last index first, as a cluster may."""

    def run(self, function, indices):
        for index in reversed(indices):
            yield function(index)


def count_and_send(index, inbox):
    return TaskOutput(emits=(Emit("sent", pa.table({"from": [index]}), np.array([0])),), counts={"index": index})


def receive(index, inbox):
    return TaskOutput(counts={"from": inbox.read("sent")["from"].to_pylist()})


def rounds_on(scheduler, work):
    runner = RoundRunner(str(work), scheduler)
    sent = runner.run(Round("send", 5, 1, count_and_send))
    received = runner.run(Round("receive", 1, 1, receive, reads={"sent": "send"}))
    return [record.counts for record in (*sent, *received)]


IN_TASK_ORDER = [*({"index": index} for index in range(5)), {"from": [0, 1, 2, 3, 4]}]


def test_records_and_exchanged_rows_are_in_task_order(scheduler, tmp_path):
    assert rounds_on(scheduler, tmp_path) == IN_TASK_ORDER


def test_records_are_in_task_order_though_results_are_not(tmp_path):
    assert rounds_on(Backwards(), tmp_path) == IN_TASK_ORDER


def test_a_cluster_joins_at_its_first_task_and_not_before(monkeypatch):
    monkeypatch.setattr("gnnflow.cluster._CONNECT_SECONDS", 1)
    with Cluster(AddressCluster(kind="address", address="tcp://127.0.0.1:1")) as cluster:
        assert list(cluster.run(squared, [])) == []
        with pytest.raises(ClusterError, match=r"tcp://127\.0\.0\.1:1: no Dask scheduler answers"):
            list(cluster.run(squared, [0]))


def process_id(index):
    return os.getpid()


@pytest.mark.distributed
def test_a_worker_that_left_before_the_cluster_was_told_of_it_does_not_end_the_run():
    with lazy_local() as cluster:
        started = cluster.dask_client().cluster
        started._update_worker_status("remove", "tcp://127.0.0.1:1")
        assert len(started.scheduler_info["workers"]) == WORKERS


@pytest.mark.distributed
def test_a_local_cluster_stops_its_workers_with_its_with_block():
    with lazy_local() as cluster:
        workers = set(cluster.run(process_id, range(8)))
        assert workers
        assert os.getpid() not in workers
    assert not any(psutil.pid_exists(worker) for worker in workers)


def listening(process):
    """Addresses that a process and its children accept connections on."""
    family = (process, *process.children(recursive=True))
    return {
        (found.laddr.ip, found.laddr.port)
        for member in family
        for found in member.net_connections("inet")
        if found.status == psutil.CONN_LISTEN
    }


@pytest.mark.distributed
def test_two_local_clusters_run_at_once_and_listen_on_this_machine_alone():
    before = listening(psutil.Process())
    # Warnings are errors: a port that both clusters ask for, or a socket left open, fails the test.
    with lazy_local() as first, lazy_local() as second:
        for cluster in (first, second):
            assert sorted(cluster.run(squared, range(2))) == [(0, 0), (1, 1)]
        opened = listening(psutil.Process()) - before
    assert opened
    assert {host for host, _ in opened} == {"127.0.0.1"}
    gc.collect()
