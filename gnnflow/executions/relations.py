"""One layer of a model: a pass per relation, joined per type of the targets.

A relation's layer passes (`base.py`) over the rows that the relation joins. What the model does around a layer, dropout
before and norm, activation and residual behind, it does once to the rows of all types. A graph without types has one
relation, whose layer gives the rows.

Shapes: T targets, S sources, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from gnnflow.executions.base import (
    Delivery,
    OneBlock,
    first_rows,
    layer_rows,
    maps_first,
    takes_relu,
    terms_of,
    updated_rows,
)
from gnnflow.executions.stages import UNTIMED, Stages
from gnnflow.executions.tensors import LayerTensors
from gnnflow.layers import Layer, Model, NodeContext, Terms
from gnnflow.layers.terms import TypeRows


@dataclass(frozen=True)
class RelationPass:
    """One relation's pass, ready to aggregate: terms of its sources and targets, and how its in-edges reach these.

    map_first: the layer's value_weight is in the values already.
    """

    layer: Layer
    terms: Terms
    delivery: Delivery
    map_first: bool


def run_layer(
    model: Model,
    index: int,
    *,
    h: Tensor,
    nodes: NodeContext,
    block: LayerTensors,
    dropped: Tensor | None = None,
    map_first: bool | None = None,
    stages: Stages = UNTIMED,
) -> Tensor:
    """Return layer `index`'s rows of a block's targets [T, W], after the activation.

    h and nodes: rows of the block's sources [S], the T targets first. dropped [S]: the same after dropout, where they
    are known; h may then be of the targets alone. map_first: where it was decided already, as `is_cheaper_first` does.
    Raises LayerError where the layer's terms or messages do not have the shapes of the contract.
    """
    sources = model.pre(index, h) if dropped is None else dropped
    layers = model.relations(index)

    def pass_of(relation: int) -> RelationPass:
        stages.enter("transform")
        layer, part = layers.layer(relation), block.relations[relation]
        # the rows that the relation joins, its targets first
        rows = sources if part.sources is None else sources.index_select(0, part.sources)
        delivery = OneBlock(part.block)
        first = maps_first(layer, rows, delivery.num_targets, delivery.num_edges) if map_first is None else map_first
        context = nodes.of_relation(relation, part.sources)
        terms = terms_of(layer, rows, nodes=context, num_targets=delivery.num_targets, map_first=first)
        return RelationPass(layer, terms, delivery, first)

    return run_passes(model, index, pass_of, h=h, dropped=sources, targets=block.targets, stages=stages)


def run_passes(
    model: Model,
    index: int,
    pass_of: Callable[[int], RelationPass],
    *,
    h: Tensor,
    dropped: Tensor,
    targets: TypeRows,
    stages: Stages = UNTIMED,
) -> Tensor:
    """Return layer `index`'s rows of T targets [T, W], after the activation, from a pass per relation.

    pass_of: makes a relation's pass when it is needed: type by type, the relations into it in their order. h and
    dropped: input rows before and after dropout, the T targets' first.
    """
    layers, own, relu = model.relations(index), first_rows(dropped, targets.num_rows), False
    of_types = []
    for node_type in range(layers.schema.num_types):
        passes = (pass_of(relation) for relation in layers.schema.relations_into(node_type))
        if layers.merges_states:
            rows = [_merged(held, stages)] if (held := list(passes)) else []
        else:
            rows = []
            for each in passes:
                relu = takes_relu(model, index, is_mapped=each.map_first)
                rows.append(
                    layer_rows(
                        each.layer,
                        terms=each.terms,
                        delivery=each.delivery,
                        map_first=each.map_first,
                        relu=relu,
                        stages=stages,
                    )
                )
        if layers.only is None:
            stages.enter("reduce", over=rows, back="apply")
        of_types.append(layers.joined(node_type, rows, targets.of(node_type, own)))
    shortcut = model.shortcut(index, first_rows(h, targets.num_rows))
    return model.post(index, targets.joined(of_types), shortcut, is_activated=relu)


def _merged(passes: Sequence[RelationPass], stages: Stages) -> Tensor:
    """Return the rows of one type's targets, to whom the relations' in-edges are parts of one aggregation."""
    first = passes[0]
    aggregation = first.layer.levels.instance
    terms = [rows for each in passes for rows in each.terms.source.values()]
    stages.enter("gather_sum", over=terms, back="transform")
    # the states of all relations' in-edges, in the order of the relations [T, ...]
    states = (
        part.state(each.layer, each.terms.target)
        for each in passes
        for part in each.delivery.parts(each.layer, each.terms)
    )
    aggregated = aggregation.finalize(aggregation.merge_all(states))
    stages.enter("apply", over=[aggregated], back="gather_sum")
    return updated_rows(first.layer, target=first.terms.target, aggregated=aggregated, is_mapped=first.map_first)
