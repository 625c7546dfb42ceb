"""Edges written out one by one for `reference.py`, and what is aggregated over them by plain index operations.

Shapes: N nodes, E edges, L leaves of all edges, H heads, D width of a head, A edge attributes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.executions.tensors import tensor
from gnnflow.graph.batch import Block
from gnnflow.kernels import Csr
from gnnflow.layers import Aggregation, EdgeContext, Max, Mean, Messages, Slots, SoftmaxAttention, Sum


@dataclass(frozen=True)
class EdgeList:
    """Edges by their targets [E] and sources, self messages included where the layer has them.

    sources [L]: of each leaf; leaf_of and place [L]: the edge that it is a leaf of, and its place there. Edges without
    leaves have one. scale [E]: of its uniform sample, for sums. drawn [E]: how many edges each stands for in a weighted
    sample.
    """

    sources: Tensor
    leaf_of: Tensor
    place: Tensor
    has_leaves: bool
    targets: Tensor
    edge: EdgeContext
    scale: Tensor
    drawn: Tensor
    num_nodes: int


def edge_list(block: Block, *, include_self: bool) -> EdgeList:
    """Return a block's edges one by one, after them each node's message to itself where it is included."""
    assert block.num_targets == block.num_sources, "the reference reads blocks over all nodes"
    offsets, num_nodes = tensor(block.edges.offsets), block.num_targets
    edge = EdgeContext(block.num_edges, tensor(block.edges.weight), tensor(block.edges.attributes))
    # target of each edge [E], and the sample's scale of each node [N]
    targets = torch.repeat_interleave(offsets.diff())
    scale = torch.ones(num_nodes) if block.sample_scale is None else tensor(block.sample_scale)
    drawn = torch.ones(block.num_edges) if block.edge_scale is None else tensor(block.edge_scale)
    counts = tensor(block.edges.leaf_counts)
    # for each leaf [L]: its edge, and its place among the leaves of the edge
    leaf_of = torch.repeat_interleave(counts)
    place = torch.arange(len(leaf_of)) - (counts.cumsum(0) - counts)[leaf_of]
    edges = EdgeList(
        tensor(block.edges.sources),
        leaf_of,
        place,
        bool((counts != 1).any()),
        targets,
        edge,
        scale[targets],
        drawn,
        num_nodes,
    )
    return _with_self(edges) if include_self else edges


def _with_self(edges: EdgeList) -> EdgeList:
    # one more edge for each node, after all others: from the node to itself, of one leaf [N]
    loops = torch.arange(edges.num_nodes)
    own = edges.edge.self_edges(edges.num_nodes)
    context = EdgeContext(
        edges.edge.num_edges + edges.num_nodes,
        None if own.weight is None or edges.edge.weight is None else torch.cat([edges.edge.weight, own.weight]),
        None
        if own.attributes is None or edges.edge.attributes is None
        else torch.cat([edges.edge.attributes, own.attributes]),
    )
    return EdgeList(
        torch.cat([edges.sources, loops]),
        torch.cat([edges.leaf_of, edges.edge.num_edges + loops]),
        torch.cat([edges.place, torch.zeros_like(loops)]),
        edges.has_leaves,
        torch.cat([edges.targets, loops]),
        context,
        torch.cat([edges.scale, torch.ones(edges.num_nodes)]),
        torch.cat([edges.drawn, torch.ones(edges.num_nodes)]),
        edges.num_nodes,
    )


def over_leaves(kind: Aggregation, rows: Tensor, edges: EdgeList) -> Tensor:
    """Return the sum of each edge's leaves [E, ...]. rows [L, ...]: of the leaves. No leaves are zeros."""
    empty = rows.new_zeros(edges.edge.num_edges, *rows.shape[1:])
    if isinstance(kind, Max):
        # the edge of each number of the leaves' rows [L, ...]
        index = edges.leaf_of.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
        return empty.scatter_reduce(0, index, rows, "amax", include_self=False)
    assert isinstance(kind, Sum | Mean), "no plainer definition of this is known"
    total = empty.index_add(0, edges.leaf_of, rows)
    if isinstance(kind, Sum):
        return total
    counts = torch.bincount(edges.leaf_of, minlength=len(empty)).clamp(min=1)
    return total / counts.view(-1, *[1] * (rows.dim() - 1))


def aggregate(kind: Aggregation, coefficient: Tensor, message: Tensor, edges: EdgeList, dropout: float) -> Tensor:
    """Return the aggregated rows of each node [N, H, D]. coefficient [E, H], message [E, H, D]: of the edges."""
    if isinstance(kind, SoftmaxAttention):
        coefficient = _softmax(coefficient, edges)
    if isinstance(kind, Mean | Sum):
        coefficient = coefficient * edges.drawn[:, None]
    if isinstance(kind, Mean):
        # the sum of coefficients of each edge's target [E, H]
        total = _sum(coefficient, edges)[edges.targets]
        # weights that add up to one at each target [E, H]
        coefficient = torch.where(total == 0, 0.0, coefficient / torch.where(total == 0, 1.0, total))
    if isinstance(kind, Sum):
        coefficient = coefficient * edges.scale[:, None]
    rows = functional.dropout(coefficient, dropout)[:, :, None] * message
    if isinstance(kind, Slots):
        assert edges.edge.attributes is not None
        # side by side, the sum of each slot [N, H, K x D]
        slot = edges.edge.attributes[:, 0].long()
        parts = [_sum(rows * (slot == number)[:, None, None], edges) for number in range(kind.number)]
        return torch.cat(parts, 2)
    if isinstance(kind, Sum | Mean | SoftmaxAttention):
        return _sum(rows, edges)
    if isinstance(kind, Max):
        return _max(rows, edges, empty=0.0)
    return _own_aggregation(kind, rows, edges)


def _sum(rows: Tensor, edges: EdgeList) -> Tensor:
    return rows.new_zeros(edges.num_nodes, *rows.shape[1:]).index_add(0, edges.targets, rows)


def _max(rows: Tensor, edges: EdgeList, *, empty: float) -> Tensor:
    # the target of each number of the edges' rows [E, ...]
    index = edges.targets.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
    filled = rows.new_full((edges.num_nodes, *rows.shape[1:]), empty)
    return filled.scatter_reduce(0, index, rows, "amax", include_self=False)


def _softmax(logit: Tensor, edges: EdgeList) -> Tensor:
    # weight of each edge and head, relative to the largest logit of its target [E, H]
    shifted = (logit - _max(logit.detach(), edges, empty=0.0)[edges.targets]).exp() * edges.drawn[:, None]
    return shifted / _sum(shifted, edges)[edges.targets]


def _own_aggregation(kind: Aggregation, rows: Tensor, edges: EdgeList) -> Tensor:
    # An aggregation we do not know has no plainer definition than its own, over all messages at once.
    # edges grouped by target [E], and where each target's begin [N + 1]
    order = torch.argsort(edges.targets, stable=True)
    offsets = torch.searchsorted(edges.targets[order], torch.arange(edges.num_nodes + 1))
    csr = Csr(offsets, order, len(order))
    return kind.finalize(kind.partial(Messages(csr, rows, scale=edges.drawn[order])))
