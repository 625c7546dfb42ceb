"""The whole graph as one batch, divided among ranks: what is computed, what is sent, and what ends it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnflow.executions import globalbatch, reference
from gnnflow.executions.globalbatch import PlacedTensors, active_rows, takes_states
from gnnflow.executions.table import EXECUTIONS
from tests.contracts.among_ranks import batch_of, divided, outputs_on_ranks, own_rows
from tests.contracts.dividing import KINDS
from tests.contracts.in_memory import GraphShape, whole_graph
from tests.contracts.in_process import AbandonedError, Table, on_ranks
from tests.contracts.test_executions import (
    LAYER_OBJECTS,
    NO_EDGES,
    ONE_LAYER,
    assert_equal,
    assert_gradients_equal,
    gradients,
    model_for,
)
from tests.contracts.test_relations import model_for as typed_model_for
from tests.contracts.typed_graphs import SCHEMA, TypedShape, typed_graph

pytestmark = pytest.mark.usefixtures("one_thread")

RNG = np.random.default_rng(3)
EDGES = tuple(map(tuple, RNG.integers(0, 60, (500, 2)).tolist()))
DEEP = {"head": "linear", "layers": 3, "norm": "layer", "residual": True}
RUN = [name for name, layer in LAYER_OBJECTS.items() if EXECUTIONS["globalbatch"].supports(layer) is None]


def chain(length):
    """Node i + 1 reads node i alone."""
    return GraphShape(length, tuple((node, node + 1) for node in range(length - 1)), seed=0)


@pytest.mark.table(3)
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("layer", RUN)
def test_outputs_and_gradients_on_any_number_of_ranks_equal_reference(layer, ranks):
    shape = GraphShape(60, EDGES, seed=ranks, weighted=True, leaves=0 if layer.startswith("own") else 1)
    graph, model, targets = whole_graph(shape), model_for(layer, DEEP, shape), np.arange(7, 31)
    of = divided(graph, [graph.adjacency] * 3, targets, size=ranks, seed=ranks)
    logits, _ = outputs_on_ranks(model, of, size=ranks)
    expected = reference.forward(model, graph)[targets]
    blame = torch.randn(expected.shape)
    assert_equal(logits, expected)
    assert_gradients_equal(gradients(model, logits, blame), gradients(model, expected, blame))


@pytest.mark.table(2)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", ["gcn", "gat", "own-median"])
def test_partitions_of_every_kind_equal_reference(layer, kind, ranks):
    shape = GraphShape(60, EDGES, seed=ranks, weighted=True, leaves=0 if layer.startswith("own") else 1)
    graph, model, targets = whole_graph(shape), model_for(layer, DEEP, shape), np.arange(7, 31)
    of = divided(graph, [graph.adjacency] * 3, targets, size=ranks, seed=ranks, kind=kind)
    assert kind == "chance" or np.diff(of.bounds).min() > 0
    logits, _ = outputs_on_ranks(model, of, size=ranks)
    expected = reference.forward(model, graph)[targets]
    blame = torch.randn(expected.shape)
    assert_equal(logits, expected)
    assert_equal((logits * blame).sum(), (expected * blame).sum())
    assert_gradients_equal(gradients(model, logits, blame), gradients(model, expected, blame))


PLACED = [name for name in RUN if takes_states(model_for(name, ONE_LAYER, NO_EDGES), 0) is None]


@pytest.mark.table(10)
@pytest.mark.parametrize(("ranks", "placement"), [(2, "source"), (4, "source"), (4, "grid")])
@pytest.mark.parametrize("layer", PLACED)
def test_states_of_placed_edges_equal_reference(layer, ranks, placement, monkeypatch):
    monkeypatch.setattr("gnnflow.executions.globalbatch.batch.is_fewer_bytes", lambda *_, **__: True)
    shape = GraphShape(60, EDGES, seed=ranks, weighted=True, leaves=1)
    graph, model, targets = whole_graph(shape), model_for(layer, DEEP, shape), np.arange(7, 31)
    of = divided(graph, [graph.adjacency] * 3, targets, size=ranks, seed=ranks, kind="hash", placement=placement)
    batches = on_ranks(ranks, lambda exchange: batch_of(model, of, exchange))
    assert all(isinstance(each, PlacedTensors) for batch in batches for each in batch.layers)
    expected = reference.forward(model, graph)[targets]
    blame = torch.randn(expected.shape)
    wanted = gradients(model, expected, blame)
    for recompute in (False, True) if layer in {"gcn", "gat"} else (False,):
        logits, _ = outputs_on_ranks(model, of, size=ranks, recompute=recompute)
        assert_equal(logits, expected)
        assert_gradients_equal(gradients(model, logits, blame), wanted)


@pytest.mark.table(4)
@pytest.mark.parametrize("placement", ["source", "grid"])
def test_ranks_without_edges_or_targets_take_part_where_edges_are_placed(placement, monkeypatch):
    monkeypatch.setattr("gnnflow.executions.globalbatch.batch.is_fewer_bytes", lambda *_, **__: True)
    shape = GraphShape(8, ((1, 0), (7, 0), (2, 1), (5, 7)), seed=0)
    graph, targets = whole_graph(shape), np.array([0])
    for layer in ("gin", "sage-mean", "gcn", "gat", "sage-max", "own-message"):
        model = model_for(layer, {"layers": 3, "head": "direct"}, shape)
        expected = reference.forward(model, graph)[targets]
        blame = torch.ones_like(expected)
        wanted = gradients(model, expected, blame)
        for seed in range(6):
            of = divided(graph, [graph.adjacency] * 3, targets, size=4, seed=seed, placement=placement)
            logits, _ = outputs_on_ranks(model, of, size=4)
            assert_equal(logits, expected)
            assert_gradients_equal(gradients(model, logits, blame), wanted)


def test_states_are_sent_where_they_are_fewer_and_rows_where_these_are():
    model = model_for("sage-mean", {"layers": 1, "head": "direct"}, GraphShape(60, (), seed=0))
    into_one, from_one = tuple((node, 30) for node in range(30)), tuple((0, node) for node in range(30, 60))
    for edges, are_states in ((into_one, True), (from_one, False)):
        graph = whole_graph(GraphShape(60, edges, seed=0))
        of = divided(graph, [graph.adjacency], np.arange(60), size=2, seed=0, kind="range", placement="source")
        table = Table(2)

        def moved(exchange, of=of, table=table):
            batch, before = batch_of(model, of, exchange), table.moved_bytes
            with torch.no_grad():
                globalbatch.forward(model, batch, exchange)
            return isinstance(batch.layers[0], PlacedTensors), table.moved_bytes - before

        found = on_ranks(2, moved, table=table)
        assert [placed for placed, _ in found] == [are_states] * 2
        # one row, or one state: a sum and a count
        assert max(sent for _, sent in found) <= 4 * (model.relations(0).in_width + 1)


# Ranks that are threads share a generator: what attention drops, behind the exchange, is asked of one rank alone.
@pytest.mark.parametrize(
    ("layer", "ranks"),
    [("gat", 1), *((layer, ranks) for layer in ("gcn", "sage-max", "own-message", "own-median") for ranks in (1, 4))],
)
def test_layers_computed_again_give_the_same_bits(layer, ranks):
    shape = GraphShape(60, EDGES, seed=1)
    graph, model = whole_graph(shape), model_for(layer, {**DEEP, "dropout": 0.5}, shape).train()
    of = divided(graph, [graph.adjacency] * 3, np.arange(20), size=ranks, seed=2)
    ran = []
    for recompute in (False, True):
        torch.manual_seed(4)
        logits, _ = outputs_on_ranks(model, of, size=ranks, recompute=recompute)
        found = gradients(model, logits, torch.ones_like(logits))
        ran.append([logits, *(each for each in found.values() if each is not None)])
    assert all(torch.equal(kept, again) for kept, again in zip(*ran, strict=True))


def test_layers_of_a_typed_graph_computed_again_give_the_same_bits():
    shape = TypedShape(SCHEMA, (9,) * SCHEMA.num_types, (40,) * SCHEMA.num_relations, seed=2)
    graph, model = typed_graph(shape), typed_model_for("gat sum", {"layers": 2, "dropout": 0.5}, shape).train()
    targets = np.flatnonzero(graph.nodes.types == 0)
    of = divided(graph, [graph.adjacency] * 2, targets, size=3, seed=2)
    ran = []
    for recompute in (False, True):
        torch.manual_seed(4)
        logits, _ = outputs_on_ranks(model, of, size=3, recompute=recompute)
        ran.append([logits, *gradients(model, logits, torch.ones_like(logits)).values()])
    kept, again = ([each for each in one if each is not None] for one in ran)
    assert all(torch.equal(*pair) for pair in zip(kept, again, strict=True))


def test_a_layer_computes_the_rows_that_still_reach_a_target_and_no_other():
    graph = whole_graph(chain(10))
    # the last node reads the one before, on another rank, and that one the one before it
    bounds = np.array([0, 9, 10])

    def sizes(exchange):
        own = np.arange(*bounds[exchange.rank : exchange.rank + 2])
        block = own_rows(graph.adjacency, own)
        targets = np.array([0]) if exchange.rank else np.array([], np.int64)
        rows = active_rows([block] * 3, targets, bounds=bounds, exchange=exchange)
        return [layer.block.num_targets for layer in rows.layers], sorted(own[rows.rows].tolist())

    assert on_ranks(2, sizes) == [([2, 1, 0], [6, 7, 8]), ([1, 1, 1], [9])]


def test_a_row_is_sent_once_however_many_edges_read_it():
    num_nodes, width = 40, 4
    hub = GraphShape(num_nodes, tuple((0, node) for node in range(num_nodes)) * 5, seed=0)
    graph = whole_graph(hub)
    model = model_for("gcn", {"head": "linear", "layers": 1, "hidden": width}, hub)
    number = np.random.default_rng(0).permutation(num_nodes)
    of = divided(graph, [graph.adjacency], np.arange(num_nodes), size=2, seed=0)
    owner = int(np.searchsorted(of.bounds, np.flatnonzero(number == 0)[0], side="right")) - 1
    table = Table(2)

    def sent(exchange):
        batch = batch_of(model, of, exchange)
        before = table.moved_bytes
        with torch.no_grad():
            globalbatch.forward(model, batch, exchange)
        return batch.layers[0].route.sent, table.moved_bytes - before

    routes = on_ranks(2, sent, table=table)
    assert sum(routes[owner][0]) == 1
    assert sum(routes[1 - owner][0]) == 0
    terms = model.relations(0).layer(0).transform(torch.zeros(1, model.relations(0).in_width), _one_node()).source
    columns = sum(each[0].numel() for each in terms.values())
    assert max(moved for _, moved in routes) <= 4 * max(columns, columns - model.relations(0).in_width + width)


def _one_node():
    from gnnflow.layers import NodeContext

    return NodeContext(*(torch.ones(1) for _ in range(3)))


def test_an_error_on_one_rank_ends_all_of_them():
    graph = whole_graph(GraphShape(20, tuple((node, (node * 7 + 1) % 20) for node in range(20)), seed=0))
    model = model_for("gcn", {"layers": 2}, GraphShape(20, (), seed=0))
    of = divided(graph, [graph.adjacency] * 2, np.arange(20), size=4, seed=1)

    def compute(exchange):
        batch = batch_of(model, of, exchange)
        if exchange.rank == 2:
            raise ValueError("the third rank's memory is full")
        return globalbatch.forward(model, batch, exchange)

    with pytest.raises(ValueError, match="the third rank's memory is full"):
        on_ranks(4, compute)


def test_a_rank_that_leaves_out_an_exchange_ends_the_others():
    def compute(exchange):
        if exchange.rank:
            exchange.begin(torch.zeros(0, 1), sent=[0, 0], received=[0, 0]).wait()

    with pytest.raises(AbandonedError, match="have ended without exchange 0"):
        on_ranks(2, compute)


def test_layers_over_the_same_rows_share_one_block():
    shape = GraphShape(60, EDGES, seed=1)
    graph, model = whole_graph(shape), model_for("sage-mean", {"layers": 4}, shape)
    of = divided(graph, [graph.adjacency] * 4, np.arange(60), size=2, seed=3)
    for batch in on_ranks(2, lambda exchange: batch_of(model, of, exchange)):
        assert all(layer.block is batch.layers[0].block for layer in batch.layers)
        assert all(layer.mirrored is batch.layers[0].mirrored for layer in batch.layers)


def test_a_rank_without_an_active_row_takes_part_in_every_exchange_back():
    # one target reads nodes of other ranks in the last layer; most ranks compute nothing in some layer
    shape = GraphShape(8, ((1, 0), (7, 0), (2, 1), (5, 7)), seed=0)
    graph, targets = whole_graph(shape), np.array([0])
    for layer in ("gin", "sage-mean", "gcn", "own-median"):
        model = model_for(layer, {"layers": 3, "head": "direct"}, shape)
        expected = reference.forward(model, graph)[targets]
        blame = torch.ones_like(expected)
        wanted = gradients(model, expected, blame)
        for seed in range(6):
            of = divided(graph, [graph.adjacency] * 3, targets, size=4, seed=seed)
            logits, _ = outputs_on_ranks(model, of, size=4)
            assert_equal(logits, expected)
            assert_gradients_equal(gradients(model, logits, blame), wanted)
