"""Ranks on Dask workers: they begin together, end on the same weights, and survive what kills one of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from distributed.client import ClosedClientError

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.graph.errors import ClusterError, TrainingError
from gnnflow.layers.saved import decode_weights
from gnnflow.train.job import JobFiles
from gnnflow.train.ranks.attempt import PREFIX, Attempt
from gnnflow.train.ranks.gang import train_on_ranks
from gnnflow.train.ranks.operations import RankLostError
from gnnflow.train.ranks.pushing import ServedUpdater
from gnnflow.train.ranks.servers import Server
from gnnflow.train.trainer import train
from tests.train.conftest import WORKERS
from tests.train.planted import Planted, Recording, job_for, planted, with_model, without_times
from tests.train.ranks.test_gradients import model_of
from tests.train.ranks.together import outcomes

pytestmark = pytest.mark.distributed

GRAPH = planted(train_shards=1)
SHARDS = planted(train_shards=8)


def job_of(graph: Planted, *, dropout: float = 0.0, **keys: object):
    """A job without dropout, whose draws differ by rank, so that one rank and several can be compared."""
    return with_model(job_for(graph, **keys), dropout=dropout)


def ranks(client, job, graph, *, progress=None):
    return train_on_ranks(job, client, progress=progress or Recording(), open_source=graph.open_source)


def alone(job, graph):
    return train(job, progress=Recording(), open_source=graph.open_source)


def rows_of(result):
    return [without_times(row) for row in result.history]


def assert_close(one, two, *, rtol=1e-4):
    for name, value in decode_weights(one.weights).items():
        np.testing.assert_allclose(decode_weights(two.weights)[name], value, rtol=rtol, atol=1e-5, err_msg=name)


def nothing_is_left(client, *, events=0):
    """events: what the scheduler may still hold, where nobody was left to drop it; it keeps a thousand of a name."""
    assert not [key for keys in client.processing().values() for key in keys if str(key).startswith(PREFIX)]
    assert client.run_on_scheduler(events_kept) <= events
    told = client.run(rank_threads_and_sockets)
    assert all(threads == [] for threads, _ in told.values()), told
    return {worker: sockets for worker, (_, sockets) in told.items()}


def assert_a_lost_rank_cost_no_bit(client, trained, undisturbed, *, which):
    """Assert that one of two ranks was lost once, and that its training went on to what it is undisturbed."""
    assert [attempt.ranks for attempt in trained.attempts] == [2, 2]
    assert f"rank {which} was lost" in trained.attempts[0].lost
    assert trained.result.weights == undisturbed.result.weights
    assert rows_of(trained.result) == rows_of(undisturbed.result)
    nothing_is_left(client)


def nothing_is_left_soon(client, *, seconds=60, **limits):
    """The same within some seconds: ranks whose driver is gone notice that themselves."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            return nothing_is_left(client, **limits)
        except (AssertionError, OSError):  # a worker that was killed just now does not answer
            time.sleep(0.5)
    return nothing_is_left(client, **limits)


def events_kept(dask_scheduler):
    """Number of our events that the scheduler still holds."""
    topics = dask_scheduler._broker._topics
    return sum(len(topic.events) for name, topic in topics.items() if name.startswith(PREFIX))


