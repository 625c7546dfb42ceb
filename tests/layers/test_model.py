"""A model's pieces have the widths and order that its spec asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnflow.graph.errors import LayerError
from gnnflow.layers import FeatureTensors, ModelSpec, build_model

SPEC = ModelSpec("gat", feature_width=7, num_outputs=3, hidden=4, num_layers=3, heads=2, output_heads=5)


def widths(spec):
    model = build_model(spec)
    return [(model.layer(index).in_width, model.layer(index).out_width) for index in range(model.num_layers)]


def test_attention_layers_widen_by_their_heads_and_the_last_averages_them():
    assert widths(SPEC) == [(7, 8), (8, 8), (8, 3)]
    assert widths(replace(SPEC, head="jumping")) == [(7, 8), (8, 8), (8, 4)]


def test_encoders_map_to_the_hidden_width():
    assert widths(replace(SPEC, kind="gcn", encoder="linear")) == [(4, 4), (4, 4), (4, 3)]
    assert widths(replace(SPEC, kind="gcn", sparse=True)) == [(4, 4), (4, 4), (4, 3)]


def test_a_jumping_head_reads_all_layers_side_by_side():
    model = build_model(replace(SPEC, head="jumping")).eval()
    outputs = [torch.randn(2, width) for width in (8, 8, 4)]
    assert model.head_layers == (0, 1, 2)
    assert torch.equal(model.embedding(outputs), torch.cat(outputs, 1))
    assert torch.equal(model.predict(outputs), model.head(torch.cat(outputs, 1)))


def test_a_direct_head_scores_with_the_last_layer_and_embeds_with_the_one_before():
    model = build_model(SPEC)
    outputs = [None, torch.randn(2, 8), torch.randn(2, 3)]
    assert model.predict(outputs) is outputs[2]
    assert model.embedding(outputs) is outputs[1]
    assert torch.equal(model.post(2, -outputs[2].abs()), -outputs[2].abs())
    assert torch.equal(model.post(1, -outputs[1].abs()), torch.zeros(2, 8))


def test_sparse_and_dense_forms_of_the_same_features_encode_alike():
    model = build_model(replace(SPEC, sparse=True))
    offsets, index, value = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 4, 6]), torch.tensor([0.5, 2.0, -1.0])
    dense = torch.zeros(3, 7)
    dense[[0, 0, 2], index] = value
    encoded = model.encode(FeatureTensors(7, offsets=offsets, index=index, value=value))
    torch.testing.assert_close(encoded, dense @ model.encoder.weight + model.encoder.bias)


def test_the_same_seed_builds_the_same_parameters():
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(build_model(SPEC).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_dropout_acts_in_training_only():
    model = build_model(SPEC)
    h = torch.ones(50, 7)
    assert 0 in model.pre(0, h)
    assert torch.equal(model.eval().pre(0, h), h)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head": "jump"}, r"model\.head: 'jump' is no head. Use one of direct, linear, jumping"),
        ({"activation": "tanh"}, r"model\.activation: 'tanh' is no activation"),
        ({"hidden": 0}, "hidden is 0. It must be at least 1"),
    ],
)
def test_a_spec_that_cannot_be_built_is_explained(change, message):
    with pytest.raises(LayerError, match=message):
        build_model(replace(SPEC, **change))
