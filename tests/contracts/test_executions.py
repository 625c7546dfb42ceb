"""Every layer on every execution equals the plain definition: forward to 1e-5, gradients to 1e-4.

A new layer is a line in `LAYERS`; a new execution a row in `EXECUTIONS` and a function in `adapters.py`.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from gnnflow.config import PIPELINES, MiniBatchConfig, model_from_dict
from gnnflow.executions import minibatch, reference, sliced
from gnnflow.executions.base import BlockPart, OneBlock, maps_first, terms_of
from gnnflow.executions.plan import EdgeColumns
from gnnflow.executions.relations import RelationPass, run_passes
from gnnflow.executions.table import EXECUTIONS, check_model, executions_of
from gnnflow.executions.tensors import BlockTensors, block_tensors, node_context
from gnnflow.graph.batch import Block
from gnnflow.graph.errors import LayerError
from gnnflow.layers import EdgeContext, ModelInputs, build_model
from gnnflow.layers.terms import TypeRows
from tests.budget import examples
from tests.contracts.adapters import ADAPTERS, Case, closing_streams, ran_on
from tests.contracts.in_memory import (
    EDGE_WIDTH,
    FEATURE_WIDTH,
    NUM_SETS,
    GraphShape,
    graph_shapes,
    mini_batch,
    sampled_blocks,
    whole_graph,
)

OWN = "tests.contracts.own_layers"
LAYERS = {
    "gcn": {"kind": "gcn"},
    "sage-mean": {"kind": "sage"},
    "sage-max": {"kind": "sage", "aggregator": "max"},
    "sage-sum": {"kind": "sage", "aggregator": "sum"},
    "gat": {"kind": "gat", "heads": 3, "output_heads": 2},
    "gin": {"kind": "gin"},
    "gat_e": {"kind": "gat_e", "heads": 2, "activation": "elu"},
    "rgcn": {"kind": "rgcn"},
    "rgcn-bases": {"kind": "rgcn", "bases": 4},
    "han": {"kind": "han", "heads": 2},
    "hgt": {"kind": "hgt", "heads": 2},
    "pinsage": {"kind": "pinsage"},
    "magnn": {"kind": "magnn", "heads": 2},
    "magnn-rotate": {"kind": "magnn", "heads": 2, "encodes": "rotate", "encoder": "linear"},
    "ggcn": {"kind": "ggcn"},
    "ggnn": {"kind": "ggnn"},
    "pgnn": {"kind": "pgnn"},
    "pgnn-positions": {"kind": "pgnn", "anchor_sets": NUM_SETS},
    "own-instance": {"kind": f"{OWN}:Contrast"},
    "own-positions": {"kind": f"{OWN}:ByPlace"},
    "own-message": {"kind": f"{OWN}:Gated"},
    "own-message-mean": {"kind": f"{OWN}:GatedMean"},
    "own-median": {"kind": f"{OWN}:MedianLayer"},
    "own-median-and-self": {"kind": f"{OWN}:MedianAndSelf"},
    "own-median-with-self": {"kind": f"{OWN}:MedianWithSelf"},
}
# PyG's, around which a layer is made. Edge attributes, attention with self-loops, edge weights, a perceptron.
PYG = {
    "pyg-sage": {"kind": "torch_geometric.nn:SAGEConv"},
    "pyg-gatv2": {
        "kind": "torch_geometric.nn:GATv2Conv",
        "options": {"heads": 2, "concat": False, "edge_dim": EDGE_WIDTH},
    },
    "pyg-gin": {"kind": "torch_geometric.nn:GINConv", "options": {"train_eps": True}},
    "pyg-graph": {"kind": "torch_geometric.nn:GraphConv"},
    "pyg-transformer": {
        "kind": "torch_geometric.nn:TransformerConv",
        "options": {"heads": 2, "concat": False, "beta": True},
    },
    "pyg-le": {"kind": "torch_geometric.nn:LEConv"},
}
HAS_PYG = importlib.util.find_spec("torch_geometric") is not None
LAYERS |= PYG if HAS_PYG else {}
ARCHITECTURES = st.fixed_dictionaries(
    {
        "head": st.sampled_from(["direct", "linear", "jumping"]),
        "encoder": st.sampled_from(["none", "linear"]),
        "layers": st.integers(1, 3),
        "norm": st.sampled_from(["none", "layer"]),
        "residual": st.booleans(),
    }
)
# Without the phase that traces why an example fails: every gap fails, and tracing takes seconds.
FEW = settings(max_examples=examples(20), phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink])
ONE_LAYER = {"head": "linear", "layers": 1}
NO_EDGES = GraphShape(1, (), seed=0)
PLAIN = {"head": "direct", "encoder": "none", "layers": 1, "norm": "none", "residual": False}
# Node 2 has an edge of one leaf, itself, and none of several, which another block's node has: PyG's self-loop is one.
OWN_LEAF = GraphShape(3, (*[(0, 0)] * 11, (0, 2), (2, 2)), seed=92, leaves=0)
JOINED = {"norm": "layer", "residual": True}


pytestmark = pytest.mark.usefixtures("one_thread")


def model_for(layer, architecture, shape):
    torch.default_generator.manual_seed(shape.seed)  # `torch.manual_seed` asks every kind of device, in a millisecond
    config = model_from_dict({"hidden": 4, **architecture, **LAYERS[layer]})
    # what is of paths of one length takes those of other lengths for such, as reference does
    leaves = (shape.leaves or 2,)
    inputs = ModelInputs(FEATURE_WIDTH, num_outputs=3, sparse=shape.sparse, attribute_width=EDGE_WIDTH, leaves=leaves)
    return build_model(config, inputs).eval()


def with_moved_norms(model):
    """Return the model, whose norms add something to each number.

    A fresh norm makes of -x, 0 and x a number that is zero but for rounding: it is chance whether a relu then lets its
    gradient by.
    """
    with torch.no_grad():
        for parameter in model.norms.parameters():
            parameter.add_(torch.empty_like(parameter).uniform_(0.1, 0.5))
    return model


LAYER_OBJECTS = {name: model_for(name, ONE_LAYER, NO_EDGES).relations(0).layer(0) for name in LAYERS}
TRAINING = sorted({*(pipeline.execution for pipeline in PIPELINES.values()), "streamed"})
MERGEABLE = [name for name, layer in LAYER_OBJECTS.items() if layer.levels.instance.mergeable]


def every_layer_on(executions):
    """Every pair of an execution and a layer; a pair that the table gives a reason against must fail."""
    pairs = []
    for execution in executions:
        for name, layer in LAYER_OBJECTS.items():
            reason = EXECUTIONS[execution].supports(layer)
            gap = [] if reason is None else [pytest.mark.xfail(reason=reason, raises=LayerError, strict=True)]
            pairs.append(pytest.param(execution, name, marks=gap, id=f"{execution} x {name}"))
        absent = [] if HAS_PYG else PYG
        missing = pytest.mark.skip(reason="needs gnnflow[pyg]")
        pairs += [pytest.param(execution, name, marks=missing, id=f"{execution} x {name}") for name in absent]
    return pytest.mark.parametrize(("execution", "layer"), pairs)


def some_targets(shape):
    rng = np.random.default_rng(shape.seed)
    return rng.permutation(shape.num_nodes)[: rng.integers(1, shape.num_nodes + 1)]


def assert_equal(actual, expected, tolerance=1e-5):
    bound = tolerance * max(1.0, float(expected.detach().abs().max())) if expected.numel() else tolerance
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=bound)


def gradients(model, logits, blame):
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad((logits * blame).sum(), list(parameters.values()), allow_unused=True)
    return dict(zip(parameters, found, strict=True))


def assert_gradients_equal(found, wanted, tolerance=1e-4):
    for name, want in wanted.items():
        assert (want is None) == (found[name] is None), name
        if want is not None:
            assert_equal(found[name], want, tolerance)


@every_layer_on(EXECUTIONS)
@FEW
@given(shape=graph_shapes(), architecture=ARCHITECTURES, sample=st.booleans())
@example(shape=OWN_LEAF, architecture=PLAIN, sample=False)
def test_scores_equal_reference(execution, layer, shape, architecture, sample):
    graph, model, targets = whole_graph(shape), model_for(layer, architecture, shape), some_targets(shape)
    blocks = [graph.adjacency] * model.num_layers
    if sample:
        blocks = sampled_blocks(graph, num_layers=model.num_layers, seed=shape.seed)
    with torch.no_grad():
        outputs = [rows[targets] for rows in reference.layer_outputs(model, graph, sampled=blocks)]
        with ran_on(execution, model, Case(graph, blocks, targets, shape.seed)) as ran:
            assert_equal(ran.logits, model.predict(outputs))
            assert_equal(ran.embedding, model.embedding(outputs))


@every_layer_on(TRAINING)
@FEW
@given(shape=graph_shapes(), architecture=ARCHITECTURES)
def test_gradients_equal_reference(execution, layer, shape, architecture):
    graph, targets = whole_graph(shape), some_targets(shape)
    model = with_moved_norms(model_for(layer, architecture, shape))
    expected = reference.forward(model, graph)[targets]
    blame = torch.randn(expected.shape)
    with ran_on(execution, model, Case(graph, [graph.adjacency] * model.num_layers, targets, shape.seed)) as ran:
        found = gradients(model, ran.logits, blame)
    assert_gradients_equal(found, gradients(model, expected, blame))


def test_every_execution_has_an_adapter():
    assert list(ADAPTERS) == list(EXECUTIONS)


def test_a_model_is_refused_with_layer_execution_and_reason():
    model = model_for("own-median-with-self", ONE_LAYER, GraphShape(1, (), seed=0))
    check_model(model, names=["reference"])
    with pytest.raises(
        LayerError, match=r"layer 1, MedianWithSelf, cannot run on the execution sliced: include_self .* do not merge"
    ):
        check_model(model, names=["reference", "sliced"])


def test_a_strategy_needs_what_trains_by_it_and_what_scores():
    assert executions_of(MiniBatchConfig()) == ("minibatch", "sliced")


@pytest.mark.parametrize("layer", MERGEABLE)
@FEW
@given(shape=graph_shapes(), parts=st.integers(1, 4))
def test_states_of_parts_of_a_hub_merge_to_the_whole(layer, shape, parts):
    graph, model = whole_graph(shape), model_for(layer, ONE_LAYER | JOINED, shape)
    rng = np.random.default_rng(shape.seed)
    h = rng.normal(size=(shape.num_nodes, model.relations(0).in_width)).astype(np.float32)
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
        columns=EdgeColumns(shape.weighted, EDGE_WIDTH),
    )
    assert_equal(torch.from_numpy(finished), torch.from_numpy(whole))


def edges_where(block, keep):
    targets = np.repeat(np.arange(block.num_targets), block.edges.lengths)[keep]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=block.num_targets))])
    edges = block.edges.take(np.flatnonzero(keep), offsets=offsets)
    return Block(
        edges, block.num_sources, block.sample_scale, None if block.edge_scale is None else block.edge_scale[keep]
    )


@dataclass(frozen=True)
class Chunks:
    """Delivers the in-edges in parts, each with only the source rows it reads, as an execution that streams does."""

    blocks: list[BlockTensors]
    sources: list[torch.Tensor]  # per part the node of each of its source rows
    num_targets: int
    num_edges: int
    edge: EdgeContext

    def parts(self, layer, terms):
        for block, nodes in zip(self.blocks, self.sources, strict=True):
            yield BlockPart(block, {name: rows[nodes] for name, rows in terms.source.items()})


def chunks_of(block, salt):
    blocks, sources = [], []
    for number in np.unique(salt) if len(salt) else [0]:
        part = edges_where(block, salt == number)
        nodes, rows = np.unique(part.edges.sources, return_inverse=True)
        edges = replace(part.edges, sources=rows)
        blocks.append(block_tensors(replace(part, num_sources=len(nodes), edges=edges)))
        sources.append(torch.from_numpy(nodes))
    return Chunks(blocks, sources, block.num_targets, block.num_edges, block_tensors(block).edge)


def layer_rows_of(model, h, nodes, delivery):
    """Return the first layer's rows of all nodes, whose in-edges come as a delivery has them."""
    layer, number, dropped = model.relations(0).layer(0), delivery.num_targets, model.pre(0, h)
    first = maps_first(layer, h, number, delivery.num_edges)
    terms = terms_of(layer, dropped, nodes=nodes, num_targets=number, map_first=first)
    made = RelationPass(layer, terms, delivery, first)
    return run_passes(model, 0, lambda _: made, h=h, dropped=dropped, targets=TypeRows(number))


