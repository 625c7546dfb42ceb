"""The plain definition all executions are tested against: the whole graph in memory, every message written out.

It shares the layers' functions with the other executions and nothing else: gathers are indexing, sums are index_add,
self messages are edges appended to the list. On a typed graph each relation's layer runs over all nodes of the graph,
with the edges of its relation alone, and the rows of its target type are read. Slow and large on purpose.

Where edges have leaves, each leaf's terms are written out too, and added up per edge.

Shapes: N nodes, E edges, L leaves of all edges, H heads, D width of a head, A edge attributes, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.executions.tensors import feature_tensors, model_features, node_context, tensor, types_of
from gnnflow.graph.batch import Block, Degrees, NodeFeatures
from gnnflow.kernels import Csr
from gnnflow.layers import (
    Aggregation,
    EdgeContext,
    Layer,
    Max,
    Mean,
    Messages,
    Model,
    NodeContext,
    RelationLayers,
    Slots,
    SoftmaxAttention,
    Sum,
    Terms,
)
from gnnflow.layers.terms import GatheredTerms


@dataclass(frozen=True)
class WholeGraph:
    """A graph in memory: adjacency is a block whose N targets are its N sources, in the order of nodes and features."""

    adjacency: Block
    nodes: Degrees
    features: NodeFeatures


@dataclass(frozen=True)
class _EdgeList:
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


def forward(model: Model, graph: WholeGraph, *, sampled: Sequence[Block] | None = None) -> Tensor:
    """Return the logits of every node [N, C].

    sampled: one block over all nodes per layer, used instead of the adjacency, to compare with sampled executions.
    """
    outputs = layer_outputs(model, graph, sampled=sampled)
    return model.predict(outputs)


def layer_outputs(model: Model, graph: WholeGraph, *, sampled: Sequence[Block] | None = None) -> list[Tensor]:
    """Return the rows [N, W] that each layer gives, in layer order."""
    node = node_context(graph.nodes)
    h = model.encode(feature_tensors(model_features(graph.features, model.inputs.schema)), node)
    types = tensor(types_of(graph.nodes))
    outputs: list[Tensor] = []
    for index in range(model.num_layers):
        block = graph.adjacency if sampled is None else sampled[index]
        if model.is_typed:
            out = typed_output(model.relations(index), model.pre(index, h), node=node, types=types, block=block)
        else:
            out = layer_output(model.layer(index), model.pre(index, h), node=node, block=block)
        h = model.post(index, out, model.shortcut(index, h))
        outputs.append(h)
    return outputs


def typed_output(layers: RelationLayers, h: Tensor, *, node: NodeContext, types: Tensor, block: Block) -> Tensor:
    """Return the rows [N, W] that one layer of a typed graph gives of h [N, in_width]. types: of the rows [N]."""
    every, out = torch.arange(len(h)), h.new_zeros(len(h), layers.out_width)
    for node_type in range(layers.schema.num_types):
        into = layers.schema.relations_into(node_type)
        nodes = [node.relation(relation, every) for relation in into]
        blocks = [block.relation(relation) for relation in into]
        own = [layers.layer(relation) for relation in into]
        if layers.merges_states and into:
            rows = [_merged_output(own, h, nodes=nodes, blocks=blocks)]
        else:
            each = zip(own, nodes, blocks, strict=True)
            rows = [layer_output(layer, h, node=node, block=part) for layer, node, part in each]
        of_type = types == node_type
        out[of_type] = layers.joined(node_type, [each[of_type] for each in rows], h[of_type])
    return out


def _merged_output(
    layers: Sequence[Layer], h: Tensor, *, nodes: Sequence[NodeContext], blocks: Sequence[Block]
) -> Tensor:
    """Return what the first layer makes of the messages of all layers' edges, aggregated as one list."""
    parts, coefficients, messages = [], [], []
    for layer, node, block in zip(layers, nodes, blocks, strict=True):
        terms, edges = layer.transform(h, node), _edge_list(block, include_self=False)
        source = _edge_terms(layer, terms, edges)
        # terms of both ends of each edge [E_r, ...], and what the edge sends [E_r, H, D]
        target = {name: rows[edges.targets] for name, rows in terms.target.items()}
        coefficient, message = layer.coefficient(source, target, edges.edge), source["value"]
        parts.append(edges)
        coefficients.append(message.new_ones(message.shape[:2]) if coefficient is None else coefficient)
        messages.append(message)
    # all relations' edges as one list: one softmax, or one sum, runs over all in-edges of a node
    joined = _EdgeList(
        torch.cat([each.sources for each in parts]),
        torch.cat([each.leaf_of for each in parts]),
        torch.cat([each.place for each in parts]),
        any(each.has_leaves for each in parts),
        torch.cat([each.targets for each in parts]),
        EdgeContext(sum(each.edge.num_edges for each in parts)),
        torch.cat([each.scale for each in parts]),
        torch.cat([each.drawn for each in parts]),
        len(h),
    )
    layer = layers[0]
    dropout = layer.coefficient_dropout if layer.training else 0.0
    aggregated = _aggregate(layer.levels.instance, torch.cat(coefficients), torch.cat(messages), joined, dropout)
    return layer.update(layer.transform(h, nodes[0]).target, aggregated)


