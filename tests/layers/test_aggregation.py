"""Aggregations are commutative monoids, whatever the messages and however they are split."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.graph.errors import LayerError
from gnnflow.kernels import Csr
from gnnflow.layers import Max, Mean, Messages, SoftmaxAttention, Sum
from tests.budget import examples

AGGREGATIONS = pytest.mark.parametrize(
    "aggregation", [Sum(), Mean(), Max(), SoftmaxAttention()], ids=lambda a: type(a).__name__
)
FEW = settings(max_examples=examples(20))
TARGETS, SOURCES, HEADS, WIDTH, ATTRIBUTES = 4, 6, 2, 3, 2


@st.composite
def edge_lists(draw):
    """Target and source of up to 20 edges, with a label per edge saying which part holds it."""
    edge = st.tuples(st.integers(0, TARGETS - 1), st.integers(0, SOURCES - 1), st.integers(0, 2))
    return torch.tensor(draw(st.lists(edge, max_size=20)), dtype=torch.int64).reshape(-1, 3), draw(st.integers(0, 99))


def messages_of(edges, seed, keep):
    """The messages of the edges where keep holds; an edge has the same message in every part."""
    generator = torch.Generator().manual_seed(seed)
    coefficient = torch.rand(len(edges), HEADS, generator=generator, dtype=torch.float64) + 0.1
    attributes = torch.randn(len(edges), ATTRIBUTES, generator=generator, dtype=torch.float64)
    value = torch.randn(SOURCES, HEADS, WIDTH, generator=generator, dtype=torch.float64)
    kept = torch.nonzero(keep).flatten()
    kept = kept[torch.argsort(edges[kept, 0], stable=True)]
    offsets = torch.searchsorted(edges[kept, 0].contiguous(), torch.arange(TARGETS + 1))
    return Messages(Csr(offsets, edges[kept, 1], SOURCES), value, coefficient[kept], attributes[kept])


def parts_of(aggregation, drawn):
    edges, seed = drawn
    whole = aggregation.partial(messages_of(edges, seed, torch.ones(len(edges), dtype=torch.bool)))
    return whole, [aggregation.partial(messages_of(edges, seed, edges[:, 2] == part)) for part in range(3)]


@AGGREGATIONS
@FEW
@given(drawn=edge_lists())
def test_any_split_of_the_edges_merges_to_the_whole(aggregation, drawn):
    whole, parts = parts_of(aggregation, drawn)
    torch.testing.assert_close(aggregation.finalize(aggregation.merge_all(parts)), aggregation.finalize(whole))


@AGGREGATIONS
@FEW
@given(drawn=edge_lists())
def test_merge_commutes_exactly_and_associates(aggregation, drawn):
    _, (a, b, c) = parts_of(aggregation, drawn)
    merge = aggregation.merge
    torch.testing.assert_close(merge(a, b), merge(b, a), rtol=0, atol=0)
    torch.testing.assert_close(merge(merge(a, b), c), merge(a, merge(b, c)))


@AGGREGATIONS
@FEW
@given(drawn=edge_lists())
def test_a_part_without_edges_merges_without_effect(aggregation, drawn):
    whole, _ = parts_of(aggregation, drawn)
    edges, seed = drawn
    nothing = aggregation.partial(messages_of(edges, seed, torch.zeros(len(edges), dtype=torch.bool)))
    torch.testing.assert_close(aggregation.merge(nothing, whole), whole, rtol=0, atol=0)


@AGGREGATIONS
def test_targets_without_edges_aggregate_to_zero(aggregation):
    edges = torch.empty(0, 3, dtype=torch.int64)
    state = aggregation.partial(messages_of(edges, 0, torch.empty(0, dtype=torch.bool)))
    assert torch.equal(
        aggregation.finalize(state), torch.zeros(TARGETS, HEADS, WIDTH + ATTRIBUTES, dtype=torch.float64)
    )


@AGGREGATIONS
@FEW
@given(drawn=edge_lists())
def test_only_sums_grow_when_a_sample_is_rescaled(aggregation, drawn):
    whole, _ = parts_of(aggregation, drawn)
    scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
    before, after = aggregation.finalize(whole), aggregation.finalize(aggregation.rescale(whole, scale))
    grown = before * scale[:, None, None] if isinstance(aggregation, Sum) else before
    torch.testing.assert_close(after, grown)


def test_huge_logits_neither_overflow_nor_lose_the_others():
    value = torch.tensor([[[1.0]], [[3.0]]])
    csr = Csr(torch.tensor([0, 1]), torch.tensor([0]), 2), Csr(torch.tensor([0, 1]), torch.tensor([1]), 2)
    aggregation = SoftmaxAttention()
    states = [
        aggregation.partial(Messages(part, value, torch.tensor([[logit]])))
        for part, logit in zip(csr, (5000.0, 5000.0), strict=True)
    ]
    assert aggregation.finalize(aggregation.merge_all(states)).item() == 2.0


def test_softmax_without_logits_is_refused():
    with pytest.raises(LayerError, match=r"needs a logit per edge.*coefficient\(\) return the logits"):
        SoftmaxAttention().partial(
            Messages(Csr(torch.tensor([0]), torch.tensor([], dtype=torch.int64), 0), torch.zeros(0, 1, 1))
        )


def test_dropout_under_a_maximum_is_refused():
    csr = Csr(torch.tensor([0]), torch.tensor([], dtype=torch.int64), 0)
    with pytest.raises(LayerError, match="no normalised coefficient to drop"):
        Max().partial(Messages(csr, torch.zeros(0, 1, 1), dropout=0.5))


@AGGREGATIONS
@FEW
@given(drawn=edge_lists(), weighted=st.booleans())
def test_rows_of_whole_targets_are_those_of_the_state(aggregation, drawn, weighted):
    edges, seed = drawn
    messages = messages_of(edges, seed, torch.ones(len(edges), dtype=torch.bool))
    if not weighted and not isinstance(aggregation, SoftmaxAttention):
        messages = replace(messages, coefficient=None)
    torch.testing.assert_close(aggregation.whole(messages), aggregation.finalize(aggregation.partial(messages)))