def rank_threads_and_sockets():
    """Names of a worker's rank threads, and its number of open connections."""
    names = [each.name for each in threading.enumerate() if "gnnflow" in each.name]
    return names, len(psutil.Process().net_connections("tcp"))


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_at_a_share_of_the_batch_train_as_one_rank_at_the_whole(client, size):
    keys = {"epochs": 10, "optimizer": "sgd", "lr": 0.5, "class_weight": "balanced"}
    whole = alone(job_of(GRAPH, batch_size=120, **keys), GRAPH)
    trained = ranks(client, job_of(GRAPH, batch_size=120 // size, workers=size, **keys), GRAPH)
    assert_close(trained.result, whole)
    assert [attempt.ranks for attempt in trained.attempts] == [size]
    assert trained.result.best_epoch == whole.best_epoch
    assert trained.result.metrics["test.accuracy"] == whole.metrics["test.accuracy"]
    for one, two in zip(rows_of(trained.result), rows_of(whole), strict=True):
        assert one == pytest.approx(two, rel=1e-4)


def test_the_same_seed_and_ranks_give_the_same_bits(client):
    job = job_of(SHARDS, batch_size=8, workers=2, dropout=0.5, epochs=5, baseline=True)
    first, second = (ranks(client, job, SHARDS).result for _ in range(2))
    assert first.weights == second.weights
    assert rows_of(first) == rows_of(second)
    assert {name for name in first.metrics if name.startswith("baseline.")}
    nothing_is_left(client)


class GivenUp:
    """A client that looks no longer for a scheduler that is gone."""

    def __getattr__(self, name):
        def asked(*_, **__):
            raise ClosedClientError("Client is closed.")

        return asked


def test_a_client_that_has_given_up_on_its_scheduler_is_a_lost_scheduler():
    job = job_of(GRAPH, batch_size=8, workers=2)
    with pytest.raises(ClusterError, match="the Dask scheduler was lost"):
        ranks(GivenUp(), job, GRAPH)
    attempt = Attempt(job, GivenUp(), progress=Recording(), workers=["a", "b"], others=[], open_source=None)
    with pytest.raises(ClosedClientError):  # and not what its end met
        attempt.run()


def test_fewer_workers_than_ranks_is_refused_with_the_numbers(client):
    with pytest.raises(ClusterError, match=r"5 ranks need as many workers, and after 1 s 3 of 3 are free"):
        ranks(client, job_of(GRAPH, batch_size=8, workers=5, start_seconds=1), GRAPH)
    nothing_is_left(client)


def test_elastic_training_goes_on_with_the_workers_that_are_there_to_the_same_result(client):
    keys = {"batch_size": 8, "epochs": 6, "optimizer": "sgd", "lr": 0.2}
    progress = Recording()
    job = job_of(SHARDS, workers=5, elastic=True, start_seconds=12, **keys)
    trained = ranks(client, job, SHARDS, progress=progress)
    assert [attempt.ranks for attempt in trained.attempts] == [3]
    assert "train: goes on with 3 ranks instead of 5, on the workers that are there" in progress.messages
    assert ranks(client, job, SHARDS).result.weights == trained.result.weights
    with Cluster(LocalCluster(workers=5, memory_limit="2GiB")) as cluster:
        cluster.dask_client().wait_for_workers(5, timeout=120)
        plenty = replace(job, train=job.train.model_copy(update={"start_seconds": 120.0}))
        whole = train_on_ranks(plenty, cluster.dask_client(), progress=Recording(), open_source=SHARDS.open_source)
    assert [attempt.ranks for attempt in whole.attempts] == [5]
    assert_close(trained.result, whole.result)
    for one, two in zip(rows_of(trained.result), rows_of(whole.result), strict=True):
        assert one == pytest.approx(two, rel=1e-4)


def servers(mode, **keys):
    return {"kind": "parameter_server", "mode": mode, **keys}


@pytest.mark.parametrize("num_servers", [1, 2])
def test_synchronous_parameter_servers_train_as_all_reduce_does(client, num_servers):
    keys = {"batch_size": 8, "workers": 2, "epochs": 6, "optimizer": "sgd", "lr": 0.2, "baseline": True}
    reduced = ranks(client, job_of(SHARDS, **keys), SHARDS).result
    held = ranks(client, job_of(SHARDS, updater=servers("synchronous", servers=num_servers), **keys), SHARDS).result
    assert_close(held, reduced)
    for one, two in zip(rows_of(held), rows_of(reduced), strict=True):
        assert one == pytest.approx(two, rel=1e-4)
    nothing_is_left(client)


@pytest.mark.parametrize("updater", [{"kind": "all_reduce"}, servers("synchronous")], ids=lambda each: each["kind"])
def test_every_rank_tells_its_profile(client, updater):
    result = ranks(client, job_of(SHARDS, batch_size=8, workers=2, epochs=3, updater=updater), SHARDS).result
    assert len(result.profiles) == 2
    for profile in result.profiles:
        assert 0 < profile["exchange_seconds"] + profile["wait_seconds"] < profile["seconds"]
    waits = [profile["wait_seconds"] for profile in result.profiles]
    assert result.metrics["train.wait_seconds_per_epoch"] == pytest.approx(sum(waits) / 2)


@pytest.mark.parametrize("mode", ["bounded", "asynchronous"])
def test_parameter_servers_that_do_not_wait_learn_as_well(client, mode):
    keys = {"batch_size": 15, "epochs": 25, "patience": 0, "lr": 0.01}
    found = ranks(client, job_of(SHARDS, workers=2, updater=servers(mode), **keys), SHARDS).result
    assert len(found.history) == 25
    assert found.metrics["test.accuracy"] > alone(job_of(SHARDS, **keys), SHARDS).metrics["test.accuracy"] - 0.1
    nothing_is_left(client)


def test_one_rank_may_have_a_server_too(client):
    keys = {"batch_size": 30, "epochs": 4, "optimizer": "sgd", "lr": 0.2}
    held = ranks(client, job_of(SHARDS, updater=servers("synchronous"), **keys), SHARDS).result
    assert_close(held, alone(job_of(SHARDS, **keys), SHARDS))


class Failing:
    """Opens the planted source; on one rank's share a read fails."""

    def __init__(self, graph, rank, error=None):
        self.graph, self.rank, self.error = graph, rank, error

    def __call__(self, job, *, edges):
        if job.share.rank == self.rank:
            raise self.error
        return self.graph.open_source(job, edges=edges)


@pytest.mark.parametrize(
    "error",
    [
        TrainingError("this share is spoiled", where="shard 7", fix="Make it again."),
        PermissionError(13, "shard 7: no access"),  # an OSError, as what Dask raises where its scheduler is gone
    ],
    ids=["of the job", "of the system"],
)
def test_an_error_of_one_rank_ends_all_of_them_and_comes_through(client, error):
    begin, job = time.monotonic(), job_of(GRAPH, batch_size=8, workers=3)
    with pytest.raises(type(error), match="shard 7: "):
        train_on_ranks(job, client, progress=Recording(), open_source=Failing(GRAPH, 1, error))
    assert time.monotonic() - begin < job.train.step_seconds / 10  # the others do not wait for it
    nothing_is_left(client)


class Stuck(Failing):
    """On one rank's share opening takes for ever, in code that no one can interrupt."""

    def __call__(self, job, *, edges):
        while job.share.rank == self.rank:
            time.sleep(0.05)
        return self.graph.open_source(job, edges=edges)


def test_a_stuck_rank_is_named_and_the_run_stops(client):
    job = job_of(GRAPH, batch_size=8, workers=2, step_seconds=8)
    with pytest.raises(ClusterError, match=r"rank 1 is stuck: .* is still at opening its shards after 8 s"):
        train_on_ranks(job, client, progress=Recording(), open_source=Stuck(GRAPH, 1))
    client.wait_for_workers(WORKERS, timeout=60)
    nothing_is_left(client)


def wait_in_the_way(seconds):
    time.sleep(seconds)


def test_a_rank_whose_worker_is_busy_is_named(client):
    workers = sorted(client.nthreads())
    futures = [client.submit(wait_in_the_way, 6, workers=[worker], pure=False) for worker in workers]
    time.sleep(0.5)
    with pytest.raises(ClusterError, match=r"rank 0 did not arrive within 2 s"):
        ranks(client, job_of(GRAPH, batch_size=8, workers=2, start_seconds=2), GRAPH)
    client.gather(futures)
    nothing_is_left(client)


def attempt_of(client, job, *, workers, others=()):
    """An attempt whose topic is listened to, as where it runs."""
    each = Attempt(job, client, progress=Recording(), workers=workers, others=others, open_source=GRAPH.open_source)
    client.subscribe_topic(each._topic, each._queue_event)
    return each


def test_ranks_have_their_time_to_begin_from_when_they_are_told_to(client):
    attempt = attempt_of(client, job_of(GRAPH, batch_size=8, workers=2, start_seconds=60), workers=["gone", "gone too"])
    attempt._start(0, store=None)
    attempt._told_at -= 50
    attempt._take({"kind": "store", "rank": 0, "host": "127.0.0.1", "port": 1})
    attempt._told_at -= 50  # as if they had waited
    attempt._check_arrivals()
    attempt._told_at -= 11
    with pytest.raises(ClusterError, match=r"rank 1 did not arrive within 60 s"):
        attempt._check_arrivals()
    attempt._end(patient=False)


def test_a_pause_makes_no_rank_late_and_none_stuck(client):
    """The ranks are paused as well, or tell where they are to nobody."""
    job = job_of(GRAPH, batch_size=8, workers=2, start_seconds=60, step_seconds=8)
    attempt = attempt_of(client, job, workers=["gone", "gone too"])
    attempt._start(0, store=None)
    pause(attempt, 3600)
    attempt._reset_limits()
    attempt._check_arrivals()
    attempt._take({"kind": "store", "rank": 0, "host": "127.0.0.1", "port": 1})
    for rank in (0, 1):
        attempt._take({"kind": "beat", "rank": rank, "moves": 1, "epoch": 0, "step": 0, "doing": "a step"})
    pause(attempt, 3600)
    attempt._reset_limits()
    attempt._check_moves()
    pause(attempt, 9)
    attempt._reset_limits()
    with pytest.raises(ClusterError, match=r"rank 0 is stuck: .* says nothing after 8 s"):
        attempt._check_moves()
    attempt._end(patient=False)


def pause(attempt, seconds):
    """Make all that an attempt knows so much older."""
    attempt._told_at -= seconds
    attempt._turned_at -= seconds
    for seen in attempt._seen:
        seen.heard_at -= seconds
        seen.moved_at -= seconds


def test_an_attempt_that_is_over_has_no_rank_begin_when_a_store_is_told_of(client):
    attempt = attempt_of(client, job_of(GRAPH, batch_size=8, workers=2), workers=["gone", "gone too"])
    attempt._start(0, store=None)
    attempt._end(patient=False)
    attempt._take({"kind": "store", "rank": 0, "host": "127.0.0.1", "port": 1})
    assert list(attempt._futures) == [0]


def test_a_server_whose_worker_died_before_it_began_is_lost_and_not_late(client):
    job = job_of(GRAPH, batch_size=8, workers=2, updater=servers("synchronous"))
    begin, attempt = time.monotonic(), attempt_of(client, job, workers=sorted(client.nthreads()), others=["tcp://gone"])
    with pytest.raises(RankLostError, match="parameter server 0 was lost: its worker tcp://gone died"):
        attempt.run()
    assert time.monotonic() - begin < job.train.start_seconds
    nothing_is_left(client)


def test_a_server_that_is_known_to_be_gone_is_a_lost_rank_at_the_next_call(client):
    job = job_of(GRAPH, batch_size=8, workers=2, updater=servers("synchronous"))
    worker, *_ = client.scheduler_info()["workers"]
    # bound to its worker, as servers are: another one would make it anew
    future = client.submit(Server, job.train, 1, actor=True, workers=[worker], pure=False)
    actor = future.result()

    def one(group):
        updater = ServedUpdater(model_of(), group, [actor], fit=0)
        updater._begin()
        kill(client, *client.who_has(future)[future.key])
        deadline = time.monotonic() + 60
        while actor._future.status == "finished" and time.monotonic() < deadline:
            time.sleep(0.05)
        updater.settle()

    (found,) = outcomes(one, 1)
    assert isinstance(found, RankLostError), found
    assert "parameter server 0 cannot be reached (Worker holding Actor was lost" in str(found)


def kill(client, worker):
    """Kill a worker's process."""
    os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)


class Killing(Recording):
    """Kills the worker of a rank, or of `server-0`, when training has come to a step."""

    def __init__(self, client, at, *, times=1, which=1):
        super().__init__()
        self.client, self.at, self.left, self.which = client, at, times, which
        self.delay = 0.0

    def step(self, name, done, total, fields):
        super().step(name, done, total, fields)
        if self.left and name == "train" and done >= self.at:
            self.left -= 1
            time.sleep(self.delay)
            kill(self.client, *self.workers())

    def workers(self):
        running = {key: [worker] for worker, keys in self.client.processing().items() for key in keys}
        held = {**self.client.who_has(), **running}
        ours = [key for key in held if key.startswith(PREFIX) and key.endswith(f"-{self.which}")]
        return {worker for key in ours if "server" not in key or self.which == "server-0" for worker in held[key]}


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_rank_costs_the_time_since_the_last_checkpoint_and_no_bit(client, tmp_path: Path, which):
    keys = {"batch_size": 8, "workers": 2, "epochs": 60, "patience": 0, "dropout": 0.3, "checkpoint_steps": 4}
    undisturbed = ranks(client, job_of(SHARDS, **keys), SHARDS)
    progress = Killing(client, 150, which=which)
    job = replace(job_of(SHARDS, **keys), files=JobFiles(str(tmp_path)))
    trained = ranks(client, job, SHARDS, progress=progress)
    assert progress.left == 0
    assert any("train: goes on from epoch" in text for text in progress.messages)
    assert_a_lost_rank_cost_no_bit(client, trained, undisturbed, which=which)


@pytest.mark.parametrize("which", [1, "server-0"])
def test_a_killed_server_or_its_rank_costs_the_time_since_the_last_checkpoint(client, tmp_path: Path, which):
    keys = {"batch_size": 8, "workers": 2, "epochs": 40, "patience": 0, "dropout": 0.3, "checkpoint_steps": 4}
    keys["updater"] = servers("synchronous")
    undisturbed = ranks(client, job_of(SHARDS, **keys), SHARDS)
    progress = Killing(client, 100, which=which)
    job = replace(job_of(SHARDS, **keys), files=JobFiles(str(tmp_path)))
    trained = ranks(client, job, SHARDS, progress=progress)
    assert [attempt.ranks for attempt in trained.attempts] == [2, 2]
    lost = "parameter server 0 was lost" if which == "server-0" else "rank 1 was lost"
    assert lost in trained.attempts[0].lost
    assert trained.result.weights == undisturbed.result.weights
    nothing_is_left(client)


def test_ranks_that_keep_dying_end_the_run_with_the_reason(client, tmp_path: Path):
    progress = Killing(client, 20, times=2, which=1)
    job = job_of(SHARDS, batch_size=8, workers=2, epochs=500, patience=0, restarts=1)
    with pytest.raises(ClusterError, match=r"ranks were lost 2 times; the last time: rank 1 was lost"):
        ranks(client, replace(job, files=JobFiles(str(tmp_path))), SHARDS, progress=progress)
    client.wait_for_workers(WORKERS, timeout=60)
    nothing_is_left(client)


def test_a_hundred_epochs_and_ten_trainings_leave_no_connection_behind(client):
    job = job_of(GRAPH, batch_size=60, workers=2, epochs=10)
    ranks(client, job, GRAPH)
    before = nothing_is_left(client)
    for _ in range(10):
        ranks(client, job, GRAPH)
    after = nothing_is_left(client)
    assert sum(after.values()) <= sum(before.values()) + 2  # Dask's own between workers come and go


def in_a_driver(job, graph):
    """What a stage's driver does when it is itself a task of the cluster."""
    from distributed import worker_client

    with worker_client() as client:
        return train_on_ranks(job, client, progress=Recording(), open_source=graph.open_source).result.weights


@pytest.mark.keeps("variables", "descriptors")  # Dask's own cluster leaves what its workers shall find
@pytest.mark.parametrize("threads", [1, 2])
def test_trainings_that_begin_at_once_follow_each_other(threads):
    from distributed import Client
    from distributed import LocalCluster as DaskLocalCluster

    job = job_of(SHARDS, batch_size=8, workers=2, epochs=10, start_seconds=120, dropout=0.3)
    kept = {"n_workers": 2, "threads_per_worker": threads, "dashboard_address": "127.0.0.1:0"}
    with DaskLocalCluster(**kept) as cluster, ThreadPoolExecutor(3) as pool:
        clients = [Client(cluster) for _ in range(3)]
        found = list(pool.map(lambda client: ranks(client, job, SHARDS).result.weights, clients))
        nothing_is_left(clients[0], events=20)  # a rank that had just begun where another was told something
        for client in clients:
            client.close()
    assert found[0] == found[1] == found[2]


def test_a_driver_that_is_a_task_leaves_room_for_as_many_ranks_as_there_are_workers(client):
    job = job_of(GRAPH, batch_size=40, workers=WORKERS, epochs=3)
    expected = ranks(client, job, GRAPH).result.weights
    assert client.submit(in_a_driver, job, GRAPH, pure=False).result(timeout=60) == expected
