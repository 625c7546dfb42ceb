"""The loader: same batches however they are prepared, errors where they are asked for, nothing left running."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.executions.minibatch import layer_outputs
from gnnflow.graph.errors import StorageError, TrainingError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.sampling import EVERY_EDGE, Sampling
from gnnflow.graphfeature.shards import Shard
from gnnflow.layers import Model
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.train.minibatch.batches import plan_epoch, plan_evaluation
from gnnflow.train.minibatch.loader import BatchLoader
from gnnflow.train.minibatch.nodes import NodeBatches
from gnnflow.train.minibatch.preparing import Preparing
from tests.train.planted import NUM_CLASSES, WIDTH, planted

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


def model_of(kind: str = "gat", *, layers: int = 2, dropout: float = 0.0, residual: bool = False) -> Model:
    given = {"kind": kind, "hidden": 8, "layers": layers, "dropout": dropout, "residual": residual}
    config = model_from_dict(given)
    torch.manual_seed(0)
    return build_model(config, ModelInputs(WIDTH, NUM_CLASSES)).eval()


GAT = model_of()


def loader_of(
    reads: Callable[[ShardEntry], Shard],
    *,
    prefetch: int = 2,
    cache: int = 1 << 26,
    edges: bool = True,
    model: Model = GAT,
) -> BatchLoader:
    preparing = Preparing(cache, prefetch)
    build = NodeBatches(reads, model, preparing, EVERY_EDGE if edges else Sampling.no_edges(model.num_layers))
    return BatchLoader(build, model=model, preparing=preparing)


@pytest.mark.parametrize("prefetch", [0, 1, 5])
@pytest.mark.parametrize("cache", [0, 1 << 26])
def test_preparation_does_not_change_batches(prefetch: int, cache: int) -> None:
    plan = plan_epoch(TRAIN, seed=0, epoch=0, batch_size=16)
    plainly = loader_of(Reads(), prefetch=0)
    other = loader_of(Reads(), prefetch=prefetch, cache=cache)
    for _ in range(2):
        for one, two in zip(plainly.batches(plan), other.batches(plan), strict=True):
            np.testing.assert_array_equal(one.targets, two.targets)
            csr = [each.tensors.blocks[0].relations[0].block.csr for each in (one, two)]
            np.testing.assert_array_equal(csr[0].sources, csr[1].sources)
            np.testing.assert_array_equal(one.labels, GRAPH.labels[two.targets])


def test_evaluation_batches_are_built_once() -> None:
    loader = loader_of(Reads())
    plan = plan_evaluation(VALID, batch_size=16)
    first, second = (list(loader.batches(plan)) for _ in range(2))
    assert all(one is two for one, two in zip(first, second, strict=True))


def test_without_a_cache_every_epoch_reads_again() -> None:
    many = planted(train_shards=8)
    reads = Reads()
    loader = loader_of(many.read, cache=0, prefetch=1)
    loader.build.read = lambda entry: (reads.names.append(entry.name), many.read(entry))[1]
    entries = [entry for entry in many.entries() if entry.split == "train"]
    for epoch in (0, 1):
        list(loader.batches(plan_epoch(entries, seed=0, epoch=epoch, batch_size=4)))
    assert len(reads.names) > 8


def test_no_more_than_prefetch_batches_are_prepared_ahead() -> None:
    asked: list[int] = []
    plan = plan_epoch(TRAIN, seed=0, epoch=0, batch_size=8)

    def planned():  # type: ignore[no-untyped-def]
        for step in range(len(plan)):
            asked.append(step)
            yield plan[step]

    loader = loader_of(Reads(), prefetch=3)
    batches = loader.batches(planned())
    next(batches)
    assert len(asked) == 4
    next(batches)
    assert len(asked) == 5
    batches.close()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_arrives_where_its_batch_is_asked_for(prefetch: int) -> None:
    loader = loader_of(Reads(failing="valid-0"), prefetch=prefetch)
    batches = loader.batches([*plan_evaluation(TRAIN, batch_size=60), *plan_evaluation(VALID, batch_size=60)])
    assert [len(next(batches).targets) for _ in range(2)] == [60, 60]
    with pytest.raises(StorageError, match="valid-0: no such file"):
        next(batches)


def test_no_thread_outlives_the_iteration() -> None:
    before = threading.active_count()
    batches = loader_of(Reads(), prefetch=4).batches(plan_epoch(TRAIN, seed=0, epoch=0, batch_size=8))
    next(batches)
    assert threading.active_count() == before + 1
    batches.close()
    assert threading.active_count() == before


def test_a_graph_without_edges_has_no_neighbours_and_no_degrees() -> None:
    loader = loader_of(Reads(), edges=False)
    batch = next(loader.batches(plan_evaluation(VALID, batch_size=16)))
    assert [block.relations[0].block.csr.num_edges for block in batch.tensors.blocks] == [0, 0]
    assert len(batch.tensors.nodes.in_degree) == 16
    assert not batch.tensors.nodes.in_weight.any()
    assert not batch.tensors.nodes.in_degree.any()


def test_missing_labels_are_refused() -> None:
    def unlabelled(entry: ShardEntry) -> Shard:
        shard = GRAPH.read(entry)
        return Shard(shard.neighborhood, shard.rows, shard.targets, None)

    loader = loader_of(unlabelled, cache=0, prefetch=1)
    with pytest.raises(TrainingError, match="the graph has no labels"):
        list(loader.batches(plan_evaluation(VALID, batch_size=16)))


@pytest.mark.table(3)
@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize(("layers", "residual"), [(1, False), (2, True), (3, False)])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin"])
def test_aggregating_ahead_gives_the_rows_and_gradients_of_aggregating_in_the_step(
    kind: str, layers: int, residual: bool, edges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, plan = model_of(kind, layers=layers, residual=residual), plan_epoch(TRAIN, seed=0, epoch=0, batch_size=16)
    loader = loader_of(Reads(), model=model, edges=edges)
    ahead = list(loader.batches(plan, epoch=0))
    features = [loader.features(*each).dense for each in zip(plan, ahead, strict=True)]
    monkeypatch.setattr("gnnflow.train.minibatch.nodes.aggregates_ahead", lambda *_, **__: False)
    monkeypatch.setattr("gnnflow.executions.base.maps_first", lambda *_: False)
    loader = loader_of(Reads(), model=model, edges=edges)
    plain = list(loader.batches(plan, epoch=0))
    assert all(batch.tensors.first is not None and batch.tensors.features is None for batch in ahead)
    for one, two, rows_read in zip(ahead, plain, features, strict=True):
        assert torch.equal(rows_read, two.tensors.features.dense)
        rows = [layer_outputs(model, batch.tensors)[-1] for batch in (one, two)]
        torch.testing.assert_close(*rows, rtol=0, atol=0)
        gradients = [torch.autograd.grad(each.sum(), tuple(model.layers.parameters())) for each in rows]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("kind", "dropout"), [("gat", 0.0), ("sage", 0.5)])
def test_what_weights_or_draws_have_a_part_in_is_not_aggregated_ahead_in_training(kind: str, dropout: float) -> None:
    loader = loader_of(Reads(), model=model_of(kind, dropout=dropout))
    trained = next(loader.batches(plan_epoch(TRAIN, seed=0, epoch=0, batch_size=16), epoch=0))
    scored = next(loader.batches(plan_evaluation(TRAIN, batch_size=16)))
    assert trained.tensors.first is None
    assert (scored.tensors.first is None) == (kind == "gat")
