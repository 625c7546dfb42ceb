"""Every kind of layer on every execution equals the plain definition on typed graphs too, whatever joins relations."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from gnnflow.config import model_from_dict
from gnnflow.executions import minibatch, reference
from gnnflow.executions.moving import mapped, tensors_of
from gnnflow.executions.table import EXECUTIONS
from gnnflow.executions.tensors import batch_tensors
from gnnflow.layers import ModelInputs, build_model
from tests.budget import examples
from tests.contracts.adapters import Case, ran_on
from tests.contracts.in_memory import EDGE_WIDTH, NUM_SETS, mini_batch
from tests.contracts.test_executions import (
    TRAINING,
    assert_equal,
    assert_gradients_equal,
    gradients,
    with_moved_norms,
)
from tests.contracts.typed_graphs import SCHEMA, TypedShape, sampled_relations, typed_graph, typed_shapes

pytestmark = pytest.mark.usefixtures("one_thread")

JOINED = {
    "gcn": {"kind": "gcn"},
    "sage": {"kind": "sage"},
    "sage-max": {"kind": "sage", "aggregator": "max"},
    "sage-sum": {"kind": "sage", "aggregator": "sum"},
    "gat": {"kind": "gat", "heads": 2},
    "gin": {"kind": "gin"},
    "gat_e": {"kind": "gat_e", "heads": 2},
    "pinsage": {"kind": "pinsage"},
    "magnn": {"kind": "magnn", "heads": 2},
    "magnn-rotate": {"kind": "magnn", "heads": 2, "encodes": "rotate"},
    "ggcn": {"kind": "ggcn"},
    "pgnn": {"kind": "pgnn"},
    "pgnn-positions": {"kind": "pgnn", "anchor_sets": NUM_SETS},
    "own-instance": {"kind": "tests.contracts.own_layers:Contrast"},
    "own-positions": {"kind": "tests.contracts.own_layers:ByPlace"},
    "own-message": {"kind": "tests.contracts.own_layers:Gated"},
    "rgcn": {"kind": "rgcn"},
    "rgcn-bases": {"kind": "rgcn", "bases": 2},
    "han": {"kind": "han", "heads": 2},
}
KINDS = {
    f"{name} {across}": {**keys, "across": across}
    for name, keys in JOINED.items()
    for across in ("sum", "mean", "max", "attention", "concat")
} | {"hgt": {"kind": "hgt", "heads": 2}, "ggnn": {"kind": "ggnn"}}
ARCHITECTURES = st.fixed_dictionaries(
    {
        "head": st.sampled_from(["direct", "linear", "jumping"]),
        "layers": st.integers(1, 3),
        "norm": st.sampled_from(["none", "layer"]),
        "residual": st.booleans(),
    }
)
# Relations of these share the map of the values, so that where all in-edges come from one node their rows are equal but
# for rounding, and which of them is the largest, and gets the gradient, is chance.
TIED = {"han max", "magnn max", "magnn-rotate max"}
UNIT_LENGTH = ("pgnn", "pinsage")  # kinds whose rows are divided by their length
FEW = settings(max_examples=examples(4), phases=[Phase.reuse, Phase.generate, Phase.shrink])


def model_for(kind, architecture, shape):
    torch.manual_seed(shape.seed)
    config = model_from_dict({"hidden": 4, **KINDS[kind], **architecture})
    leaves = tuple(each or 2 for each in shape.leaves) or None
    inputs = ModelInputs(0, num_outputs=3, attribute_width=EDGE_WIDTH, typed=shape.inputs, leaves=leaves)
    return build_model(config, inputs).eval()


def some_users(shape, graph):
    """Some nodes of the type that is scored, in any order."""
    rng = np.random.default_rng(shape.seed)
    types = np.zeros(len(graph.nodes), np.int64) if graph.nodes.types is None else graph.nodes.types
    users = np.flatnonzero(types == shape.schema.types.index("user"))
    return rng.permutation(users)[: rng.integers(1, len(users) + 1)]


def has_short(rows):
    """Whether a row is nearly nothing: terms that cancel out, whose direction is rounding, and a gradient times 1e2."""
    length = rows.norm(dim=1)
    return bool(((length > 0) & (length < 1e-2)).any())


@pytest.mark.table(46)
@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(shape=typed_shapes(), architecture=ARCHITECTURES, sample=st.booleans())
def test_scores_of_a_typed_graph_equal_reference(execution, kind, shape, architecture, sample):
    graph, model = typed_graph(shape), model_for(kind, architecture, shape)
    targets, blocks = some_users(shape, graph), [graph.adjacency] * model.num_layers
    if sample:
        blocks = sampled_relations(graph, num_layers=model.num_layers, seed=shape.seed)
    with torch.no_grad():
        outputs = [rows[targets] for rows in reference.layer_outputs(model, graph, sampled=blocks)]
        # of rows that are divided twice, weights another rounding apart give scores 3e-5 apart
        is_divided = kind.startswith(UNIT_LENGTH) and architecture["norm"] != "none"
        tolerance = 1e-4 if is_divided else 1e-5
        with ran_on(execution, model, Case(graph, blocks, targets, shape.seed)) as ran:
            assert_equal(ran.logits, model.predict(outputs), tolerance)
            assert_equal(ran.embedding, model.embedding(outputs), tolerance)


@pytest.mark.table(34)
@pytest.mark.parametrize("execution", TRAINING)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in TIED])
@FEW
@given(shape=typed_shapes(), architecture=ARCHITECTURES)
def test_gradients_on_a_typed_graph_equal_reference(execution, kind, shape, architecture):
    graph, model = typed_graph(shape), with_moved_norms(model_for(kind, architecture, shape))
    targets = some_users(shape, graph)
    with mock.patch.object(functional, "normalize", wraps=functional.normalize) as normalize:
        expected = reference.forward(model, graph)[targets]
    assume(not any(has_short(call.args[0]) for call in normalize.call_args_list))
    blame = torch.randn(expected.shape)
    # a norm divides by a row's deviation, unit length by its length, and rows may be drawn where these are small
    is_divided = architecture.get("norm", "none") != "none" or kind.startswith(UNIT_LENGTH)
    tolerance = 1e-3 if is_divided else 1e-4
    with ran_on(execution, model, Case(graph, [graph.adjacency] * model.num_layers, targets, shape.seed)) as ran:
        found = gradients(model, ran.logits, blame)
    assert_gradients_equal(found, gradients(model, expected, blame), tolerance)


def test_a_typed_batch_is_moved_whole():
    shape = TypedShape(SCHEMA, (3,) * SCHEMA.num_types, (9,) * SCHEMA.num_relations, seed=2)
    graph, model = typed_graph(shape), model_for("gat sum", {"layers": 2}, shape)
    batch = mini_batch(graph, some_users(shape, graph), per_layer=[graph.adjacency] * 2)
    tensors = batch_tensors(batch, model.inputs.schema)
    moved = mapped(tensors, torch.Tensor.clone)
    minibatch.sort_for_backward(model, moved)
    held = {each.data_ptr() for each in tensors_of(tensors) if each.numel()}
    assert not held & {each.data_ptr() for each in tensors_of(moved) if each.numel()}
    assert torch.equal(minibatch.forward(model, moved), minibatch.forward(model, batch))


@pytest.mark.parametrize("kind", ["sage sum", "rgcn-bases sum", "han attention", "hgt"])
def test_training_on_a_typed_graph_repeats_bit_for_bit_from_the_same_seed(kind):
    shape = TypedShape(SCHEMA, (20,) * SCHEMA.num_types, (80,) * SCHEMA.num_relations, seed=1)
    graph, runs = typed_graph(shape), []
    case = Case(graph, [graph.adjacency] * 2, some_users(shape, graph), shape.seed)
    for _ in range(2):
        model = model_for(kind, {"layers": 2, "dropout": 0.5}, shape).train()
        torch.manual_seed(7)
        with ran_on("minibatch", model, case) as ran:
            ran.logits.square().sum().backward()
        runs.append([each.grad for each in model.parameters() if each.grad is not None])
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))
