"""The plan of an epoch: every target once, in an order that is a function of its arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import ShardEntry
from gnnflow.train.minibatch.batches import OPEN_SHARDS, PlannedBatch, plan_epoch, plan_evaluation
from tests.budget import examples

SIZES = st.lists(st.integers(1, 90), min_size=1, max_size=9)


def entries_of(sizes: list[int]) -> list[ShardEntry]:
    return [
        ShardEntry(
            name=f"s{place}",
            split="train",
            layout="shared",
            num_targets=size,
            num_nodes=1,
            num_edges=0,
            num_bytes=1,
        )
        for place, size in enumerate(sizes)
    ]


def targets_of(batches: list[PlannedBatch]) -> list[tuple[str, int]]:
    return [(batch.entry.name, int(position)) for batch in batches for position in batch.positions]


@settings(deadline=None, max_examples=examples(40))
@given(sizes=SIZES, batch_size=st.integers(2, 40), world_size=st.integers(1, 3))
def test_every_target_is_trained_on_once_an_epoch(sizes: list[int], batch_size: int, world_size: int) -> None:
    entries = entries_of([2 * world_size, *sizes])
    plans = [
        plan_epoch(entries, seed=1, epoch=2, batch_size=batch_size, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    seen = [pair for plan in plans for pair in targets_of(list(plan))]
    assert sorted(seen) == sorted(targets_of(list(plan_evaluation(entries, batch_size=7))))
    assert len({len(plan) for plan in plans}) == 1


@settings(deadline=None, max_examples=examples(40))
@given(sizes=SIZES, batch_size=st.integers(1, 40))
def test_batches_stay_near_their_size(sizes: list[int], batch_size: int) -> None:
    plan = plan_epoch(entries_of(sizes), seed=0, epoch=0, batch_size=batch_size)
    for batch in plan:
        whole = batch.entry.num_targets <= batch_size
        assert whole or batch_size / 4 <= len(batch.positions) < batch_size * 1.25 or batch_size == 1


def test_a_small_tail_joins_the_batch_before() -> None:
    plan = plan_epoch(entries_of([110]), seed=0, epoch=0, batch_size=50)
    assert sorted(len(batch.positions) for batch in plan) == [50, 60]
    plan = plan_epoch(entries_of([113]), seed=0, epoch=0, batch_size=50)
    assert sorted(len(batch.positions) for batch in plan) == [13, 50, 50]


def test_a_step_is_planned_without_the_steps_before() -> None:
    entries = entries_of([50, 70, 30])
    whole = list(plan_epoch(entries, seed=3, epoch=5, batch_size=10))
    later = [plan_epoch(entries, seed=3, epoch=5, batch_size=10)[step] for step in range(4, len(whole))]
    assert targets_of(later) == targets_of(whole[4:])


def test_epochs_and_seeds_differ() -> None:
    entries = entries_of([50, 70, 30])
    orders = {
        str(targets_of(list(plan_epoch(entries, seed=seed, epoch=epoch, batch_size=10))))
        for seed in (0, 1)
        for epoch in (0, 1, 2)
    }
    assert len(orders) == 6


def test_few_shards_are_open_at_a_time() -> None:
    plan = plan_epoch(entries_of([40] * 12), seed=0, epoch=1, batch_size=10)
    names = [batch.entry.name for batch in plan]
    for place in range(0, len(names), 4 * OPEN_SHARDS):
        assert len(set(names[place : place + 4 * OPEN_SHARDS])) == OPEN_SHARDS
    assert names != sorted(names, key=names.index)


def test_a_rank_reads_the_same_shards_every_epoch() -> None:
    entries = entries_of([40] * 8)
    shards = [
        {batch.entry.name for batch in plan_epoch(entries, seed=0, epoch=epoch, batch_size=10, rank=1, world_size=2)}
        for epoch in range(4)
    ]
    assert all(found == shards[0] for found in shards)
    assert len(shards[0]) == 4


def test_a_shard_that_fits_one_batch_is_the_same_every_epoch() -> None:
    entries = entries_of([30, 80])
    keys = [sorted(batch.key for batch in plan_epoch(entries, seed=0, epoch=epoch, batch_size=32)) for epoch in (0, 1)]
    assert keys[0] == keys[1] == ["", "", "", "s0:0:30"]


def test_too_few_targets_for_the_ranks_is_refused() -> None:
    with pytest.raises(TrainingError, match="3 training targets cannot be divided evenly among 2 ranks"):
        plan_epoch(entries_of([3]), seed=0, epoch=0, batch_size=1, rank=0, world_size=2)
    with pytest.raises(TrainingError, match="0 training targets"):
        plan_epoch([], seed=0, epoch=0, batch_size=4)


def test_evaluation_keeps_stored_order_over_ranks() -> None:
    entries = entries_of([50, 7, 30])
    parts = [plan_evaluation(entries, batch_size=10, rank=rank, world_size=2) for rank in (0, 1)]
    assert targets_of([*parts[0], *parts[1]]) == [
        (entry.name, place) for entry in entries for place in range(entry.num_targets)
    ]


def test_the_order_never_changes_between_versions() -> None:
    """Golden values: a change here changes every trained model and belongs in the changelog."""
    plan = plan_epoch(entries_of([9, 6]), seed=7, epoch=1, batch_size=3)
    assert [(batch.entry.name, np.asarray(batch.positions).tolist()) for batch in plan] == [
        ("s1", [3, 5, 0]),
        ("s0", [8, 7, 2]),
        ("s0", [5, 1, 4]),
        ("s1", [4, 2, 1]),
        ("s0", [3, 6, 0]),
    ]
