"""Ranks lost shortly after each other: whoever was told to begin belongs to an attempt, and leaves with it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gnnflow.graph.errors import ClusterError, TrainingError
from gnnflow.mapreduce.submitting import restart_if_ours
from gnnflow.train.ranks.attempt import PREFIX, Attempt, RankFailedError
from gnnflow.train.ranks.busy_workers import _has_thread, busy_workers
from gnnflow.train.ranks.gang import _workers_for
from gnnflow.train.ranks.operations import RankLostError
from tests.train.planted import Recording
from tests.train.ranks.test_gang import GRAPH, SHARDS, job_of, nothing_is_left_soon, ranks

JOB = job_of(GRAPH, batch_size=8, workers=2)


class Asked:
    """A client whose workers say, one look after the other, whether they still compute a rank."""

    def __init__(self, *told: dict[str, bool]) -> None:
        self.told = list(told)
        self.restarted: list[str] = []
        self.there = {"a": 1, "b": 1}

    def nthreads(self):
        return self.there

    def processing(self):
        return dict.fromkeys(self.there, ())

    def sync(self, function, _client, asked, *_, **__):
        if function is restart_if_ours:
            self.restarted.append(asked)
            return "it has no nanny to restart it"
        told = self.told.pop(0)
        return [told[worker] for worker in asked]


def attempt_on(client, *statuses: str, errors=()):
    attempt = Attempt(JOB, client, progress=Recording(), workers=["a", "b"], others=[], open_source=None)
    for rank, status in enumerate(statuses):
        attempt._futures[rank] = SimpleNamespace(status=status, exception=lambda rank=rank: errors[rank])
    return attempt


def test_an_attempt_ends_when_ranks_that_nobody_heard_of_have_left():
    client = Asked({"a": True, "b": True}, {"a": False, "b": True}, {"a": False, "b": False})
    attempt = attempt_on(client, "cancelled", "cancelled")
    attempt._wait_for_exit()
    assert client.told == []
    assert client.restarted == attempt.busy == []


def test_a_rank_that_was_never_told_to_begin_is_not_waited_for():
    client = Asked({"a": False})
    attempt_on(client, "cancelled")._wait_for_exit()
    assert client.told == []


def test_a_worker_that_a_rank_does_not_leave_has_no_rank_of_the_next_attempt_until_it_does(monkeypatch):
    client = Asked({"a": False, "b": True})
    monkeypatch.setattr("gnnflow.train.ranks.attempt._LEAVE_SECONDS", -1.0)
    attempt = attempt_on(client, "cancelled", "cancelled")
    attempt._wait_for_exit()
    assert client.restarted == attempt.busy == ["b"]

    client.told = [{"b": True}, {"b": False}]
    assert _workers_for(JOB, client, busy=attempt.busy, progress=Recording()) == (["a", "b"], [])
    assert client.told == []

    client.told = [{"b": True}]
    hasty = replace(JOB, train=JOB.train.model_copy(update={"start_seconds": -1.0}))
    with pytest.raises(ClusterError, match="1 of 2 are free"):
        _workers_for(hasty, client, busy=["b"], progress=Recording())


def test_what_a_rank_raises_where_another_is_gone_is_a_lost_rank():
    client = Asked()
    errors = (None, RuntimeError("Connection reset by peer"))
    attempt = attempt_on(client, "lost", "error", errors=errors)
    client.there = {"b": 1}
    with pytest.raises(RankLostError, match="rank 0 was lost: its worker a, died"):
        attempt._check_results()
    attempt = attempt_on(Asked(), "finished", "error", errors=(None, TrainingError("spoiled")))
    with pytest.raises(RankFailedError, match="spoiled"):
        attempt._check_results()


def test_a_worker_says_whether_a_thread_computes_a_rank_wanted_or_not():
    worker = SimpleNamespace(active_threads={1: "sum-5", 2: f"{PREFIX}-1f-0"})
    assert _has_thread(f"{PREFIX}-1f", dask_worker=worker)
    assert not _has_thread(f"{PREFIX}-2e", dask_worker=worker)


@pytest.mark.distributed
def test_ranks_begin_again_where_rank_0_is_lost_and_the_other_has_only_been_told_to_begin(client, monkeypatch):
    """Rank 1 finds nobody at the store that it is told of, on one of the two workers that are left."""
    job = job_of(SHARDS, batch_size=8, workers=2, dropout=0.3, epochs=5)
    undisturbed = ranks(client, job, SHARDS).result
    take, hear, first = Attempt._take, Attempt._queue_event, []

    def lose_rank_0(attempt, event):
        if event["kind"] == "store" and not first:
            first.append(attempt)
            lost, other = (seen.worker for seen in attempt._seen)
            os.kill(client.run(os.getpid, workers=[lost])[lost], signal.SIGKILL)
            wait_until(lambda: lost not in client.nthreads())
            take(attempt, event)
            # it has begun, or found nobody and ended already
            wait_until(lambda: attempt._futures[1].done() or busy_workers(client, [other], attempt._topic))
        else:
            take(attempt, event)

    def hear_rank_0(attempt, event):
        if attempt not in first or event[1]["rank"] == 0:
            hear(attempt, event)

    monkeypatch.setattr(Attempt, "_take", lose_rank_0)
    monkeypatch.setattr(Attempt, "_queue_event", hear_rank_0)
    trained = ranks(client, job, SHARDS)
    assert [attempt.ranks for attempt in trained.attempts] == [2, 2]
    assert "rank 0 was lost" in trained.attempts[0].lost
    assert trained.result.weights == undisturbed.weights
    nothing_is_left_soon(client, seconds=150, events=1000)


def wait_until(there, seconds=60.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError):
            if there():
                return
        time.sleep(0.05)
    raise AssertionError("never came")
