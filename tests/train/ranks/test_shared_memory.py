"""Two ranks of one host sum through memory: what gloo gives, whatever is under way, and nothing piles up."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch import distributed as dist

from gnnflow.train.ranks.shared_memory import Outgoing, SharedPair, meet
from tests.train.ranks.together import together

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")

SOON = timedelta(seconds=20)


def met(store):
    """Return both ends of a pair."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda place: meet(store, place, patience=20), range(2)))


@pytest.fixture
def pair():
    made = met(dist.HashStore())
    yield made
    made.clear()  # pytest keeps it for longer than the test


def sums(pair, tensors):
    """Return what both have after a sum of one tensor of each."""
    parts = [end.allreduce([tensor]) for end, tensor in zip(pair, tensors, strict=True)]
    for part in parts:
        part.wait(SOON)
    return tensors


def open_files():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_two_ranks_of_one_host_have_the_bits_that_gloo_finds():
    def one(group):
        assert isinstance(group.doubling.rounds[0], SharedPair)
        own = torch.randn(100_000, generator=torch.Generator().manual_seed(group.rank))
        theirs = own.clone()
        group.backend.allreduce([theirs]).wait()
        return group.all_reduce(own).wait(), theirs

    for ours, theirs in together(one, 2):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (1 << 20,)])
def test_tensors_of_any_type_and_size_are_summed(pair, dtype, shape):
    first, second = sums(pair, [torch.full(shape, 2, dtype=dtype), torch.full(shape, 5, dtype=dtype)])
    assert torch.equal(first, torch.full(shape, 7, dtype=dtype))
    assert torch.equal(second, first)


def test_operations_under_way_may_be_waited_for_in_any_order(pair):
    numbers = [[torch.full((size,), float(place + size)) for size in range(1, 40)] for place in range(2)]
    parts = [[end.allreduce([tensor]) for tensor in own] for end, own in zip(pair, numbers, strict=True)]
    for part in [*reversed(parts[0]), *parts[1]]:
        part.wait(SOON)
    for own in numbers:
        assert [each.unique().tolist() for each in own] == [[2.0 * size + 1] for size in range(1, 40)]


def test_one_rank_may_be_ahead_by_as_many_operations_as_it_likes(pair):
    first, second = pair
    ahead = [first.allreduce([torch.full((5000,), float(number))]) for number in range(60)]
    for number in range(60):
        tensor = torch.ones(5000)
        second.allreduce([tensor]).wait(SOON)
        assert tensor.unique().tolist() == [number + 1.0]
    for number, part in enumerate(ahead):
        part.wait(SOON)
        assert part.found.unique().tolist() == [number + 1.0]


def test_a_tensor_is_replaced_by_that_of_the_rank_that_is_named(pair):
    for root in range(2):
        options = dist.BroadcastOptions()
        options.rootRank = root
        tensors = [torch.tensor([1.0]), torch.tensor([2.0])]
        for part in [end.broadcast([tensor], options) for end, tensor in zip(pair, tensors, strict=True)]:
            part.wait(SOON)
        assert [each.item() for each in tensors] == [root + 1.0] * 2


def test_who_waited_in_vain_may_wait_again(pair):
    first, second = pair
    tensor = torch.ones(3)
    part = first.allreduce([tensor])
    with pytest.raises(TimeoutError):
        part.wait(timedelta(seconds=0.05))
    assert tensor.tolist() == [1.0] * 3
    second.allreduce([torch.ones(3)])
    part.wait(SOON)
    assert tensor.tolist() == [2.0] * 3


def test_who_waits_for_a_rank_that_is_gone_hears_of_it(pair):
    part = pair[0].allreduce([torch.ones(3)])
    del pair[1]
    with pytest.raises(ConnectionError):
        part.wait(SOON)


