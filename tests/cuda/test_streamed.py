"""A graph that stays with the machine and is trained on by a card: the plain definition's results within the budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional

from gnnflow.config import model_from_dict
from gnnflow.executions import reference, streamed
from gnnflow.executions.table import EXECUTIONS
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.layers.saved import decode_weights
from gnnflow.progress import Silent
from gnnflow.train.streamed import source
from gnnflow.train.streamed.budget import Plan, plan
from gnnflow.train.streamed.card import Card
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import by_id, even_sizes
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import ON_CARD
from gnnflow.train.trainer import train
from tests.budget import examples
from tests.contracts.adapters import Case, closing_streams, on_stream
from tests.contracts.in_memory import graph_shapes, whole_graph
from tests.contracts.test_executions import (
    ARCHITECTURES,
    FEW,
    LAYER_OBJECTS,
    assert_equal,
    assert_gradients_equal,
    gradients,
    model_for,
    some_targets,
)
from tests.train.globalbatch.stored import job_for, write

LAYERS = [name for name, layer in LAYER_OBJECTS.items() if EXECUTIONS["streamed"].supports(layer) is None]


def brought(graph):
    return graph.on_card(Card(torch.device("cuda", 0)))


@pytest.mark.parametrize("layer", LAYERS)
@settings(FEW, max_examples=examples(4))
@given(shape=graph_shapes(), architecture=ARCHITECTURES)
def test_scores_and_gradients_on_the_card_equal_reference(layer, shape, architecture):
    graph, targets = whole_graph(shape), some_targets(shape)
    model = model_for(layer, architecture, shape)
    expected = reference.forward(model, graph)[targets]
    blame = torch.randn(expected.shape)
    wanted = gradients(model, expected, blame)
    case = Case(graph, [graph.adjacency] * model.num_layers, targets, shape.seed)
    model.to("cuda")
    with closing_streams():
        actual = on_stream(model, case, brought=brought, folder=None).logits
        assert actual.device.type == "cuda"
        assert_equal(actual.cpu(), expected)
        found = gradients(model, actual, blame.cuda())
    assert_gradients_equal({name: None if each is None else each.cpu() for name, each in found.items()}, wanted)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streamed")
    write(folder)
    return folder


@pytest.mark.parametrize("scratch", ["memory", "folder"])
@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_training_under_a_budget_is_that_in_memory_and_repeats_its_bytes(folder, monkeypatch, tmp_path, scratch, kind):
    monkeypatch.setattr(source, "plan", lambda *_, budget, **__: Plan(3, 30, budget, 0, budget))
    keys = {"memory": "1GiB", "device": "cuda", "scratch": str(tmp_path) if scratch == "folder" else None}
    model = {"kind": kind, "hidden": 8, "dropout": 0.0}
    expected = decode_weights(train(job_for(folder, model=model), progress=Silent()).weights)
    found = train(job_for(folder, model=model, **keys), progress=Silent())
    for name, value in decode_weights(found.weights).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-3, msg=name)
    dropped = [
        train(job_for(folder, model={**model, "dropout": 0.5}, **keys), progress=Silent()).weights for _ in range(2)
    ]
    assert dropped[0] == dropped[1]


@pytest.mark.parametrize("kind", [{"kind": "gcn"}, {"kind": "gat", "heads": 4}, {"kind": "sage", "aggregator": "max"}])
@pytest.mark.parametrize("mib", [350, 500])
def test_the_budget_is_kept_on_the_card(kind, mib):
    size = GraphSize((200_000,), (4_000_000,), 200_000, (64,), 0, (200_000, 4_000_000))
    inputs = ModelInputs(64, 8)
    model = build_model(model_from_dict({**kind, "hidden": 64, "layers": 2, "dropout": 0.5}), inputs).train()
    made = plan(model, size, budget=mib << 20, place=ON_CARD)
    assert made.intervals > 1
    rng = np.random.default_rng(0)
    degree = rng.multinomial(size.num_edges, np.full(size.num_nodes, 1 / size.num_nodes))
    edges = InEdges(offsets_of(degree), rng.integers(0, size.num_nodes, size.num_edges))
    sizes = even_sizes(size.num_nodes, made.intervals)
    files = FileGraph.empty(Scratch(None), by_id(sizes), files=[0, 0], max_edges=made.max_edges, width=64, sparse=False)
    features = Features(64, dense=rng.standard_normal((size.num_nodes, 64), np.float32))
    nodes = Degrees(degree, degree, degree.astype(np.float32))
    files.add(0, blocks=[Block(edges, size.num_nodes)] * 2, features=features, nodes=nodes)
    graph = brought(files)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model.to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        logits = streamed.forward(model, graph, np.arange(size.num_nodes))
        functional.cross_entropy(logits, torch.zeros(size.num_nodes, dtype=torch.int64, device="cuda")).backward()
        optimizer.step()
        del logits
    grown = torch.cuda.max_memory_allocated() - before
    graph.scratch.close()
    assert grown <= mib << 20, f"{made.num_bytes >> 20} MiB planned, {grown >> 20} measured"
