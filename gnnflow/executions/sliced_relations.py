"""A model of a typed graph cut into slices for GraphInfer: pure functions of one partition, NumPy in and NumPy out.

    h = encode_slice(features, nodes)                             once, at each node's owner
    for each layer k:
        for each relation r:
            terms = relation_terms(k, r, h, nodes of r's source type)     at the owner, who packs and sends them
        h = relations_slice(k, h, nodes, block, received terms)           at the targets' owner, which has their h
    prediction_slice(outputs)                                     at the owner

`encode_slice` and `prediction_slice` are those of `sliced.py`. A node is sent once per relation that reads it, because
each relation has a layer of its own. What stays with a target is its input row, from which the owner computes the
target's own terms for every relation into its type.

Shapes: T targets, S sources, W width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gnnflow.executions.base import layer_terms
from gnnflow.executions.moving import beside
from gnnflow.executions.relations import RelationPass, joined_rows
from gnnflow.executions.sliced import (
    TermArrays,
    TermLayout,
    arrays_to_terms,
    check_evaluating,
    float_array,
    maps_values_first,
    terms_to_arrays,
)
from gnnflow.executions.tensors import node_context, tensor, typed_block_tensors
from gnnflow.graph.arrays import FloatArray, IntArray
from gnnflow.graph.batch import Block, Degrees
from gnnflow.layers import Layer, Model, NodeContext, Terms


@torch.no_grad()
def relation_terms(model: Model, index: int, relation: int, *, h: FloatArray, nodes: Degrees) -> dict[str, FloatArray]:
    """Return layer `index`'s source terms in a relation, of nodes of its source type whose input rows are h [N, W]."""
    check_evaluating(model)
    rows, context = beside(model.device, (tensor(h), node_context(nodes)))
    every = torch.arange(len(rows), device=rows.device)
    layer = model.relations(index).layer(relation)
    return terms_to_arrays(_terms(layer, model.pre(index, rows), context.relation(relation, every)).source)


@torch.no_grad()
def relation_layout(model: Model, index: int, relation: int) -> TermLayout:
    """Return how layer `index`'s source terms in a relation are packed. It depends on the model alone."""
    layer = model.relations(index).layer(relation)
    none = torch.zeros(0, device=model.device)
    return TermLayout.of(_terms(layer, none.new_zeros(0, layer.in_width), NodeContext(none, none, none)).source)


@torch.no_grad()
def relations_slice(
    model: Model,
    index: int,
    *,
    h: FloatArray,
    nodes: Degrees,
    block: Block,
    types: IntArray,
    received: Sequence[TermArrays],
) -> FloatArray:
    """Return layer `index`'s rows of the block's targets [T, W], after the activation.

    h and nodes: input rows and degrees of the T targets. block: all in-edges of the targets in all relations, its
    sources beginning with the T targets; an edge reads a target's row only where it leads to the same target. types
    [S]: of the block's sources. received: per relation, the source terms of the source rows beyond T that its edges
    read, in ascending order of these rows.
    """
    check_evaluating(model)
    layers = model.relations(index)
    rows, context, held = beside(
        model.device, (tensor(h), node_context(nodes), typed_block_tensors(block, types, layers.schema))
    )
    terms_of_sources = [beside(model.device, arrays_to_terms(each)) for each in received]
    dropped = model.pre(index, rows)

    def pass_of(relation: int) -> RelationPass:
        layer, part = layers.layer(relation), held.relations[relation]
        # the relation's targets among the T, and their own terms
        targets = part.sources[: part.block.num_targets]
        own = _terms(layer, dropped.index_select(0, targets), context.relation(relation, targets))
        source = {name: torch.cat([own.source[name], given]) for name, given in terms_of_sources[relation].items()}
        return RelationPass(layer, Terms(source, own.target), part.block, maps_values_first(layer))

    out = joined_rows(layers, pass_of, h=dropped, block=held)
    return float_array(model.post(index, out, model.shortcut(index, rows)))


def _terms(layer: Layer, h: Tensor, nodes: NodeContext) -> Terms:
    return layer_terms(layer, h=h, nodes=nodes, map_first=maps_values_first(layer))
