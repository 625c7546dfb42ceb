"""A model's pieces have the widths and order that its section of the config asks for."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace

import pytest
import torch

from gnnflow.config import GATConfig, GCNConfig, model_from_dict
from gnnflow.executions import reference
from gnnflow.executions.tensors import node_context
from gnnflow.graph.errors import LayerError
from gnnflow.layers import FeatureTensors, ModelInputs, build_model
from tests.contracts.in_memory import EDGE_WIDTH, FEATURE_WIDTH, GraphShape, whole_graph

GAT = GATConfig(hidden=4, layers=3, heads=2, output_heads=5)
JUMPING = GAT.model_copy(update={"head": "jumping"})
INPUTS = ModelInputs(feature_width=7, num_outputs=3)
SPARSE = replace(INPUTS, sparse=True)


def widths(config, inputs=INPUTS):
    model = build_model(config, inputs)
    return [(model.relations(index).in_width, model.relations(index).out_width) for index in range(model.num_layers)]


def test_attention_layers_widen_by_their_heads_and_the_last_averages_them():
    assert widths(GAT) == [(7, 8), (8, 8), (8, 3)]
    assert widths(JUMPING) == [(7, 8), (8, 8), (8, 4)]


def test_encoders_map_to_the_hidden_width():
    assert widths(GCNConfig(hidden=4, layers=3, encoder="linear")) == [(4, 4), (4, 4), (4, 3)]
    assert widths(GCNConfig(hidden=4, layers=3), SPARSE) == [(4, 4), (4, 4), (4, 3)]


def test_a_jumping_head_reads_all_layers_side_by_side():
    model = build_model(JUMPING, INPUTS).eval()
    outputs = [torch.randn(2, width) for width in (8, 8, 4)]
    assert model.head_layers == (0, 1, 2)
    assert torch.equal(model.embedding(outputs), torch.cat(outputs, 1))
    assert torch.equal(model.predict(outputs), model.head(torch.cat(outputs, 1)))


def test_a_direct_head_scores_with_the_last_layer_and_embeds_with_the_one_before():
    model = build_model(GAT, INPUTS)
    outputs = [None, torch.randn(2, 8), torch.randn(2, 3)]
    assert model.predict(outputs) is outputs[2]
    assert model.embedding(outputs) is outputs[1]
    assert torch.equal(model.post(2, -outputs[2].abs(), None), -outputs[2].abs())
    assert torch.equal(model.post(1, -outputs[1].abs(), None), torch.zeros(2, 8))


def test_sparse_and_dense_forms_of_the_same_features_encode_alike():
    model = build_model(GAT, SPARSE)
    offsets, index, value = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 4, 6]), torch.tensor([0.5, 2.0, -1.0])
    dense = torch.zeros(3, 7)
    dense[[0, 0, 2], index] = value
    encoded = model.encode(FeatureTensors(7, offsets=offsets, index=index, value=value))
    torch.testing.assert_close(encoded, dense @ model.encoder.weight + model.encoder.bias)


def test_the_same_seed_builds_the_same_parameters():
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(build_model(GAT, INPUTS).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_dropout_acts_in_training_only():
    model = build_model(GAT, INPUTS)
    h = torch.ones(50, 7)
    assert 0 in model.pre(0, h)
    assert torch.equal(model.eval().pre(0, h), h)


JOINED = {"norm": "layer", "residual": True, "dropout": 0.0}


@pytest.mark.table(2)
@pytest.mark.parametrize("head", ["direct", "linear", "jumping"])
@pytest.mark.parametrize("kind", ["gcn", "gat", "sage", "gin", "tests.contracts.own_layers:Gated"])
def test_a_residual_layer_with_norm_is_that_of_pyg(kind, head):
    pyg = pytest.importorskip("torch_geometric.nn", reason="needs gnnflow[pyg]")
    graph = whole_graph(GraphShape(5, ((0, 1), (2, 1), (3, 4), (1, 0), (4, 4)), seed=1))
    config = model_from_dict({"kind": kind, "hidden": 4, "layers": 3, "head": head, **JOINED})
    model = build_model(config, ModelInputs(FEATURE_WIDTH, 3, attribute_width=EDGE_WIDTH)).eval()
    for norm in model.norms.values():
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    node, h = node_context(graph.nodes), torch.from_numpy(graph.features.dense)
    outputs = reference.layer_outputs(model, graph)
    for index in range(2 if head == "direct" else 3):
        layer = functools.partial(
            reference.layer_output, model.relations(index).layer(0), node=node, block=graph.adjacency
        )
        if model.relations(index).in_width != model.relations(index).out_width:  # theirs has no residual between widths
            plain = pyg.DeepGCNLayer(layer, model.norms[str(index)], torch.relu, block="plain")(h)
            expected = plain + h @ model.joins[str(index)].weight.T
        else:
            expected = pyg.DeepGCNLayer(layer, model.norms[str(index)], torch.relu, block="res")(h)
        torch.testing.assert_close(outputs[index], expected)
        h = outputs[index]


def test_a_layer_that_gives_the_scores_has_neither_norm_nor_residual():
    direct = build_model(GCNConfig(layers=2, norm="layer", residual=True), INPUTS)
    linear = build_model(GCNConfig(layers=2, norm="layer", residual=True, head="linear"), INPUTS)
    assert (set(direct.norms), set(direct.joins)) == ({"0"}, {"0"})
    assert (set(linear.norms), set(linear.joins)) == ({"0", "1"}, {"0"})
    assert direct.shortcut(1, torch.ones(2, 64)) is None
    assert torch.equal(linear.shortcut(1, torch.ones(2, 64)), torch.ones(2, 64))


def test_norm_and_residual_leave_the_draws_of_all_other_weights_alone():
    states = []
    for keys in ({}, JOINED):
        torch.manual_seed(3)
        states.append(build_model(model_from_dict({"kind": "gat", "layers": 3, "head": "linear", **keys}), INPUTS))
    plain, joined = (model.state_dict() for model in states)
    assert set(plain) < set(joined)
    assert all(torch.equal(plain[name], joined[name]) for name in plain)


def test_keys_that_came_later_are_written_where_they_are_set():
    assert not {"norm", "residual"} & set(GAT.model_dump(mode="json"))
    later = GATConfig(norm="layer", residual=True)
    assert {"norm": "layer", "residual": True}.items() <= later.model_dump(mode="json").items()
    assert model_from_dict(later.model_dump(mode="json")) == later


@pytest.mark.parametrize("change", [{"feature_width": 0}, {"num_outputs": -1}])
def test_inputs_that_no_model_has_are_explained(change):
    with pytest.raises(LayerError, match=r"is (0|-1)\. It must be at least 1"):
        build_model(GAT, replace(INPUTS, **change))


@pytest.mark.parametrize(
    ("keys", "sparse", "digest"),
    [
        ({"kind": "gcn"}, False, "ec0b0e063c01f7e6"),
        ({"kind": "sage", "layers": 3}, False, "fb82c32822314cfd"),
        ({"kind": "sage", "aggregator": "max"}, True, "cc5ca51c243e0ff4"),
        ({"kind": "gat", "heads": 2, "output_heads": 5, "layers": 3}, False, "95ae8030dc67babe"),
        ({"kind": "gin", "head": "linear"}, False, "f03fafaaf1433486"),
        ({"kind": "gat_e", "heads": 2, "head": "jumping"}, False, "cbd2edaf54048e90"),
        ({"kind": "tests.contracts.own_layers:Gated", "encoder": "linear"}, False, "9b37006714055f2e"),
    ],
)
def test_initial_weights_stay_the_same_bit_for_bit(keys, sparse, digest):
    torch.manual_seed(3)
    inputs = ModelInputs(feature_width=7, num_outputs=3, sparse=sparse, attribute_width=2)
    state = build_model(model_from_dict({"hidden": 4, **keys}), inputs).state_dict()
    content = b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in state.items())
    assert hashlib.sha256(content).hexdigest()[:16] == digest
