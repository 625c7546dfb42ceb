"""What GraphInfer stores and sends: packed rows in an order that depends on the model alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnflow.config import GATConfig, GCNConfig, SAGEConfig
from gnnflow.executions import sliced
from gnnflow.executions.plan import TermLayout, plan_layer
from gnnflow.executions.sliced.term_arrays import arrays_to_terms, terms_to_arrays
from gnnflow.graph.batch import Degrees
from gnnflow.layers import ModelInputs, build_model

MODEL = build_model(GATConfig(hidden=4, heads=2), ModelInputs(feature_width=5, num_outputs=3)).eval()


def columns(rows):
    ones = np.ones(rows, np.int64)
    return Degrees(ones, ones, ones.astype(np.float32))


def test_packed_terms_unpack_to_the_same_bits():
    h = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    source = sliced.term_slice(MODEL, 0, h=h, nodes=columns(6)).source
    layout = plan_layer(MODEL, 0).relations[0].source
    assert (layout.names, layout.shapes) == (("logit", "value"), ((2,), (2, 4)))
    packed = layout.pack(source)
    assert packed.shape == (6, layout.width)
    assert packed.dtype == np.float32
    unpacked = layout.unpack(packed)
    assert list(unpacked) == list(source) == ["logit", "value"]
    assert all(np.array_equal(unpacked[name], source[name]) for name in source)


def test_layouts_of_what_is_sent_and_of_what_is_kept():
    sent, kept = plan_layer(MODEL, 0).relations[0].source, sliced.kept_terms(MODEL, 0)
    terms = sliced.term_slice(MODEL, 0, h=np.zeros((2, 5), np.float32), nodes=columns(2))
    assert sent.names == tuple(terms.source)
    assert kept == sliced.KeptTerms(TermLayout(("logit",), ((2,),)), {})
    packed = kept.layout.pack(kept.of(terms.target))
    assert np.array_equal(kept.layout.unpack(packed)["logit"], terms.target["logit"])


def test_a_target_term_that_is_a_source_terms_rows_is_kept_once():
    """Else GraphSAGE writes its rows twice; of rows that are mapped first, and so other ones, none is left out."""
    h, nodes = np.random.default_rng(0).random((3, 4), np.float32), columns(3)
    for hidden, same in ((4, {"h": "value"}), (3, {})):
        config = SAGEConfig(hidden=hidden, layers=2)
        model = build_model(config, ModelInputs(feature_width=4, num_outputs=hidden)).eval()
        terms, kept = sliced.term_slice(model, 0, h=h, nodes=nodes), sliced.kept_terms(model, 0)
        assert kept.same == same
        whole = kept.whole(terms.source, kept.of(terms.target))
        assert all(np.array_equal(whole.target[name], terms.target[name]) for name in terms.target)


def test_terms_survive_the_way_through_arrays():
    terms = {"b": torch.randn(3, 2, 4), "a": torch.randn(3)}
    back = arrays_to_terms(terms_to_arrays(terms))
    assert list(back) == ["a", "b"]
    assert all(torch.equal(back[name], terms[name]) for name in terms)


def test_a_partition_without_nodes_has_slices_too():
    h = np.zeros((0, 5), np.float32)
    terms = sliced.term_slice(MODEL, 0, h=h, nodes=columns(0))
    assert plan_layer(MODEL, 0).relations[0].source.pack(terms.source).shape == (0, 10)
    assert sliced.prediction_slice(MODEL, [None, np.zeros((0, 3), np.float32)]).shape == (0, 3)


def test_terms_that_are_source_terms_rows_come_back_whole_where_a_partition_has_no_nodes():
    """A scoring of fewer nodes than partitions ended here; whole runs of tests have no empty partition."""
    model = build_model(SAGEConfig(hidden=4, layers=2), ModelInputs(feature_width=4, num_outputs=4)).eval()
    terms, kept = (
        sliced.term_slice(model, 0, h=np.zeros((0, 4), np.float32), nodes=columns(0)),
        sliced.kept_terms(model, 0),
    )
    assert kept.same
    whole = kept.whole(terms.source, kept.of(terms.target))
    assert {name: rows.shape for name, rows in whole.target.items()} == {
        name: rows.shape for name, rows in terms.target.items()
    }


def test_slices_of_a_model_in_training_mode_are_refused():
    model = build_model(GCNConfig(), ModelInputs(feature_width=5, num_outputs=3))
    with pytest.raises(AssertionError, match=r"call model\.eval\(\) first"):
        sliced.term_slice(model, 0, h=np.zeros((1, 5), np.float32), nodes=columns(1))
