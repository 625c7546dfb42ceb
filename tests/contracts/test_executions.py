"""Every layer on every execution equals the plain definition: forward to 1e-5, gradients to 1e-4."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config import GCNConfig, model_from_dict
from gnnflow.executions import minibatch, reference, sliced
from gnnflow.graph.batch import Block
from gnnflow.graph.errors import LayerError
from gnnflow.layers import ModelInputs, build_model
from tests.contracts.in_memory import (
    EDGE_WIDTH,
    FEATURE_WIDTH,
    GraphShape,
    graph_shapes,
    mini_batch,
    rows_of,
    sampled_blocks,
    whole_graph,
)

OWN = "tests.contracts.own_layers"
LAYERS = {
    "gcn": {"kind": "gcn"},
    "sage-mean": {"kind": "sage"},
    "sage-max": {"kind": "sage", "aggregator": "max"},
    "gat": {"kind": "gat", "heads": 3, "output_heads": 2},
    "gin": {"kind": "gin"},
    "gat_e": {"kind": "gat_e", "heads": 2, "activation": "elu"},
    "own-message": {"kind": f"{OWN}:Gated"},
    "own-message-mean": {"kind": f"{OWN}:GatedMean"},
}
ARCHITECTURES = st.fixed_dictionaries(
    {
        "head": st.sampled_from(["direct", "linear", "jumping"]),
        "encoder": st.sampled_from(["none", "linear"]),
        "layers": st.integers(1, 3),
    }
)
EVERY_LAYER = pytest.mark.parametrize("layer", LAYERS)
FEW = settings(max_examples=20)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On graphs this small a second thread only makes the first one wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model_for(layer, architecture, shape):
    torch.manual_seed(shape.seed)
    config = model_from_dict({"hidden": 4, **LAYERS[layer], **architecture})
    inputs = ModelInputs(FEATURE_WIDTH, num_outputs=3, sparse=shape.sparse, attribute_width=EDGE_WIDTH)
    return build_model(config, inputs).eval()


def some_targets(shape):
    rng = np.random.default_rng(shape.seed)
    return rng.permutation(shape.num_nodes)[: rng.integers(1, shape.num_nodes + 1)]


def assert_equal(actual, expected, tolerance=1e-5):
    bound = tolerance * max(1.0, float(expected.detach().abs().max())) if expected.numel() else tolerance
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=bound)


@EVERY_LAYER
@FEW
@given(shape=graph_shapes(), architecture=ARCHITECTURES)
def test_minibatch_equals_reference(layer, shape, architecture):
    graph, model = whole_graph(shape), model_for(layer, architecture, shape)
    targets = some_targets(shape)
    batch = mini_batch(graph, targets, per_layer=[graph.adjacency] * model.num_layers)
    expected, actual = reference.forward(model, graph)[targets], minibatch.forward(model, batch)
    assert_equal(actual, expected)

    blame = torch.randn(expected.shape)
    parameters = dict(model.named_parameters())
    wanted = torch.autograd.grad((expected * blame).sum(), list(parameters.values()), allow_unused=True)
    found = torch.autograd.grad((actual * blame).sum(), list(parameters.values()), allow_unused=True)
    for name, want, have in zip(parameters, wanted, found, strict=True):
        assert (want is None) == (have is None), name
        if want is not None:
            assert_equal(have, want, tolerance=1e-4)


@EVERY_LAYER
@FEW
@given(shape=graph_shapes(), architecture=ARCHITECTURES)
def test_minibatch_of_a_sample_equals_reference_of_that_sample(layer, shape, architecture):
    graph, model = whole_graph(shape), model_for(layer, architecture, shape)
    sampled = sampled_blocks(graph, num_layers=model.num_layers, seed=shape.seed)
    targets = some_targets(shape)
    with torch.no_grad():
        expected = reference.forward(model, graph, sampled=sampled)[targets]
        actual = minibatch.forward(model, mini_batch(graph, targets, per_layer=sampled))
    assert_equal(actual, expected)


@EVERY_LAYER
@FEW
@given(shape=graph_shapes(), architecture=ARCHITECTURES, partitions=st.integers(1, 4), sample=st.booleans())
def test_slices_over_any_partitioning_equal_reference(layer, shape, architecture, partitions, sample):
    graph, model = whole_graph(shape), model_for(layer, architecture, shape)
    blocks = [graph.adjacency] * model.num_layers
    if sample:
        blocks = sampled_blocks(graph, num_layers=model.num_layers, seed=shape.seed)
    owner = np.random.default_rng(shape.seed).integers(0, partitions, shape.num_nodes)
    with torch.no_grad():
        outputs = reference.layer_outputs(model, graph, sampled=blocks)
        expected = model.predict(outputs), model.embedding(outputs)
    logits, embedding = run_slices(model, graph, blocks, owner)
    assert_equal(torch.from_numpy(logits), expected[0])
    assert_equal(torch.from_numpy(embedding), expected[1])


def run_slices(model, graph, blocks, owner):
    """GraphInfer in memory: partitions meet only in the packed source terms."""
    partitions = [np.flatnonzero(owner == part) for part in np.unique(owner)]
    rows = [sliced.encode_slice(model, graph.features.take(nodes)) for nodes in partitions]
    outputs = [[] for _ in partitions]
    for index in range(model.num_layers):
        layout = sliced.term_layout(model, index)
        terms = [
            sliced.term_slice(model, index, h=h, nodes=graph.nodes.take(nodes))
            for h, nodes in zip(rows, partitions, strict=True)
        ]
        sent = np.zeros((len(owner), layout.width), np.float32)
        for nodes, own in zip(partitions, terms, strict=True):
            sent[nodes] = layout.pack(own.source)
        for part, nodes in enumerate(partitions):
            block, needed = rows_of(blocks[index], nodes)
            received = layout.unpack(sent[needed])
            rows[part] = sliced.layer_slice(model, index, own=terms[part].target, source=received, block=block)
            outputs[part].append(rows[part])
    order = np.argsort(np.concatenate(partitions))
    logits = np.concatenate([sliced.prediction_slice(model, read(model.head_layers, out)) for out in outputs])
    embedding = np.concatenate([sliced.embedding_slice(model, read(model.embedding_layers, out)) for out in outputs])
    return logits[order], embedding[order]


def read(indices, outputs):
    return [output if index in indices else None for index, output in enumerate(outputs)]


@EVERY_LAYER
@FEW
@given(shape=graph_shapes(), parts=st.integers(1, 4))
def test_states_of_parts_of_a_hub_merge_to_the_whole(layer, shape, parts):
    graph, model = whole_graph(shape), model_for(layer, {"head": "linear", "layers": 1}, shape)
    rng = np.random.default_rng(shape.seed)
    h = rng.normal(size=(shape.num_nodes, model.layer(0).in_width)).astype(np.float32)
    terms = sliced.term_slice(model, 0, h=h, nodes=graph.nodes)
    whole = sliced.layer_slice(model, 0, own=terms.target, source=terms.source, block=graph.adjacency)

    salt = rng.integers(0, parts, graph.adjacency.num_edges)
    pieces = [edges_where(graph.adjacency, salt == part) for part in range(parts)]
    states = [sliced.partial_slice(model, 0, own=terms.target, source=terms.source, block=piece) for piece in pieces]
    finished = sliced.finish_slice(
        model,
        0,
        own=terms.target,
        own_source=terms.source,
        states=states,
        edge_width=EDGE_WIDTH,
        has_weight=shape.weighted,
    )
    assert_equal(torch.from_numpy(finished), torch.from_numpy(whole))


def edges_where(block, keep):
    targets = np.repeat(np.arange(block.num_targets), np.diff(block.offsets))[keep]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=block.num_targets))])
    weight = None if block.edge_weight is None else block.edge_weight[keep]
    return Block(
        block.num_targets, block.num_sources, offsets, block.sources[keep], weight, block.edge_attributes[keep]
    )


def test_an_aggregation_without_merge_runs_in_batches_and_is_refused_by_slices():
    shape = GraphShape(4, ((0, 1), (2, 1), (3, 1), (1, 2), (0, 2), (2, 2)), seed=3)
    graph = whole_graph(shape)
    model = build_model(
        model_from_dict({"kind": f"{OWN}:MedianLayer", "hidden": 4}), ModelInputs(FEATURE_WIDTH, 3)
    ).eval()
    with torch.no_grad():
        expected = reference.forward(model, graph)
        actual = minibatch.forward(model, mini_batch(graph, np.arange(4), per_layer=[graph.adjacency] * 2))
    assert_equal(actual, expected)
    with pytest.raises(LayerError, match="layer 1 aggregates with Median, whose states do not merge"):
        sliced.check_sliceable(model)


def test_a_batch_for_another_depth_is_refused():
    graph = whole_graph(GraphShape(2, ((0, 1),), seed=0))
    model = build_model(GCNConfig(hidden=4, layers=2), ModelInputs(FEATURE_WIDTH, 3))
    with pytest.raises(LayerError, match=r"2 layers and the batch 1 blocks.*flat\.hops equal model\.layers"):
        minibatch.forward(model, mini_batch(graph, np.arange(2), per_layer=[graph.adjacency]))


@EVERY_LAYER
def test_training_repeats_bit_for_bit_from_the_same_seed(layer):
    rng = np.random.default_rng(1)
    shape = GraphShape(40, tuple(map(tuple, rng.integers(0, 40, (300, 2)).tolist())), seed=1)
    graph, architecture = whole_graph(shape), {"head": "direct", "layers": 2, "dropout": 0.5}
    batch = mini_batch(graph, np.arange(20), per_layer=[graph.adjacency] * 2)
    gradients = []
    for _ in range(2):
        model = model_for(layer, architecture, shape).train()
        torch.manual_seed(7)
        minibatch.forward(model, batch).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert all(torch.equal(first, second) for first, second in zip(*gradients, strict=True))


def test_attention_drops_normalised_coefficients():
    degree, rate = 1000, 0.25
    edges = tuple((source, 0) for source in range(degree))
    shape = GraphShape(degree, edges, seed=0)
    graph = whole_graph(shape)
    model = model_for("gat", {"head": "direct", "layers": 1, "dropout": 0.0, "attention_dropout": rate}, shape)
    layer = model.layer(0)
    with torch.no_grad():
        layer.attend_source.zero_()
        layer.attend_target.zero_()
    batch = mini_batch(graph, np.array([0]), per_layer=[graph.adjacency])
    model.train()
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([minibatch.forward(model, batch) for _ in range(60)])
        model.eval()
        expected = minibatch.forward(model, batch)
    spread = float(draws.std(0).max())
    assert spread > 0
    torch.testing.assert_close(draws.mean(0), expected, rtol=0, atol=4 * spread / np.sqrt(60))
