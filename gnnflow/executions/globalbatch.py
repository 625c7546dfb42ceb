"""A model over the whole graph as one batch, spread over ranks that each own a run of its nodes (GraphTheta).

    rows   = active_rows(blocks, targets, bounds=..., exchange=...)          once: who computes and sends what
    batch  = rank_batch(model, rows, features=..., nodes=..., exchange=...)  once: as tensors
    logits = forward(model, batch, exchange)                                 in every step, on all ranks together

A layer's terms are computed at each node's owner (NN-Transform). Source terms of rows that other ranks read leave at
once; meanwhile the edges between own rows are aggregated (Gather, Sum), then those from mirrors, and the states of both
are merged (Reduce). An aggregation whose states do not merge, and a layer that takes all in-edges at once, waits for
the rows first. `update` runs at the owner (NN-Apply). On a typed graph it is the input rows that travel, after dropout:
a row once, however many relations read it.

Where the store has edges placed at their sources or on a grid, a layer may be computed there instead, and states go to
the targets (`placed.py`), where that is fewer bytes.

One rank is the same without mirrors. The order of sums depends on how nodes are divided among ranks, never on time.

Shapes: N rows, T targets, M mirrors, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from gnnflow.executions.active_sets import ActiveLayer, ActiveRows, Gathered, Totals, split_by_mirrors
from gnnflow.executions.base import (
    OneBlock,
    first_rows,
    is_cheaper_first,
    layer_rows,
    run_layer,
    takes_relu,
    terms_of,
    updated_rows,
)
from gnnflow.executions.placed import (
    PlacedTensors,
    Widths,
    aggregated_by_place,
    is_fewer_bytes,
    placed_tensors,
    route_of,
    widths_of,
)
from gnnflow.executions.placed_sets import PlacedLayer
from gnnflow.executions.propagate import finished, partial_state, takes_self
from gnnflow.executions.relations import related_rows
from gnnflow.executions.row_exchange import Exchange, Route, depart, swapped
from gnnflow.executions.stages import UNTIMED, Stages
from gnnflow.executions.tensors import (
    BlockTensors,
    TypedBlockTensors,
    block_tensors,
    feature_tensors,
    model_features,
    node_context,
    typed_block_tensors,
    types_of,
)
from gnnflow.graph.batch import Degrees, NodeFeatures
from gnnflow.layers import (
    EdgeContext,
    FeatureTensors,
    Layer,
    Model,
    NodeContext,
    RelationLayers,
    Terms,
    TypedFeatureTensors,
)


@dataclass(frozen=True, eq=False)
class RankLayer:
    """One layer of one rank, ready to compute on.

    block: the in-edges of its T targets, or where there is mirrored those from own rows alone. mirrored: those that
    read mirrors, its sources the M mirrors, or own rows and then mirrors where it reads_own. route: None where no rank
    reads another's rows. mirror_nodes: what the graph knows of the mirrors, on a typed graph alone.
    """

    block: BlockTensors | TypedBlockTensors
    mirrored: BlockTensors | None
    reads_own: bool
    route: Route | None
    totals: Totals
    mirror_nodes: NodeContext | None

    @property
    def num_targets(self) -> int:
        """Number of targets T."""
        return self.block.num_targets


@dataclass(frozen=True, eq=False)
class RankBatch:
    """What one rank computes in every step. features and nodes: of its input rows, the targets first."""

    features: FeatureTensors | TypedFeatureTensors
    nodes: NodeContext
    layers: tuple[RankLayer | PlacedTensors, ...]


def rank_batch(
    model: Model,
    rows: ActiveRows,
    *,
    features: NodeFeatures,
    nodes: Degrees,
    exchange: Exchange,
    placed: Sequence[PlacedLayer] = (),
) -> RankBatch:
    """Return a rank's layers as tensors. features and nodes: of `rows.rows`, in their order.

    placed: the same layers with edges where they are placed; a layer is computed so where that is fewer bytes.
    """
    schema, held = model.inputs.schema, types_of(nodes)
    layers: list[RankLayer | PlacedTensors] = []
    for index, layer in enumerate(rows.layers):
        if placed and takes_states(model, index) is None:
            widths = _widths(model, index, layer)
            if is_fewer_bytes(widths, num_rows=layer.totals.num_mirrors, placed=placed[index]):
                layers.append(placed_tensors(placed[index], layer.totals, reads_targets=widths.reads_targets))
                continue
        same = index and layer.block is rows.layers[index - 1].block
        before = layers[-1] if same and isinstance(layers[-1], RankLayer) else None
        if model.is_typed:
            mirrors = _degrees_of_mirrors(layer, nodes, exchange)
            types = np.concatenate([held[: layer.num_own], types_of(mirrors)])
            block = typed_block_tensors(layer.block, types, schema) if before is None else before.block
            parts = RankLayer(block, None, False, _route(layer), layer.totals, node_context(mirrors))  # noqa: FBT003
        elif layer.traffic is None or not _merges(model.layer(index)):
            whole = before is not None and before.mirrored is None
            block = before.block if before is not None and whole else block_tensors(layer.block)
            parts = RankLayer(block, None, False, _route(layer), layer.totals, None)  # noqa: FBT003
        else:
            parts = _split(layer, before)
        layers.append(parts)
    inputs = feature_tensors(model_features(features, schema))
    return RankBatch(inputs, node_context(nodes), tuple(layers))


def _split(layer: ActiveLayer, before: RankLayer | None) -> RankLayer:
    reads_own = layer.block.edges.leaves is not None
    if before is not None and before.mirrored is not None:
        return RankLayer(before.block, before.mirrored, reads_own, _route(layer), layer.totals, None)
    own, mirrored = (block_tensors(part) for part in split_by_mirrors(layer))
    return RankLayer(own, mirrored, reads_own, _route(layer), layer.totals, None)


def _merges(layer: Layer) -> bool:
    return layer.levels.instance.mergeable


def takes_states(model: Model, index: int) -> str | None:
    """Return None where a layer can be computed where its edges are placed, else why rows go to its targets."""
    if model.is_typed:
        return "on a typed graph a row is sent once for all relations"
    layer = model.layer(index)
    if layer.uses_propagate or not _merges(layer):
        return f"states of {type(layer.levels.instance).__name__} do not merge"
    return None


def _widths(model: Model, index: int, layer: ActiveLayer) -> Widths:
    edges, of = layer.block.edges, model.layer(index)
    none = torch.zeros(0)
    attributes = None if edges.attributes is None else none.new_zeros(0, edges.attributes.shape[1])
    edge = EdgeContext(0, None if edges.weight is None else none, attributes)
    first = _is_map_first(of, layer.totals, needs_gradient=index > 0 or model.encoder is not None)
    return widths_of(of, edge, map_first=first)


def _route(layer: ActiveLayer) -> Route | None:
    return None if layer.traffic is None else route_of(layer.traffic, num_rows=layer.num_own)


def _degrees_of_mirrors(layer: ActiveLayer, nodes: Degrees, exchange: Exchange) -> Degrees:
    """Return what the owners know of this rank's mirrors."""
    if layer.traffic is None:
        return nodes.take(slice(0, 0))
    own = nodes.take(layer.traffic.rows)
    width = 1 if own.in_degree.ndim == 1 else own.in_degree.shape[1]
    columns = [each.reshape(len(own), width) for each in (own.in_degree, own.out_degree, own.in_weight)]
    packed = np.concatenate([*columns, types_of(own)[:, None]], 1).astype(np.float64)
    found = swapped(exchange, packed, sent=layer.traffic.sent, received=layer.traffic.received)
    shape = own.in_degree.shape[1:]
    held = [found[:, width * place : width * (place + 1)].reshape(len(found), *shape) for place in range(3)]
    types = None if nodes.types is None else found[:, -1].astype(np.int64)
    return Degrees(held[0].astype(np.int64), held[1].astype(np.int64), held[2].astype(np.float32), types)


