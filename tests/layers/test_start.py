"""A model starts from another's weights where they fit, and what differs is said where they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.graph.errors import LayerError, StorageError
from gnnflow.layers import ModelInputs, build_model
from gnnflow.layers.model import ModelSpec
from gnnflow.layers.saved import encode_weights
from gnnflow.layers.start import Start, differences, start_from

INPUTS = ModelInputs(feature_width=5, num_outputs=3, attribute_width=2)


def built(seed=0, inputs=INPUTS, **keys):
    torch.manual_seed(seed)
    return build_model(model_from_dict({"kind": "gat", "hidden": 4, "heads": 2, **keys}), inputs)


def start_of(model):
    return Start("small/1", "0123456789abcdef", encode_weights(model.state_dict()))


def equal(first, second):
    return {name: torch.equal(first[name], held) for name, held in second.items() if first[name].shape == held.shape}


@pytest.mark.parametrize("head", ["direct", "linear", "jumping"])
def test_all_weights_are_taken_over_where_the_task_is_as_wide(head):
    theirs, ours = built(head=head, norm="layer", residual=True), built(1, head=head, norm="layer", residual=True)
    assert start_from(ours, start_of(theirs)) == "starts from the weights of small/1 (digest 0123456789ab)"
    assert all(equal(ours.state_dict(), theirs.state_dict()).values())


@pytest.mark.parametrize(("head", "scores"), [("direct", "layers.1."), ("linear", "head."), ("jumping", "head.")])
def test_scores_of_another_width_start_from_the_seed(head, scores):
    theirs, ours = built(head=head), built(1, head=head, inputs=replace(INPUTS, num_outputs=7))
    before = {name: held.clone() for name, held in ours.state_dict().items()}
    assert start_from(ours, start_of(theirs)).endswith("scores has another width there and starts from the seed")
    for name, held in ours.state_dict().items():
        wanted = before if name.startswith(scores) else theirs.state_dict()
        assert torch.equal(held, wanted[name]), name


@pytest.mark.parametrize(
    ("keys", "inputs", "said"),
    [
        ({"hidden": 8}, INPUTS, ("model.hidden is 8, there 4",)),
        ({"layers": 3, "norm": "layer"}, INPUTS, ("model.layers is 3, there 2", "model.norm is 'layer', there 'none'")),
        ({"head": "linear"}, INPUTS, ("model.head is 'linear', there 'direct'",)),
        ({"activation": "elu"}, INPUTS, ("model.activation is 'elu', there 'relu'",)),
        (
            {},
            replace(INPUTS, feature_width=6, sparse=True),
            ("feature width is 6, there 5", "sparse is True, there False"),
        ),
        ({"dropout": 0.1, "attention_dropout": 0.2}, replace(INPUTS, num_outputs=9), ()),
    ],
)
def test_what_differs_is_said_and_what_acts_in_training_alone_may_differ(keys, inputs, said):
    theirs = built()
    config = model_from_dict({**theirs.config.model_dump(), **keys})
    assert differences(config, ModelSpec(theirs.config, theirs.inputs), inputs=inputs) == said


def test_another_kind_lists_the_keys_it_lacks():
    theirs = built()
    gcn = model_from_dict({"kind": "gcn", "hidden": 4})
    found = differences(gcn, ModelSpec(theirs.config, theirs.inputs))
    assert found[0] == "model.kind is 'gcn', there 'gat'"
    assert "model.heads is 'not set', there 2" in found


def test_weights_that_do_not_fit_and_damaged_ones_are_refused():
    ours = built()
    with pytest.raises(LayerError, match=r"small/1 do not fit .*layers\.0\.linear\.weight is \[8, 5\], there \[8, 6\]"):
        start_from(ours, start_of(built(inputs=replace(INPUTS, feature_width=6))))
    with pytest.raises(StorageError, match=r"small/1: not a weights file"):
        start_from(ours, replace(start_of(ours), weights=b"torn"))
