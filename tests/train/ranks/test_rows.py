"""Rows go between ranks through memory or gloo: each has those that were sent to it, in the order of the ranks."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
import torch

from gnnflow.train.ranks import group as groups
from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.operations import RankLostError
from gnnflow.train.ranks.rows import open_rows
from tests.train.ranks.together import outcomes, together

COUNTS = np.random.default_rng(0).integers(0, 4, (5, 7, 7))  # of five exchanges, from each rank to each
COUNTS[1] = 0
COUNTS[2, 1] = 0  # a rank that only receives


def rows_of(exchange, source, target, *, dtype):
    """The rows of one exchange from one rank to another [n, 2, 3]."""
    count = int(COUNTS[exchange, source, target])
    return torch.arange(count * 6).reshape(count, 2, 3).to(dtype) + 100 * source + 10 * target + 1000 * exchange


def begun(exchange, number, size, *, dtype):
    """Begin one exchange, and return it with what is to arrive."""
    sent, received = COUNTS[number, exchange.rank, :size].tolist(), COUNTS[number, :size, exchange.rank].tolist()
    leaving = [rows_of(number, exchange.rank, other, dtype=dtype) for other in range(size)]
    coming = [rows_of(number, other, exchange.rank, dtype=dtype) for other in range(size)]
    return exchange.begin(torch.cat(leaving), sent=sent, received=received), torch.cat(coming)


def exchanged(group, *, dtype=torch.float32):
    """Return what arrives in exchanges that are all begun first, what was to arrive, and by which way."""
    exchange = open_rows(group)
    under_way = [begun(exchange, number, group.size, dtype=dtype) for number in range(len(COUNTS))]
    return [(arriving.wait(), expected) for arriving, expected in under_way], bool(exchange.pairs)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("through_memory", [True, False])
def test_every_rank_has_the_rows_that_were_sent_to_it(size, through_memory, monkeypatch):
    if through_memory and sys.platform != "linux":
        pytest.skip("memory without a name is Linux's")
    if not through_memory:
        monkeypatch.setattr(groups, "meet", lambda *_, **__: None)
    for found, has_pairs in together(exchanged, size):
        assert has_pairs == (through_memory or size == 1)
        for arrived, expected in found:
            assert torch.equal(arrived, expected)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_so_has_every_card_what_was_sent_to_it(size, monkeypatch):
    # gloo stands for NCCL: both take the same calls, and every rank would need a card
    joined = {}

    def between_cards(group, name):
        if (group.rank, name) not in joined:
            joined[group.rank, name] = group.join(f"cards/{name}", group.rank, group.size)
        return joined[group.rank, name]

    monkeypatch.setattr(RankGroup, "is_between_cards", lambda _, rows: rows.dim() > 1)
    monkeypatch.setattr(RankGroup, "between_cards", between_cards)
    for found, _ in together(exchanged, size):
        for arrived, expected in found:
            assert torch.equal(arrived, expected)
    assert {name for _, name in joined} == {"rows/1"}


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
def test_rows_of_any_type_travel(dtype):
    for found, _ in together(lambda group: exchanged(group, dtype=dtype), 3):
        assert all(torch.equal(arrived, expected) for arrived, expected in found)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7])
def test_sums_go_on_beside_rows_in_any_order(size):
    def one(group):
        exchange = open_rows(group)
        total = group.all_reduce(torch.full((3,), 1.0 + group.rank))
        arriving, expected = begun(exchange, 0, group.size, dtype=torch.float32)
        second = open_rows(group)
        more, _ = begun(second, 0, group.size, dtype=torch.float32)
        assert torch.equal(more.wait(), expected)
        assert torch.equal(arriving.wait(), expected)
        return total.wait().tolist()

    assert together(one, size) == [[size * (size + 1) / 2] * 3] * size


def test_who_sends_to_a_rank_that_is_gone_or_waits_for_it_hears_of_it():
    def one(group):
        exchange = open_rows(group)
        if group.rank == 1:
            return "left"
        time.sleep(0.5)
        for _ in range(2):  # the first one after it has gone may find nobody to send to
            exchange.begin(torch.ones(group.size, 2), sent=[1] * 3, received=[1] * 3).wait()
        return "stayed"

    first, _, third = outcomes(one, 3)
    assert isinstance(first, RankLostError)
    assert isinstance(third, RankLostError)
