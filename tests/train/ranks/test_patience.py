"""Waits for ranks, servers and workers: a pause of the process does not use up their limits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.train.ranks import patience
from gnnflow.train.ranks.gang import _workers_for
from gnnflow.train.ranks.hosting import Hosting
from gnnflow.train.ranks.operations import Pending, Place, Position
from gnnflow.train.ranks.patience import PAUSE_SECONDS, Patience
from gnnflow.train.ranks.pushing import ServedUpdater
from gnnflow.train.ranks.waiting import wait_for_port, wait_for_values
from tests.clock import Clock
from tests.train.planted import Recording

HOUR, LIMIT = 3600.0, 60.0
PLACE = Place(0, 2, start_seconds=LIMIT, step_seconds=LIMIT)


class PausedClock(Clock):
    """A clock that a pause moves, once."""

    asked = 0

    def pause_once(self) -> bool:
        """Say whether what is waited for is there: not at the first look, in which the process is paused."""
        self.asked += 1
        self.now += HOUR if self.asked == 1 else 0.0
        return self.asked > 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PausedClock:
    found = PausedClock()
    monkeypatch.setattr(patience, "time", found)
    return found


def test_a_limit_counts_what_lies_between_looks_and_of_a_pause_little(clock: PausedClock) -> None:
    wait = patience.Patience(LIMIT)
    clock.now += HOUR
    assert not wait.is_over()
    assert wait.waited == PAUSE_SECONDS
    looks = 0
    while not wait.is_over():
        clock.now += 0.5
        looks += 1
    assert looks == 2 * (LIMIT - PAUSE_SECONDS) + 1


def test_workers_may_come_after_a_pause(clock: PausedClock) -> None:
    client = SimpleNamespace(processing=lambda: {"a": (), "b": ()} if clock.pause_once() else {})
    train = MiniBatchConfig.model_validate({"workers": 2, "start_seconds": LIMIT})
    found = _workers_for(SimpleNamespace(train=train), client, busy=[], progress=Recording())
    assert found == (["a", "b"], [])


def test_a_server_may_begin_after_a_pause(clock: PausedClock) -> None:
    updater = {"kind": "parameter_server", "servers": 1}
    train = MiniBatchConfig.model_validate({"workers": 2, "start_seconds": LIMIT, "updater": updater})
    future = SimpleNamespace(done=clock.pause_once, result=lambda: "a server")
    client = SimpleNamespace(submit=lambda *_, **__: future, nthreads=lambda: {"b": 1})
    hosting = Hosting(SimpleNamespace(train=train), client, "topic", ranks=["a", "b"], others=[])
    hosting.start()
    assert hosting.actors == ("a server",)


def test_other_ranks_may_arrive_after_a_pause(clock: PausedClock) -> None:
    store = SimpleNamespace(check=lambda _: clock.pause_once())
    assert wait_for_values(store, ["arrived/1"], Position(), seconds=LIMIT)


def test_a_port_may_be_reached_after_a_pause(clock: PausedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> SimpleNamespace:
        if not clock.pause_once():
            raise TimeoutError
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr("socket.create_connection", connect)
    wait_for_port("127.0.0.1", 1, Position(), patience=Patience(LIMIT))
    assert clock.asked == 2


def test_an_operation_may_end_after_a_pause(clock: PausedClock) -> None:
    def wait(_: object) -> None:
        if not clock.pause_once():
            raise TimeoutError

    rounds = iter([SimpleNamespace(wait=wait)])
    Pending(PLACE, Position(), rounds, torch.zeros(1)).wait()
    assert clock.asked == 2


def test_a_server_may_answer_after_a_pause(clock: PausedClock) -> None:
    def result(**_: object) -> str:
        if not clock.pause_once():
            raise TimeoutError
        return "an answer"

    group = SimpleNamespace(place=PLACE, position=Position(), check=lambda: None)
    updater = SimpleNamespace(_group=group)
    assert ServedUpdater._answers(updater, [SimpleNamespace(result=result)]) == ["an answer"]