def layer_output(layer: Layer, h: Tensor, *, node: NodeContext, block: Block) -> Tensor:
    """Return one layer's rows [N, W] from its input rows h [N, in_width]."""
    terms = layer.transform(h, node)
    if layer.value_weight is not None:
        terms.source["value"] = functional.linear(terms.source["value"], layer.value_weight)
    if layer.uses_propagate:
        return layer.update(terms.target, _propagated(layer, terms, block))
    edges = _edge_list(block, include_self=layer.include_self)
    by_source = _edge_terms(layer, terms, edges)
    by_target = GatheredTerms(terms.target, lambda rows: rows[edges.targets])
    if layer.uses_messages:
        message, coefficient = layer.message(by_source, by_target, edges.edge), None
    else:
        message = by_source["value"]
        coefficient = layer.coefficient(by_source, by_target, edges.edge)
    if layer.uses_edge_attributes:
        assert edges.edge.attributes is not None
        # the attributes of each edge, the same for every head [E, H, A], to the right of its message
        beside = edges.edge.attributes[:, None].expand(-1, message.shape[1], -1)
        message = torch.cat([message, beside], 2)
    if coefficient is None:
        coefficient = message.new_ones(message.shape[:2])
    if "scale" in by_source:
        coefficient = coefficient * by_source["scale"][:, None]
    dropout = layer.coefficient_dropout if layer.training else 0.0
    aggregated = _aggregate(layer.levels.instance, coefficient, message, edges, dropout)
    if "scale" in terms.target:
        aggregated = aggregated * terms.target["scale"][:, None, None]
    return layer.update(terms.target, aggregated)


def _edge_terms(layer: Layer, terms: Terms, edges: _EdgeList) -> dict[str, Tensor]:
    """Return the source terms of each edge [E, ...], from those of its leaves."""
    if not edges.has_leaves and layer.positions == 1 and not layer.uses_instances:
        return {name: rows[edges.sources] for name, rows in terms.source.items()}
    # leaves are added up before an edge is weighted, so a node's scale is part of its value here
    source = dict(terms.source)
    if "scale" in source:
        value = source["value"]
        source["value"] = value * source.pop("scale").view(-1, *[1] * (value.dim() - 1))
    # the form of the row that each leaf reads by its place within its edge [L]
    form = edges.place.clamp(max=layer.positions - 1)
    of_leaves = {
        name: rows[edges.sources] if layer.positions == 1 else rows[edges.sources, form]
        for name, rows in source.items()
    }
    leaves = {name: _over_leaves(layer.levels.leaf, rows, edges) for name, rows in of_leaves.items()}
    return layer.instance(leaves, {name: rows[edges.targets] for name, rows in terms.target.items()}, edges.edge)


def _over_leaves(kind: Aggregation, rows: Tensor, edges: _EdgeList) -> Tensor:
    # a row for each edge [E, ...]; one without leaves stays zero
    empty = rows.new_zeros(edges.edge.num_edges, *rows.shape[1:])
    if isinstance(kind, Max):
        index = edges.leaf_of.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
        return empty.scatter_reduce(0, index, rows, "amax", include_self=False)
    assert isinstance(kind, Sum | Mean), "no plainer definition of this is known"
    total = empty.index_add(0, edges.leaf_of, rows)
    if isinstance(kind, Sum):
        return total
    counts = torch.bincount(edges.leaf_of, minlength=len(empty)).clamp(min=1)
    return total / counts.view(-1, *[1] * (rows.dim() - 1))


