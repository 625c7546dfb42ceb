"""The plain definition all executions are tested against: the whole graph in memory, every message written out.

It shares the layers' functions with the other executions and nothing else: gathers are indexing, sums are index_add,
self messages are edges appended to the list. Each relation's layer runs over all nodes of the graph, with the edges of
its relation alone, and the rows of its target type are read. Slow and large on purpose.

Where edges have leaves, each leaf's terms are written out too, and added up per edge.

Shapes: N nodes, E edges, L leaves of all edges, H heads, D width of a head, A edge attributes, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.executions.reference_edges import EdgeList, aggregate, edge_list, over_leaves
from gnnflow.executions.tensors import feature_tensors, node_context, tensor, types_of
from gnnflow.graph.batch import Block, Degrees, NodeFeatures
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, Layer, Model, NodeContext, RelationLayers, Terms
from gnnflow.layers.terms import GatheredTerms


@dataclass(frozen=True)
class WholeGraph:
    """A graph in memory: adjacency is a block whose N targets are its N sources, in the order of nodes and features."""

    adjacency: Block
    nodes: Degrees
    features: NodeFeatures


def forward(model: Model, graph: WholeGraph, *, sampled: Sequence[Block] | None = None) -> Tensor:
    """Return the logits of every node [N, C].

    sampled: one block over all nodes per layer, used instead of the adjacency, to compare with sampled executions.
    """
    outputs = layer_outputs(model, graph, sampled=sampled)
    return model.predict(outputs)


def layer_outputs(model: Model, graph: WholeGraph, *, sampled: Sequence[Block] | None = None) -> list[Tensor]:
    """Return the rows [N, W] that each layer gives, in layer order."""
    node = node_context(graph.nodes)
    h = model.encode(feature_tensors(graph.features), node)
    # the type of each node [N]
    types = tensor(types_of(graph.nodes))
    outputs: list[Tensor] = []
    for index in range(model.num_layers):
        block = graph.adjacency if sampled is None else sampled[index]
        out = joined_output(model.relations(index), model.pre(index, h), node=node, types=types, block=block)
        h = model.post(index, out, model.shortcut(index, h))
        outputs.append(h)
    return outputs


def joined_output(layers: RelationLayers, h: Tensor, *, node: NodeContext, types: Tensor, block: Block) -> Tensor:
    """Return the rows [N, W] that one layer of a model gives of h [N, in_width]. types: of the rows [N]."""
    out = h.new_zeros(len(h), layers.out_width)
    for node_type in range(layers.schema.num_types):
        into = layers.schema.relations_into(node_type)
        nodes = [node.of_relation(relation) for relation in into]
        blocks = [block.relation(relation) for relation in into]
        own = [layers.layer(relation) for relation in into]
        if layers.merges_states and into:
            rows = [_merged_output(own, h, nodes=nodes, blocks=blocks)]
        else:
            each = zip(own, nodes, blocks, strict=True)
            rows = [layer_output(layer, h, node=node, block=part) for layer, node, part in each]
        # the rows of the type's nodes: each relation gave rows for all N
        of_type = types == node_type
        out[of_type] = layers.joined(node_type, [each[of_type] for each in rows], h[of_type])
    return out


def _merged_output(
    layers: Sequence[Layer], h: Tensor, *, nodes: Sequence[NodeContext], blocks: Sequence[Block]
) -> Tensor:
    """Return what the first layer makes of the messages of all layers' edges, aggregated as one list."""
    parts, coefficients, messages = [], [], []
    for layer, node, block in zip(layers, nodes, blocks, strict=True):
        terms, edges = layer.transform(h, node), edge_list(block, include_self=False)
        source = _edge_terms(layer, terms, edges)
        # terms of both ends of each edge [E_r, ...], and what the edge sends [E_r, H, D]
        target = {name: rows[edges.targets] for name, rows in terms.target.items()}
        coefficient, message = layer.coefficient(source, target, edges.edge), source["value"]
        parts.append(edges)
        coefficients.append(message.new_ones(message.shape[:2]) if coefficient is None else coefficient)
        messages.append(message)
    # all relations' edges as one list: one softmax, or one sum, runs over all in-edges of a node
    joined = EdgeList(
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
    aggregated = aggregate(layer.levels.instance, torch.cat(coefficients), torch.cat(messages), joined, dropout)
    return layer.update(layer.transform(h, nodes[0]).target, aggregated)


def layer_output(layer: Layer, h: Tensor, *, node: NodeContext, block: Block) -> Tensor:
    """Return one layer's rows [N, W] from its input rows h [N, in_width]."""
    terms = layer.transform(h, node)
    if layer.value_weight is not None:
        terms.source["value"] = functional.linear(terms.source["value"], layer.value_weight)
    if layer.uses_propagate:
        return layer.update(terms.target, _propagated(layer, terms, block))
    edges = edge_list(block, include_self=layer.include_self)
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
    aggregated = aggregate(layer.levels.instance, coefficient, message, edges, dropout)
    if "scale" in terms.target:
        aggregated = aggregated * terms.target["scale"][:, None, None]
    return layer.update(terms.target, aggregated)


def _edge_terms(layer: Layer, terms: Terms, edges: EdgeList) -> dict[str, Tensor]:
    """Return the source terms of each edge [E, ...], from its leaves' source terms."""
    if not edges.has_leaves and layer.positions == 1 and not layer.uses_instances:
        return {name: rows[edges.sources] for name, rows in terms.source.items()}
    # leaves are added up before an edge is weighted, so a node's scale is part of its value here
    source = dict(terms.source)
    if "scale" in source:
        value = source["value"]
        source["value"] = value * source.pop("scale").view(-1, *[1] * (value.dim() - 1))
    # the form of the row that each leaf reads by its place within its edge [L]
    form = edges.place.clamp(max=layer.positions - 1)
    # the source terms of each leaf [L, ...]
    of_leaves = {
        name: rows[edges.sources] if layer.positions == 1 else rows[edges.sources, form]
        for name, rows in source.items()
    }
    leaves = {name: over_leaves(layer.levels.leaf, rows, edges) for name, rows in of_leaves.items()}
    return layer.instance(leaves, {name: rows[edges.targets] for name, rows in terms.target.items()}, edges.edge)


def _propagated(layer: Layer, terms: Terms, block: Block) -> Tensor:
    edges = edge_list(block, include_self=False)
    edge = EdgeContext(block.num_edges, tensor(block.edges.weight), tensor(block.edges.attributes))
    offsets, source, sources, size = tensor(block.edges.offsets), terms.source, edges.sources, block.num_sources
    if edges.has_leaves:
        # the nodes' own rows, then a row per instance
        of_edges = _edge_terms(layer, terms, edges)
        source = {name: torch.cat([rows, of_edges[name]]) for name, rows in source.items()}
        sources, size = size + torch.arange(block.num_edges), size + block.num_edges
        if layer.positions == 1 and not layer.uses_instances:
            # an edge of one leaf comes from that node, and so may be its own
            alone = torch.bincount(edges.leaf_of, minlength=block.num_edges) == 1
            # the leaf of each edge that has one alone [E]
            leaf = edges.sources.new_zeros(block.num_edges).scatter(0, edges.leaf_of, edges.sources)
            sources = torch.where(alone, leaf, sources)
    return layer.propagate(source, terms.target, Csr(offsets, sources, size), edge)
