"""Propagation is the same however messages are cut, and says which shape is wrong."""

from __future__ import annotations

import pytest
import torch

from gnnflow.executions.propagate import finished, partial_state
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.errors import LayerError
from gnnflow.kernels import Csr
from gnnflow.layers import GATE, EdgeContext, Layer, NodeContext, Sum, Terms
from tests.contracts.own_layers import Gated, GatedMean, MedianLayer

TARGETS, SOURCES, EDGES = 6, 10, 60


def block_with_a_hub(attributes=None):
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(TARGETS - 1, (EDGES,), generator=generator)
    targets[: EDGES // 2] = 2
    offsets = torch.searchsorted(targets.sort().values, torch.arange(TARGETS + 1))
    csr = Csr(offsets, torch.randint(SOURCES, (EDGES,), generator=generator), SOURCES)
    weight = torch.rand(EDGES, generator=generator) + 0.5
    return BlockTensors(csr, EdgeContext(EDGES, weight, attributes), torch.full((TARGETS,), 2.0))


def aggregate(layer, block, **how):
    h = torch.randn(SOURCES, 4, generator=torch.Generator().manual_seed(1))
    ones = torch.ones(SOURCES)
    terms = layer.transform(h, NodeContext(ones, ones, ones))
    own = {name: rows[:TARGETS] for name, rows in terms.target.items()}
    state = partial_state(layer, source=terms.source, target=own, block=block, **how)
    return finished(layer, state, source=terms.source, target=own, edge=block.edge)


@pytest.mark.parametrize("kind", [Gated, GatedMean])
@pytest.mark.parametrize("edges_per_piece", [1, 7, 25])
def test_cutting_the_messages_changes_neither_rows_nor_gradients(kind, edges_per_piece):
    torch.manual_seed(0)
    layer, block = kind(4, 3), block_with_a_hub()
    parameters = list(layer.parameters())
    whole, cut = aggregate(layer, block), aggregate(layer, block, edges_per_piece=edges_per_piece)
    torch.testing.assert_close(cut, whole)
    wanted = torch.autograd.grad(whole.square().sum(), parameters, allow_unused=True)
    found = torch.autograd.grad(cut.square().sum(), parameters, allow_unused=True)
    torch.testing.assert_close(found, wanted)


def test_dropout_inside_recomputed_messages_is_the_same_in_both_directions():
    """Sum of messages is linear in the value, so the gradient of its bias counts the kept messages: value / bias."""

    class Dropped(Gated):
        def __init__(self, in_width, out_width):
            super().__init__(in_width, out_width)
            self.coefficient_dropout = 0.5

    torch.manual_seed(0)
    layer, block = Dropped(4, 3), block_with_a_hub()
    with torch.no_grad():
        layer.value.weight.zero_()
        layer.value.bias.fill_(1.0)
    rows = aggregate(layer, block, edges_per_piece=5)
    rows.sum().backward()
    torch.testing.assert_close(layer.value.bias.grad, rows.sum((0, 1)).detach())


def test_an_aggregation_that_cannot_merge_keeps_each_target_whole():
    layer, block = MedianLayer(4, 3), block_with_a_hub()
    torch.testing.assert_close(aggregate(layer, block, edges_per_piece=3), aggregate(layer, block))


def test_messages_in_pieces_keep_no_row_per_edge_for_the_backward_pass():
    """What autograd saves between the passes stays under the size of one materialised message per edge."""
    edges, width = 50_000, 32
    csr = Csr(torch.tensor([0, edges, edges]), torch.zeros(edges, dtype=torch.int64), 2)
    block, layer = BlockTensors(csr, EdgeContext(edges), None), Gated(4, width)
    ones = torch.ones(2)
    terms = layer.transform(torch.randn(2, 4), NodeContext(ones, ones, ones))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda rows: kept.append(rows.numel()) or rows, lambda rows: rows):
        partial_state(layer, source=terms.source, target=terms.target, block=block, edges_per_piece=1000)
    assert sum(kept) < edges


class Flat(Layer):
    aggregation = Sum()

    def transform(self, h, node):
        return Terms({"value": h}, {})

    def coefficient(self, source, target, edge):
        return edge.weight_column(source["value"])

    def update(self, own, aggregated):
        return aggregated


class Nameless(Flat):
    def transform(self, h, node):
        return Terms({"rows": h}, {})


class PerNode(Flat):
    def transform(self, h, node):
        return Terms({"value": h[:, None]}, {})

    def coefficient(self, source, target, edge):
        return edge.weight


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Flat(4, 4), r'Flat: transform\(\)\'s source term "value" has shape \[10, 4\], expected \[10, any, any\]'),
        (Nameless(4, 4), r"Nameless: transform\(\) gave the source terms rows, without value"),
        (PerNode(4, 4), r"PerNode: coefficient\(\) has shape \[60\], expected \[60, any\]"),
        (GATE(4, 4, attribute_width=2), r"GATE: it needs edge attributes and the graph has none.*graph\.edge_features"),
    ],
)
def test_rows_of_the_wrong_shape_are_named(layer, message):
    with pytest.raises(LayerError, match=message):
        aggregate(layer, block_with_a_hub())


@pytest.mark.parametrize("kind", [Gated, GatedMean, MedianLayer])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_scale_that_nothing_would_apply_is_refused(kind, side):
    class Scaled(kind):
        def transform(self, h, node):
            terms = super().transform(h, node)
            getattr(terms, side)["scale"] = node.in_degree
            return terms

    with pytest.raises(LayerError, match='a term "scale", which only a sum of coefficient x value takes'):
        aggregate(Scaled(4, 3), block_with_a_hub())


def test_the_same_inputs_give_the_same_bits():
    torch.manual_seed(0)
    layer = GATE(4, 3, attribute_width=2, heads=2)
    block = block_with_a_hub(attributes=torch.randn(EDGES, 2))
    runs = []
    for _ in range(2):
        rows = aggregate(layer, block)
        runs.append((rows, *torch.autograd.grad(rows.square().sum(), list(layer.parameters()), allow_unused=True)))
    for first, second in zip(*runs, strict=True):
        assert (first is None and second is None) or torch.equal(first, second)