def _propagated(layer: Layer, terms: Terms, block: Block) -> Tensor:
    edges = _edge_list(block, include_self=False)
    edge = EdgeContext(block.num_edges, tensor(block.edges.weight), tensor(block.edges.attributes))
    offsets, source, sources, size = tensor(block.edges.offsets), terms.source, edges.sources, block.num_sources
    if edges.has_leaves:
        # the nodes' own rows, then a row per instance
        of_edges = _edge_terms(layer, terms, edges)
        source = {name: torch.cat([rows, of_edges[name]]) for name, rows in source.items()}
        alone = torch.bincount(edges.leaf_of, minlength=block.num_edges) == 1
        leaf = edges.sources.new_zeros(block.num_edges).scatter(0, edges.leaf_of, edges.sources)
        # an edge of one leaf comes from that node, and so may be its own
        own = alone & (layer.positions == 1 and not layer.uses_instances)
        sources = torch.where(own, leaf, size + torch.arange(block.num_edges))
        size += block.num_edges
    return layer.propagate(source, terms.target, Csr(offsets, sources, size), edge)


def _aggregate(kind: Aggregation, coefficient: Tensor, message: Tensor, edges: _EdgeList, dropout: float) -> Tensor:
    if isinstance(kind, SoftmaxAttention):
        coefficient = _softmax(coefficient, edges)
    if isinstance(kind, Mean | Sum):
        coefficient = coefficient * edges.drawn[:, None]
    if isinstance(kind, Mean):
        # the sum of coefficients of each edge's target [E, H]
        total = _sum(coefficient, edges)[edges.targets]
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


def _sum(rows: Tensor, edges: _EdgeList) -> Tensor:
    return rows.new_zeros(edges.num_nodes, *rows.shape[1:]).index_add(0, edges.targets, rows)


def _max(rows: Tensor, edges: _EdgeList, *, empty: float) -> Tensor:
    index = edges.targets.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
    filled = rows.new_full((edges.num_nodes, *rows.shape[1:]), empty)
    return filled.scatter_reduce(0, index, rows, "amax", include_self=False)


def _softmax(logit: Tensor, edges: _EdgeList) -> Tensor:
    shifted = (logit - _max(logit.detach(), edges, empty=0.0)[edges.targets]).exp() * edges.drawn[:, None]
    return shifted / _sum(shifted, edges)[edges.targets]


def _own_aggregation(kind: Aggregation, rows: Tensor, edges: _EdgeList) -> Tensor:
    # An aggregation we do not know has no plainer definition than its own, over all messages at once.
    # edges grouped by target [E], and where each target's begin [N + 1]
    order = torch.argsort(edges.targets, stable=True)
    offsets = torch.searchsorted(edges.targets[order], torch.arange(edges.num_nodes + 1))
    csr = Csr(offsets, order, len(order))
    return kind.finalize(kind.partial(Messages(csr, rows, scale=edges.drawn[order])))


def _edge_list(block: Block, *, include_self: bool) -> _EdgeList:
    assert block.num_targets == block.num_sources, "the reference reads blocks over all nodes"
    offsets, num_nodes = tensor(block.edges.offsets), block.num_targets
    edge = EdgeContext(block.num_edges, tensor(block.edges.weight), tensor(block.edges.attributes))
    # target of each edge [E], and the sample's scale of each node [N]
    targets = torch.repeat_interleave(offsets.diff())
    scale = torch.ones(num_nodes) if block.sample_scale is None else tensor(block.sample_scale)
    drawn = torch.ones(block.num_edges) if block.edge_scale is None else tensor(block.edge_scale)
    counts = tensor(block.edges.leaf_counts)
    leaf_of = torch.repeat_interleave(counts)
    place = torch.arange(len(leaf_of)) - (counts.cumsum(0) - counts)[leaf_of]
    edges = _EdgeList(
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


def _with_self(edges: _EdgeList) -> _EdgeList:
    loops = torch.arange(edges.num_nodes)
    own = edges.edge.self_edges(edges.num_nodes)
    context = EdgeContext(
        edges.edge.num_edges + edges.num_nodes,
        None if own.weight is None or edges.edge.weight is None else torch.cat([edges.edge.weight, own.weight]),
        None
        if own.attributes is None or edges.edge.attributes is None
        else torch.cat([edges.edge.attributes, own.attributes]),
    )
    return _EdgeList(
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
