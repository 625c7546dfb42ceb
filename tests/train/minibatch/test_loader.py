"""The loader: same batches however they are prepared, errors where they are asked for, nothing left running."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from gnnflow.graph.errors import StorageError, TrainingError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.shards import Shard
from gnnflow.train.minibatch.batches import plan_epoch, plan_evaluation
from gnnflow.train.minibatch.loader import BatchLoader
from tests.train.planted import planted

GRAPH = planted()
TRAIN = [entry for entry in GRAPH.entries() if entry.split == "train"]
VALID = [entry for entry in GRAPH.entries() if entry.split == "valid"]


class Reads:
    """Reads from the graph, counting, and fails on a chosen shard."""

    def __init__(self, failing: str = "") -> None:
        self.names: list[str] = []
        self.failing = failing

    def __call__(self, entry: ShardEntry) -> Shard:
        self.names.append(entry.name)
        if entry.name == self.failing:
            raise StorageError("no such file", where=entry.name)
        return GRAPH.read(entry)


def loader_of(reads: Reads, *, prefetch: int = 2, cache: int = 1 << 26, edges: bool = True) -> BatchLoader:
    return BatchLoader(reads, fanouts=None, num_layers=2, cache_bytes=cache, prefetch=prefetch, edges=edges)


@pytest.mark.parametrize("prefetch", [0, 1, 5])
@pytest.mark.parametrize("cache", [0, 1 << 26])
def test_preparation_does_not_change_batches(prefetch: int, cache: int) -> None:
    plan = plan_epoch(TRAIN, seed=0, epoch=0, batch_size=16)
    with loader_of(Reads(), prefetch=0) as plainly, loader_of(Reads(), prefetch=prefetch, cache=cache) as other:
        for _ in range(2):
            for one, two in zip(plainly.batches(plan.since(0)), other.batches(plan.since(0)), strict=True):
                np.testing.assert_array_equal(one.targets, two.targets)
                np.testing.assert_array_equal(one.tensors.blocks[0].csr.sources, two.tensors.blocks[0].csr.sources)
                np.testing.assert_array_equal(one.labels, GRAPH.labels[two.targets])


def test_evaluation_batches_are_built_once() -> None:
    with loader_of(Reads()) as loader:
        plan = plan_evaluation(VALID, batch_size=16)
        first, second = (list(loader.batches(plan)) for _ in range(2))
    assert all(one is two for one, two in zip(first, second, strict=True))


def test_without_a_cache_every_epoch_reads_again() -> None:
    many = planted(train_shards=8)
    reads = Reads()
    with BatchLoader(many.read, fanouts=None, num_layers=2, cache_bytes=0, prefetch=1) as loader:
        loader._read = lambda entry: (reads.names.append(entry.name), many.read(entry))[1]
        entries = [entry for entry in many.entries() if entry.split == "train"]
        for epoch in (0, 1):
            list(loader.batches(plan_epoch(entries, seed=0, epoch=epoch, batch_size=4).since(0)))
    assert len(reads.names) > 8


def test_no_more_than_prefetch_batches_are_prepared_ahead() -> None:
    asked: list[int] = []
    plan = plan_epoch(TRAIN, seed=0, epoch=0, batch_size=8)

    def planned():  # type: ignore[no-untyped-def]
        for step in range(len(plan)):
            asked.append(step)
            yield plan[step]

    with loader_of(Reads(), prefetch=3) as loader:
        batches = loader.batches(planned())
        next(batches)
        assert len(asked) == 4
        next(batches)
        assert len(asked) == 5
        batches.close()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_arrives_where_its_batch_is_asked_for(prefetch: int) -> None:
    with loader_of(Reads(failing="valid-0"), prefetch=prefetch) as loader:
        batches = loader.batches([*plan_evaluation(TRAIN, batch_size=60), *plan_evaluation(VALID, batch_size=60)])
        assert [len(next(batches).targets) for _ in range(2)] == [60, 60]
        with pytest.raises(StorageError, match="valid-0: no such file"):
            next(batches)


def test_no_thread_outlives_the_loader() -> None:
    before = threading.active_count()
    with loader_of(Reads(), prefetch=4) as loader:
        next(loader.batches(plan_epoch(TRAIN, seed=0, epoch=0, batch_size=8).since(0)))
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_graph_without_edges_has_no_neighbours_and_no_degrees() -> None:
    with loader_of(Reads(), edges=False) as loader:
        batch = next(loader.batches(plan_evaluation(VALID, batch_size=16)))
    assert [block.csr.num_edges for block in batch.tensors.blocks] == [0, 0]
    assert len(batch.tensors.nodes.in_degree) == 16
    assert not batch.tensors.nodes.in_weight.any()
    assert not batch.tensors.nodes.in_degree.any()


def test_missing_labels_are_refused() -> None:
    def unlabelled(entry: ShardEntry) -> Shard:
        shard = GRAPH.read(entry)
        return Shard(shard.neighborhood, shard.rows, shard.targets, None)

    with (
        BatchLoader(unlabelled, fanouts=None, num_layers=2, cache_bytes=0, prefetch=1) as loader,
        pytest.raises(TrainingError, match="the graph has no labels"),
    ):
        list(loader.batches(plan_evaluation(VALID, batch_size=16)))
