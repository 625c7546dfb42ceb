"""Small messages are summed in logarithmically many rounds: what torch's own all-reduce gives, the same bits on all."""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np
import pytest
import torch

from gnnflow.train.ranks import group as groups
from gnnflow.train.ranks.doubling import HOP_BYTES, Doubling, doubling_hops, is_cheaper
from gnnflow.train.ranks.operations import RankLostError
from tests.train.ranks.together import outcomes, together

MIXED = 1e8  # numbers of such different size that the order of a sum shows in its bits


def part_of(rank, *, size=1000, dtype=torch.float32):
    random = np.random.default_rng(rank)
    numbers = random.normal(size=size) * np.where(np.arange(size) % 2, MIXED, 1.0)
    return torch.from_numpy(numbers).to(dtype)


def doubled(group, tensor):
    """Sum by doubling, whatever is cheaper."""
    for operation in group.doubling.sums(tensor):
        operation.wait(timedelta(seconds=20))
    return tensor


def both(group):
    """Return the sum by doubling and by torch's own all-reduce."""
    theirs = part_of(group.rank)
    group.backend.allreduce([theirs]).wait()
    ours = part_of(group.rank)
    return doubled(group, ours) if group.doubling else group.all_reduce(ours).wait(), theirs


@pytest.mark.table(2)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8])
def test_it_is_the_sum_that_torch_finds_and_has_the_same_bits_on_all_ranks_run_after_run(size):
    runs = [together(both, size) for _ in range(2)]
    first = runs[0][0][0]
    exact = sum(part_of(rank).double() for rank in range(size))
    for ours, theirs in (rank for run in runs for rank in run):
        assert torch.equal(ours, first)
        torch.testing.assert_close(ours.double(), exact, rtol=1e-6, atol=MIXED * 1e-6)
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=MIXED * 1e-6)


@pytest.mark.table(2)
@pytest.mark.parametrize("size", [2, 5, 8])
@pytest.mark.parametrize("numbers", [1000, HOP_BYTES])
def test_between_hosts_a_sum_has_the_bits_that_it_has_through_memory(size, numbers, monkeypatch):
    def one(group):
        return doubled(group, part_of(group.rank, size=numbers))

    memory = together(one, size)
    monkeypatch.setattr(groups, "meet", lambda *_, **__: None)
    assert all(torch.equal(found, memory[0]) for found in (*memory, *together(one, size)))


def test_several_sums_may_be_under_way_at_once():
    def one(group):
        sums = [group.all_reduce(torch.full((3,), float(group.rank + number))) for number in range(5)]
        large = group.all_reduce(torch.full((1 << 20,), 1.0))
        return [each.wait().tolist() for each in reversed(sums)], large.wait().unique().tolist()

    for small, large in together(one, 6):
        assert small == [[float(sum(range(6)) + 6 * number)] * 3 for number in (4, 3, 2, 1, 0)]
        assert large == [6.0]


def test_whole_numbers_are_summed_too():
    for found in together(lambda group: group.all_reduce(torch.tensor([group.rank, 1])).wait(), 5):
        assert found.tolist() == [10, 5]


def test_a_hundred_ranks_take_tens_of_hops_and_not_hundreds():
    assert [doubling_hops(size, 40 << 10) for size in (64, 100, 1024)] == [6, 8, 10]
    assert [doubling_hops(size, 1 << 20) for size in (64, 100, 1024)] == [12, 15, 20]


def test_small_messages_are_doubled_and_large_ones_go_round_the_ring():
    for size in (4, 8, 16, 100, 1024):
        assert is_cheaper(40 << 10, size)
        assert not is_cheaper(64 << 20, size)
    assert not any(is_cheaper(0, size) for size in (1, 3))
    assert all(is_cheaper(num_bytes, 2) for num_bytes in (0, 40 << 10, 64 << 20))  # where both are one round
    assert is_cheaper(HOP_BYTES, 7)


def test_ranks_that_gain_nothing_join_no_partners():
    assert together(lambda group: group.doubling, 3) == [None] * 3
    found = together(lambda group: group.doubling, 5)
    assert all(isinstance(each, Doubling) for each in found)
    assert [len(each.rounds) for each in found] == [2, 2, 2, 2, 0]


def test_a_rank_that_is_lost_ends_the_sums_of_all_others():
    def one(group):
        if group.rank == 2:
            raise KeyError
        begin = time.monotonic()
        try:
            group.all_reduce(torch.ones(8)).wait()
        except RankLostError as error:
            return str(error), time.monotonic() - begin

    for rank, found in enumerate(outcomes(one, 7)):
        if rank != 2:
            said, seconds = found
            assert f"rank {rank} of 7 lost the other ranks" in said
            assert seconds < 10


@pytest.mark.table(2)
@pytest.mark.parametrize("size", [2, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("through_memory", [True, False])
def test_sums_under_way_may_be_waited_for_in_any_order(size, through_memory, monkeypatch):
    if not through_memory:
        monkeypatch.setattr(groups, "meet", lambda *_, **__: None)

    def one(group):
        sums = [group.all_reduce(torch.tensor([10.0**number * (group.rank + 1)])) for number in range(5)]
        order = np.random.default_rng(group.rank).permutation(len(sums))  # another one on each rank
        found = {number: sums[number].wait().item() for number in order.tolist()}
        return [found[number] for number in range(len(sums))]

    total = size * (size + 1) / 2
    assert together(one, size) == [[10.0**number * total for number in range(5)]] * size
