"""Ranks find each other, and notice when one is missing."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
import torch

from gnnflow.train.ranks.group import RankLateError, find_store, join_group, open_store
from gnnflow.train.ranks.operations import Place, Position, RankLostError, RankStoppedError
from tests.train.ranks.together import HOST, together


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

    first, second = together(leave, 2)
    assert second is None
    assert isinstance(first, RankLostError)
    assert "rank 0 of 2 lost the others in epoch 1, step 1" in str(first)


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
    first, second = together(lambda group: alone_in_a_sum(group, over), 2, step_seconds=5.0)
    assert isinstance(first, RankLostError)
    assert second is None


def test_a_rank_that_is_told_to_stop_leaves_what_it_waits_for():
    over = threading.Event()

    def stopped(group):
        if group.rank == 0:
            threading.Timer(0.2, lambda: setattr(group.position, "stop", True)).start()
        return alone_in_a_sum(group, over)

    first, second = together(stopped, 2)
    assert isinstance(first, RankStoppedError)
    assert second is None


def test_a_store_that_is_not_there_is_a_lost_rank():
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(RankLostError, match="does not answer"):
        find_store(HOST, port, start_seconds=1)


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
