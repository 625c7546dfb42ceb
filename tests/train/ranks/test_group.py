"""Ranks find each other, and notice when one is missing."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
import torch
from torch import distributed as dist

from gnnflow.train.ranks.group import RankLateError, find_store, join_group, open_store
from gnnflow.train.ranks.operations import Place, Position, RankLostError, RankStoppedError
from gnnflow.train.ranks.shared_memory import meet
from gnnflow.train.ranks.waiting import Notes
from tests.train.ranks.together import HOST, outcomes, together


def test_gather_returns_the_arrays_of_every_rank_in_rank_order():
    def own(rank):
        return [np.full((rank, 2), rank, np.float32), np.arange(rank)]

    for found in together(lambda group: group.gather(own(group.rank)), 3):
        for rank, arrays in enumerate(found):
            for array, expected in zip(arrays, own(rank), strict=True):
                np.testing.assert_array_equal(array, expected)
                assert array.dtype == expected.dtype


def test_a_sum_over_ranks_has_the_same_bits_on_each():
    def sums(group):
        torch.manual_seed(group.rank)
        return group.all_reduce(torch.randn(1000)).wait()

    first, *others = together(sums, 4)
    assert all(torch.equal(first, other) for other in others)


def test_a_rank_that_does_not_come_is_named():
    store = open_store(HOST, start_seconds=1)
    with pytest.raises(RankLateError, match="ranks 1, 2 did not arrive within 1 s"):
        join_group(store, Place(0, 3, start_seconds=1, step_seconds=1), host=HOST, position=Position())


def test_a_rank_that_leaves_is_noticed_by_the_others():
    def leave(group):
        if group.rank == 1:
            return None
        return group.all_reduce(torch.ones(2)).wait()

    first, second = outcomes(leave, 2)
    assert second is None
    assert isinstance(first, RankLostError)
    assert "rank 0 of 2 lost the other ranks in epoch 1, step 1" in str(first)


def alone_in_a_sum(group, over):
    """Rank 0 sums what rank 1 does not take part in, which is there until that is over."""
    if group.rank == 1:
        assert over.wait(60)
        return None
    try:
        return group.all_reduce(torch.ones(2)).wait()
    finally:
        over.set()


@pytest.mark.slow
def test_a_rank_that_is_too_late_in_an_operation_ends_it():
    over = threading.Event()
    first, second = outcomes(lambda group: alone_in_a_sum(group, over), 2, step_seconds=5.0)
    assert isinstance(first, RankLostError)
    assert second is None


def test_a_rank_that_is_told_to_stop_leaves_what_it_waits_for():
    over = threading.Event()

    def stopped(group):
        if group.rank == 0:
            threading.Timer(0.2, lambda: setattr(group.position, "stop", True)).start()
        return alone_in_a_sum(group, over)

    first, second = outcomes(stopped, 2)
    assert isinstance(first, RankStoppedError)
    assert second is None


def test_a_store_that_is_not_there_is_a_lost_rank():
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(RankLostError, match="does not answer"):
        find_store(HOST, port, start_seconds=60, position=Position())


@pytest.fixture
def endless(monkeypatch):
    """Torch's ways to connect wait until the test is over, as they do for minutes where the other rank is gone."""
    over = threading.Event()
    for name in ("TCPStore", "ProcessGroupGloo"):
        options = {"_Options": dist.ProcessGroupGloo._Options, "create_device": dist.ProcessGroupGloo.create_device}
        monkeypatch.setattr(dist, name, type(name, (), {"__init__": lambda *_, **__: over.wait(60), **options}))
    yield
    over.set()


def found_by_one(store, position):
    with socket.create_server((HOST, 0)) as listening:
        find_store(HOST, listening.getsockname()[1], start_seconds=60, position=position)


def joined_by_one(store, position):
    join_group(store, Place(0, 2, start_seconds=60, step_seconds=60), host=HOST, position=position)


def met_by_one(store, position):
    meet(Notes(store, position, 60), 0, patience=60)


THERE, JOINS = "arrived/1", "group/all/arrived/1"


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize(
    ("wait", "told"),
    [
        pytest.param(found_by_one, [], id="for the store"),
        pytest.param(joined_by_one, [], id="for the others"),
        pytest.param(joined_by_one, [THERE], id="for one that is there"),
        pytest.param(joined_by_one, [THERE, JOINS], id="for one that joins"),
        pytest.param(met_by_one, [], id="for one on its host"),
    ],
)
def test_a_rank_that_is_told_to_stop_leaves_whatever_it_waits_for_before_all_are_joined(wait, told):
    store, position = dist.HashStore(), Position(stop=True)
    for name in told:
        store.set(name, b"1")
    with pytest.raises(RankStoppedError):
        wait(store, position)


def test_a_store_that_is_gone_before_all_are_joined_is_a_lost_rank():
    store, place = open_store(HOST, start_seconds=60), Place(1, 2, start_seconds=60, step_seconds=60)
    found = find_store(HOST, store.port, start_seconds=60, position=Position())
    del store
    with pytest.raises(RankLostError, match="rank 1 cannot reach the others"):
        join_group(found, place, host=HOST, position=Position())


def test_the_store_listens_on_its_own_address_alone():
    store = open_store(HOST, start_seconds=5)
    hexadecimal = f":{store.port:04X}"
    with open("/proc/net/tcp") as v4, open("/proc/net/tcp6") as v6:  # noqa: PTH123
        listening = [line.split()[1] for line in [*v4, *v6] if line.split()[3] == "0A"]
    assert [each for each in listening if each.endswith(hexadecimal)] == [f"0100007F{hexadecimal}"]


def test_a_position_moves_while_a_rank_works_and_says_when_it_waits():
    position = Position()
    position.at("a step", epoch=2, step=3)
    assert (position.epoch, position.step, position.waiting, position.moves) == (2, 3, False, 1)
    position.wait(over=False)
    assert position.waiting
    position.wait(over=True)
    assert (position.waiting, position.moves) == (False, 3)