def forward(
    model: Model, batch: RankBatch, exchange: Exchange, *, recompute: bool = False, stages: Stages = UNTIMED
) -> Tensor:
    """Return the logits of this rank's targets [T, C], in the order of `ActiveRows.targets`.

    Called on all ranks together, and so is the backward pass of what it gives, which is to begin on each from its part
    of one sum over the targets of all ranks. recompute: see `layer_outputs`; stages: hears where the pass is. In
    training mode dropout reads torch's global generator; seed it to repeat a step.
    """
    return model.predict(layer_outputs(model, batch, exchange, recompute=recompute, stages=stages))


def with_mirrors(rows: Tensor, of: Gathered, exchange: Exchange) -> Tensor:
    """Return the rows [T, C] of `of.targets`, then those of its mirrors: what pairs of nodes are scored from."""
    if of.traffic is None:
        return rows
    return torch.cat(
        [rows, depart(exchange, route_of(of.traffic, num_rows=len(rows)), {"rows": rows}).arrive()["rows"]]
    )


def layer_outputs(
    model: Model, batch: RankBatch, exchange: Exchange, *, recompute: bool = False, stages: Stages = UNTIMED
) -> list[Tensor]:
    """Return the rows [T, W] of this rank's targets after each layer, in layer order.

    recompute: keep a layer's input alone for the backward pass, which computes the layer again, its exchange included.
    """
    h, outputs = model.encode(batch.features, batch.nodes), []
    for index, layer in enumerate(batch.layers):
        own = batch.nodes.prefix(len(h))
        compute = partial(_layer_output, model, index, layer=layer, nodes=own, exchange=exchange, stages=stages)
        if recompute and torch.is_grad_enabled():
            # An early stop would leave out the end of an exchange that other ranks wait in.
            with set_checkpoint_early_stop(False):
                h = checkpoint(compute, h, use_reentrant=False)
        else:
            h = compute(h)
        outputs.append(h)
    stages.leave(over=[h], back="apply")
    return [first_rows(each, batch.layers[-1].num_targets) for each in outputs]


