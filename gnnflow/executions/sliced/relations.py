"""A model of a typed graph cut into slices for GraphInfer: pure functions of one partition, NumPy in and NumPy out.

    h = encode_slice(features, nodes)                             once, at each node's owner
    for each layer k:
        for each relation r:
            terms = relation_terms(k, r, h, nodes of an end of r)         at the owner, who packs and sends them
        h = relations_slice(k, h, nodes, gather)                          at the targets' owner, which has their h
            gather(r, own terms)                                          what came of r's in-edges: rows or states
    prediction_slice(outputs)                                     at the owner

`encode_slice` and `prediction_slice` are those of `slices.py`. A node is sent once per relation that reads it, because
each relation has a layer of its own. What stays with a target is its input row, from which the owner computes the
target's own terms for every relation into its type.

Shapes: T targets, T' targets of one type, W width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gnnflow.executions.base import is_narrower_first, layer_terms
from gnnflow.executions.moving import beside
from gnnflow.executions.relations import RelationPass, run_passes
from gnnflow.executions.sliced.slices import Gathered, check_evaluating, delivery_of, float_array
from gnnflow.executions.sliced.term_arrays import SliceTerms, arrays_to_terms, terms_to_arrays
from gnnflow.executions.tensors import node_context, rows_of_types, tensor, types_of
from gnnflow.graph.arrays import FloatArray
from gnnflow.graph.batch import Degrees
from gnnflow.layers import Layer, Model, NodeContext, Terms


@torch.no_grad()
def relation_terms(model: Model, index: int, relation: int, *, h: FloatArray, nodes: Degrees) -> SliceTerms:
    """Return layer `index`'s terms in a relation, of nodes of one type whose input rows are h [N, W].

    Those of its source type have source terms, those of its target type target terms; the others mean nothing.
    """
    check_evaluating(model)
    rows, context = beside(model.device, (tensor(h), node_context(nodes)))
    layer = model.relations(index).layer(relation)
    return _as_arrays(_terms(layer, model.pre(index, rows), context.of_relation(relation)))


@torch.no_grad()
def relations_slice(
    model: Model, index: int, *, h: FloatArray, nodes: Degrees, gather: Callable[[int, SliceTerms], Gathered]
) -> FloatArray:
    """Return layer `index`'s rows of T targets [T, W], after the activation.

    h and nodes: input rows, degrees and types of the targets. gather: gives what came of a relation's in-edges for its
    T' targets, which are all of the T of the type that it leads to, from their own terms in it; called once per
    relation in the order of `relation_order`.
    """
    check_evaluating(model)
    layers = model.relations(index)
    targets = rows_of_types(types_of(nodes), layers.schema.num_types)
    rows, context, targets = beside(model.device, (tensor(h), node_context(nodes), targets))
    dropped = model.pre(index, rows)

    def pass_of(relation: int) -> RelationPass:
        # the relation's targets among the T, and their own terms
        layer, target_type = layers.layer(relation), layers.schema.target_types[relation]
        degrees = context.of_type(targets, target_type).of_relation(relation)
        own = _terms(layer, targets.of(target_type, dropped), degrees)
        gathered = gather(relation, _as_arrays(own))
        source = beside(model.device, arrays_to_terms(gathered.source))
        return RelationPass(layer, Terms(source, own.target), delivery_of(model, gathered), is_narrower_first(layer))

    return float_array(run_passes(model, index, pass_of, h=rows, dropped=dropped, targets=targets))


def relation_order(model: Model) -> list[int]:
    """Return the relations in the order in which `relations_slice` computes them."""
    schema = model.inputs.schema
    return [relation for number in range(schema.num_types) for relation in schema.relations_into(number)]


def _as_arrays(terms: Terms) -> SliceTerms:
    return SliceTerms(terms_to_arrays(terms.source), terms_to_arrays(terms.target))


def _terms(layer: Layer, h: Tensor, nodes: NodeContext) -> Terms:
    return layer_terms(layer, h=h, nodes=nodes, map_first=is_narrower_first(layer))