@pytest.mark.parametrize("layer", MERGEABLE)
@FEW
@given(shape=graph_shapes(), parts=st.integers(1, 4), sample=st.booleans())
def test_chunks_of_the_in_edges_give_the_rows_and_gradients_of_the_whole(layer, shape, parts, sample):
    shape = replace(shape, sparse=False)
    graph, model = whole_graph(shape), model_for(layer, ONE_LAYER | JOINED, shape)
    block = sampled_blocks(graph, num_layers=1, seed=shape.seed)[0] if sample else graph.adjacency
    salt = np.random.default_rng(shape.seed).integers(0, parts, block.num_edges)
    h, nodes = torch.randn(len(graph.nodes), model.relations(0).in_width), node_context(graph.nodes)
    blame = torch.randn(len(h), model.relations(0).out_width)
    ran = []
    for delivery in (chunks_of(block, salt), OneBlock(block_tensors(block))):
        rows = layer_rows_of(model, h, nodes, delivery)
        ran.append((rows, gradients(model, rows, blame)))
    (rows, found), (expected, wanted) = ran
    assert_equal(rows, expected)
    assert_gradients_equal(found, wanted)


def test_states_that_do_not_merge_are_not_computed_in_parts():
    shape = GraphShape(4, ((0, 1), (2, 1), (3, 1)), seed=3)
    graph, model = whole_graph(shape), model_for("own-median", ONE_LAYER, shape)
    terms = sliced.term_slice(model, 0, h=graph.features.dense, nodes=graph.nodes)
    with pytest.raises(LayerError, match="layer 1 aggregates with Median, whose states do not merge"):
        sliced.partial_slice(model, 0, own=terms.target, source=terms.source, block=graph.adjacency)
    with pytest.raises(LayerError, match="layer 1 aggregates with Median, whose states do not merge"):
        sliced.finish_slice(model, 0, own=terms.target, own_source=terms.source, states=[{}, {}])