def _layer_output(
    model: Model,
    index: int,
    h: Tensor,
    *,
    layer: RankLayer | PlacedTensors,
    nodes: NodeContext,
    exchange: Exchange,
    stages: Stages,
) -> Tensor:
    stages.enter("transform", over=[h], back="apply" if index else "")
    if isinstance(layer, PlacedTensors):
        return _placed_output(model, index, h, held=layer, nodes=nodes, exchange=exchange, stages=stages)
    if model.is_typed:
        return _typed_output(model, index, h, held=layer, nodes=nodes, exchange=exchange, stages=stages)
    assert isinstance(layer.block, BlockTensors)
    of, num_targets = model.layer(index), layer.num_targets
    first = _is_map_first(of, layer.totals, needs_gradient=h.requires_grad)
    if layer.route is None:
        if not num_targets:
            return model.post(index, _no_rows(h, of), model.shortcut(index, h[:0]))
        whole = OneBlock(layer.block)
        return run_layer(model, index, h=h, nodes=nodes, delivery=whole, map_first=first, stages=stages)
    terms = terms_of(of, model.pre(index, h), nodes=nodes, num_targets=num_targets, map_first=first)
    shortcut = model.shortcut(index, first_rows(h, num_targets))
    if not num_targets:  # still one of those that send rows, and hear of their gradients
        rows = _no_rows(depart(exchange, layer.route, terms.source, stages=stages).arrive_packed(), of)
        return model.post(index, rows, shortcut)
    relu = takes_relu(model, index, is_mapped=first)
    if layer.mirrored is None:
        received = depart(exchange, layer.route, terms.source, stages=stages).arrive()
        delivery, terms = OneBlock(layer.block), Terms(_joined(terms.source, received), terms.target)
        rows = layer_rows(of, terms=terms, delivery=delivery, map_first=first, relu=relu, stages=stages)
    else:
        found = _aggregated(of, terms, layer, exchange, stages)
        rows = updated_rows(of, target=terms.target, aggregated=found, is_mapped=first, relu=relu)
    return model.post(index, rows, shortcut, is_activated=relu)