def test_what_a_rank_sent_before_it_left_is_still_received(pair):
    parts = [
        [end.allreduce([torch.full((1 << 18,), float(place))]) for _ in range(2)] for place, end in enumerate(pair)
    ]
    for each in parts[1]:
        each.wait(SOON)
    parts[0][0].wait(SOON)  # tells the other rank that its memory was read, which nobody hears any more
    pair[1].connection.close()
    parts[0][1].wait(SOON)
    assert parts[0][1].found.unique().tolist() == [1.0]


def test_memory_is_used_again_and_given_back_with_the_pair():
    before = open_files()
    pair = met(dist.HashStore())
    for number in range(3):
        sums(pair, [torch.ones(50_000), torch.ones(50_000)])
        sums(pair, [torch.ones(3), torch.ones(3)])
        if number == 1:
            once = open_files()
    for _ in range(500):
        sums(pair, [torch.ones(50_000), torch.ones(50_000)])
        sums(pair, [torch.ones(3), torch.ones(3)])
    assert open_files() == once
    pair.clear()
    assert open_files() == before


def test_ranks_that_do_not_see_each_other_are_both_told_so():
    class Elsewhere:
        """A store that two hosts reach, on each of which sockets have names of their own."""

        def __init__(self):
            self.store = dist.HashStore()

        def set(self, key, value):
            self.store.set(key, value)

        def get(self, key):
            return self.store.get(key) + (b"-there" if key == "listens" else b"")

    assert met(Elsewhere()) == [None, None]


def test_memory_holds_parts_of_about_its_size_and_little_more():
    pair = met(dist.HashStore())
    for size in [100_000, 96_000, 50_000, 99_000, 51_000] * 20:
        sums(pair, [torch.ones(size), torch.ones(size)])
    held = [len(each.content) for each in pair[0]._own]
    assert all(size < 4.5 * 100_000 for size in held)
    assert sum(held) < 3 * 4.5 * 100_000  # so many parts are on their way at once


def test_to_send_to_a_rank_that_is_gone_is_noticed_where_it_is_waited_for(pair):
    pair.pop()
    part = pair[0].allreduce([torch.ones(3)])
    with pytest.raises(ConnectionError):
        part.wait(SOON)


def test_a_large_part_that_was_read_leaves_its_memory_to_the_next():
    first, second = pair = met(dist.HashStore())
    for _ in range(10):
        # only one of the two sends, so that nothing but its being read can be told
        sent, found = torch.ones(1 << 20), torch.zeros(1 << 20)
        parts = first.swap(Outgoing(sent), sent[:0]), second.swap(Outgoing(sent[:0]), found)
        for part in parts:
            part.wait(SOON)
        assert torch.equal(found, sent)
    assert [len(end._own) for end in pair] == [1, 0]


def lend(pair, value):
    """Return a large part that the first rank sends, where it lies."""
    first, second = pair
    sent, like = torch.full((1 << 20,), value), torch.empty(1 << 20, device="meta")
    first.swap(Outgoing(sent), sent[:0])
    part = second.swap(Outgoing(sent[:0]), like)
    part.wait(SOON)
    return part.found


def test_a_part_that_was_lent_stays_as_it_is_until_nobody_holds_it(pair):
    held = lend(pair, 1.0)[5:]
    assert [lend(pair, float(number)).unique().tolist() for number in range(2, 10)] == [
        [float(n)] for n in range(2, 10)
    ]
    assert held.unique().tolist() == [1.0]
    assert len(pair[0]._own) == 2
    del held
    again = [lend(pair, 10.0), lend(pair, 11.0)]
    assert [each[0].item() for each in again] == [10.0, 11.0]
    assert len(pair[0]._own) == 2


def test_rows_are_sent_from_where_they_lie():
    first, second = met(dist.HashStore())
    table, places = torch.arange(12.0).view(6, 2), torch.tensor([5, 0, 5])
    found = torch.empty(3, 2)
    first.swap(Outgoing(table, places), table[:0])
    second.swap(Outgoing(table[:0]), found).wait(SOON)
    assert torch.equal(found, table[places])