@pytest.mark.parametrize("layer", [name for name in LAYERS if name not in MERGEABLE])
def test_a_layer_that_needs_all_in_edges_at_once_refuses_parts_of_them(layer):
    graph, model = whole_graph(GraphShape(4, ((0, 1), (2, 1), (3, 1)), seed=3)), model_for(layer, ONE_LAYER, NO_EDGES)
    h, nodes = torch.from_numpy(graph.features.dense), node_context(graph.nodes)
    with pytest.raises(LayerError, match=r"its targets' in-edges come in 2 parts, and states of \w+ do not merge"):
        layer_rows_of(model, h, nodes, chunks_of(graph.adjacency, np.array([0, 1, 1])))


def test_a_batch_for_another_depth_is_refused():
    graph = whole_graph(GraphShape(2, ((0, 1),), seed=0))
    model = model_for("gcn", {"layers": 2}, GraphShape(2, ((0, 1),), seed=0))
    with pytest.raises(LayerError, match=r"2 layers and the batch 1 blocks.*as many layers as the model has"):
        minibatch.forward(model, mini_batch(graph, np.arange(2), per_layer=[graph.adjacency]))


@every_layer_on(TRAINING)
def test_training_repeats_bit_for_bit_from_the_same_seed(execution, layer):
    rng = np.random.default_rng(1)
    shape = GraphShape(40, tuple(map(tuple, rng.integers(0, 40, (300, 2)).tolist())), seed=1)
    graph = whole_graph(shape)
    architecture = {"head": "direct", "layers": 2, "dropout": 0.5, "norm": "layer", "residual": True}
    case = Case(graph, [graph.adjacency] * 2, np.arange(20), shape.seed)
    runs = []
    for _ in range(2):
        model = model_for(layer, architecture, shape).train()
        torch.manual_seed(7)
        with ran_on(execution, model, case) as ran:
            ran.logits.square().sum().backward()
        runs.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


@pytest.mark.table(2)
@pytest.mark.parametrize("execution", TRAINING)
def test_attention_drops_normalised_coefficients(execution):
    degree, rate = 1000, 0.25
    edges = tuple((source, 0) for source in range(degree))
    shape = GraphShape(degree, edges, seed=1)
    graph = whole_graph(shape)
    model = model_for("gat", {"head": "direct", "layers": 1, "dropout": 0.0, "attention_dropout": rate}, shape)
    layer = model.relations(0).layer(0)
    with torch.no_grad():
        layer.attend_source.zero_()
        layer.attend_target.zero_()
    case = Case(graph, [graph.adjacency], np.array([0]), shape.seed)
    model.train()
    torch.manual_seed(0)
    with torch.no_grad(), closing_streams():
        draws = torch.stack([ADAPTERS[execution](model, case).logits for _ in range(60)])
        model.eval()
        expected = ADAPTERS[execution](model, case).logits
    spread = float(draws.std(0).max())
    assert spread > 0
    torch.testing.assert_close(draws.mean(0), expected, rtol=0, atol=4 * spread / np.sqrt(60))
