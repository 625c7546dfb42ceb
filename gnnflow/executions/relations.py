"""One layer of a model on a typed graph: a pass per relation, joined per type of the targets.

A relation's pass is that of a layer on a graph without types (`base.py`), over the rows that the relation joins. What
the model does around a layer, dropout before and norm, activation and residual behind, it does once to the rows of all
types.

Shapes: T targets, S sources, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnflow.executions.base import Delivery, OneBlock, first_rows, layer_rows, maps_first, terms_of, updated_rows
from gnnflow.executions.stages import UNTIMED, Stages
from gnnflow.executions.tensors import TypedBlockTensors
from gnnflow.layers import Layer, Model, NodeContext, RelationLayers, Terms


@dataclass(frozen=True)
class RelationPass:
    """One relation's pass, ready to aggregate: terms of its sources and targets, and how its in-edges reach these.

    map_first: the layer's value_weight is in the values already.
    """

    layer: Layer
    terms: Terms
    delivery: Delivery
    map_first: bool


def run_relations(model: Model, index: int, *, h: Tensor, nodes: NodeContext, block: TypedBlockTensors) -> Tensor:
    """Return layer `index`'s rows of a block's targets [T, W], after the activation.

    h and nodes: rows of the block's sources [S], the T targets first. Raises LayerError as `run_layer` does.
    """
    out = related_rows(model.relations(index), model.pre(index, h), nodes=nodes, block=block)
    return model.post(index, out, model.shortcut(index, first_rows(h, block.num_targets)))


def related_rows(
    layers: RelationLayers, h: Tensor, *, nodes: NodeContext, block: TypedBlockTensors, stages: Stages = UNTIMED
) -> Tensor:
    """Return the rows of a block's targets [T, W] from its sources' rows h [S], before what the model does to them."""

    def pass_of(relation: int) -> RelationPass:
        stages.enter("transform")
        layer, part = layers.layer(relation), block.relations[relation]
        # the rows that the relation joins, its targets first
        rows, context = h.index_select(0, part.sources), nodes.relation(relation, part.sources)
        first = maps_first(layer, rows, part.block.num_targets, part.block.csr.num_edges)
        terms = terms_of(layer, rows, nodes=context, num_targets=part.block.num_targets, map_first=first)
        return RelationPass(layer, terms, OneBlock(part.block), first)

    own = first_rows(h, block.num_targets)
    return joined_rows(layers, pass_of, h=own, targets=block.targets, places=block.places, stages=stages)


def joined_rows(
    layers: RelationLayers,
    pass_of: Callable[[int], RelationPass],
    *,
    h: Tensor,
    targets: Sequence[Tensor],
    places: Tensor,
    stages: Stages = UNTIMED,
) -> Tensor:
    """Return the rows of T targets [T, W], before what the model does to them.

    pass_of: makes a relation's pass when it is needed: type by type, the relations into it in their order. h: the T
    targets' own input rows, after dropout. targets and places: as in `TypedBlockTensors`.
    """
    of_types = []
    for node_type, rows_of_type in enumerate(targets):
        passes = (pass_of(relation) for relation in layers.schema.relations_into(node_type))
        if layers.merges_states:
            rows = [_merged(held, stages)] if (held := list(passes)) else []
        else:
            rows = [
                layer_rows(
                    each.layer, terms=each.terms, delivery=each.delivery, map_first=each.map_first, stages=stages
                )
                for each in passes
            ]
        stages.enter("reduce", over=rows, back="apply")
        of_types.append(layers.joined(node_type, rows, h.index_select(0, rows_of_type)))
    return torch.cat(of_types).index_select(0, places)


def _merged(passes: Sequence[RelationPass], stages: Stages) -> Tensor:
    """Return the rows of one type's targets, to whom the relations' in-edges are parts of one aggregation."""
    first = passes[0]
    aggregation = first.layer.levels.instance
    terms = [rows for each in passes for rows in each.terms.source.values()]
    stages.enter("gather_sum", over=terms, back="transform")
    states = (
        part.state(each.layer, each.terms.target)
        for each in passes
        for part in each.delivery.parts(each.layer, each.terms)
    )
    aggregated = aggregation.finalize(aggregation.merge_all(states))
    stages.enter("apply", over=[aggregated], back="gather_sum")
    return updated_rows(first.layer, target=first.terms.target, aggregated=aggregated, is_mapped=first.map_first)