def _placed_output(
    model: Model, index: int, h: Tensor, *, held: PlacedTensors, nodes: NodeContext, exchange: Exchange, stages: Stages
) -> Tensor:
    of, num_targets = model.layer(index), held.num_targets
    first = _is_map_first(of, held.totals, needs_gradient=h.requires_grad)
    terms = terms_of(of, model.pre(index, h), nodes=nodes, num_targets=num_targets, map_first=first)
    shortcut, relu = model.shortcut(index, first_rows(h, num_targets)), takes_relu(model, index, is_mapped=first)
    found = aggregated_by_place(of, terms, held, exchange, stages)
    rows = updated_rows(of, target=terms.target, aggregated=found, is_mapped=first, relu=relu)
    return model.post(index, rows, shortcut, is_activated=relu)


def _is_map_first(layer: Layer, totals: Totals, *, needs_gradient: bool) -> bool:
    """Return what all ranks decide alike, since rows of one width go between them."""
    return is_cheaper_first(
        layer,
        num_sources=totals.num_sources,
        num_targets=totals.num_targets,
        num_edges=totals.num_edges,
        needs_gradient=needs_gradient,
    )


def _no_rows(made_of: Tensor, layer: Layer | RelationLayers) -> Tensor:
    """Return no rows [0, W] of a layer, whose backward pass takes part in the exchanges that `made_of` came of.

    They need a gradient where the rows of other ranks do: all ranks must agree which exchanges have a way back.
    """
    learned = next((each for each in layer.parameters() if each.requires_grad), None)
    if learned is not None and not made_of.requires_grad:
        made_of = learned.reshape(-1, 1)
    return made_of[:0, :1].expand(0, layer.out_width)


def _joined(own: Mapping[str, Tensor], received: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([rows, received[name]]) for name, rows in own.items()}


def _aggregated(layer: Layer, terms: Terms, held: RankLayer, exchange: Exchange, stages: Stages) -> Tensor:
    """Return what each target aggregates [T, H, D (+ A)]: of own rows while others are on their way, then of these."""
    assert isinstance(held.block, BlockTensors)
    assert held.mirrored is not None
    assert held.route is not None
    own = held.block.with_self if takes_self(layer, held.block) else held.block
    stages.enter("gather_sum", over=terms.source.values(), back="transform")
    departed = depart(exchange, held.route, terms.source, stages=stages)
    state = partial_state(layer, source=terms.source, target=terms.target, block=own)
    received = departed.arrive()
    source = _joined(terms.source, received) if held.reads_own else received
    others = partial_state(layer, source=source, target=terms.target, block=held.mirrored)
    stages.enter("reduce", over=[*state.values(), *others.values()], back="gather_sum")
    state = layer.levels.instance.merge(state, others)
    has_self = own is not held.block
    found = finished(layer, state, source=terms.source, target=terms.target, edge=own.edge, has_self=has_self)
    stages.enter("apply", over=[found], back="reduce")
    return found


def _typed_output(
    model: Model, index: int, h: Tensor, *, held: RankLayer, nodes: NodeContext, exchange: Exchange, stages: Stages
) -> Tensor:
    assert isinstance(held.block, TypedBlockTensors)
    dropped, num_targets = model.pre(index, h), held.num_targets
    shortcut, sources = model.shortcut(index, first_rows(h, num_targets)), dropped
    if held.route is not None:
        departed = depart(exchange, held.route, {"h": dropped}, stages=stages)
        if not num_targets:
            rows = _no_rows(departed.arrive_packed(), model.relations(index))
            return model.post(index, rows, shortcut)
        sources = torch.cat([dropped, departed.arrive()["h"]])
    assert held.mirror_nodes is not None
    every = nodes.joined(held.mirror_nodes)
    out = related_rows(model.relations(index), sources, nodes=every, block=held.block, stages=stages)
    return model.post(index, out, shortcut)
