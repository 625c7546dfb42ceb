"""One rank's batch in every step of global-batch, as tensors: made once, from the rows of `active_sets.py`.

A layer's in-edges are split into those from own rows and those that read a mirror, so that the first are aggregated
while rows of other ranks are on their way; a layer may be computed where its edges are placed instead (`placed.py`).
All ranks decide alike.

Shapes: T targets, M mirrors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnflow.executions.base import is_cheaper_first
from gnnflow.executions.globalbatch.active_sets import ActiveLayer, ActiveRows, Totals, split_by_mirrors
from gnnflow.executions.globalbatch.placed import (
    PlacedTensors,
    is_fewer_bytes,
    placed_tensors,
    route_of,
)
from gnnflow.executions.globalbatch.placed_sets import PlacedLayer
from gnnflow.executions.plan import EdgeColumns, RelationPlan, plan_relation
from gnnflow.executions.row_exchange import Exchange, Route, swapped
from gnnflow.executions.tensors import (
    BlockTensors,
    LayerTensors,
    block_tensors,
    feature_tensors,
    layer_tensors,
    node_context,
    types_of,
)
from gnnflow.graph.batch import Degrees, NodeFeatures
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers import FeatureTensors, Layer, Model, NodeContext, TypedFeatureTensors


@dataclass(frozen=True, eq=False)
class RankLayer:
    """One layer of one rank, ready to compute on.

    block: the in-edges of its T targets, or where there is mirrored those from own rows alone. mirrored: those that
    read mirrors, its sources the M mirrors, or own rows and then mirrors where it reads_own. route: None where no rank
    reads another's rows. mirror_nodes: what the graph knows of the mirrors, where rows travel and not terms.
    """

    block: LayerTensors
    route: Route | None
    totals: Totals
    mirror_nodes: NodeContext | None = None
    mirrored: BlockTensors | None = None
    reads_own: bool = False

    @property
    def num_targets(self) -> int:
        """Number of targets T."""
        return self.block.num_targets


@dataclass(frozen=True, eq=False)
class RankBatch:
    """One rank's batch in every step. features and nodes: of its input rows, the targets first."""

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
    layers: list[RankLayer | PlacedTensors] = []
    for index, layer in enumerate(rows.layers):
        if placed and takes_states(model, index) is None:
            plan = _plan(model, index, layer)
            if is_fewer_bytes(plan, num_rows=layer.totals.num_mirrors, placed=placed[index]):
                layers.append(placed_tensors(placed[index], layer.totals, reads_targets=bool(plan.target_reads)))
                continue
        # layers that read one block share its tensors: what is worked out from them, such as edges by source, is kept
        same = index and layer.block is rows.layers[index - 1].block
        before = layers[-1] if same and isinstance(layers[-1], RankLayer) else None
        only, schema = model.relations(index).only, model.inputs.schema
        if only is None or layer.traffic is None or not _merges(only):
            # every rank asks for its mirrors' degrees where rows travel, whether it has any or not
            mirrors = _degrees_of_mirrors(layer, nodes, exchange) if only is None else None
            layers.append(_whole(layer, before, nodes, mirrors, schema=schema))
        else:
            layers.append(_split(layer, before, schema=schema))
    return RankBatch(feature_tensors(features), node_context(nodes), tuple(layers))


def _whole(
    layer: ActiveLayer, before: RankLayer | None, nodes: Degrees, mirrors: Degrees | None, *, schema: GraphSchema
) -> RankLayer:
    """Return a layer whose in-edges are one block. mirrors: their degrees, where rows travel."""
    context = None if mirrors is None else node_context(mirrors)
    if before is not None and before.mirrored is None:
        return RankLayer(before.block, _route(layer), layer.totals, context)
    types = types_of(nodes)[: layer.num_own]
    types = types if mirrors is None else np.concatenate([types, types_of(mirrors)])
    return RankLayer(layer_tensors(layer.block, types, schema), _route(layer), layer.totals, context)


def _split(layer: ActiveLayer, before: RankLayer | None, *, schema: GraphSchema) -> RankLayer:
    """Return a layer of one relation whose in-edges are split by their sources."""
    if before is not None and before.mirrored is not None:
        block, mirrored = before.block, before.mirrored
    else:
        own, others = split_by_mirrors(layer)
        block, mirrored = layer_tensors(own, np.zeros(own.num_sources, np.int64), schema), block_tensors(others)
    reads_own = layer.block.edges.leaves is not None
    return RankLayer(block, _route(layer), layer.totals, mirrored=mirrored, reads_own=reads_own)


def _merges(layer: Layer) -> bool:
    return layer.levels.instance.mergeable


def takes_states(model: Model, index: int) -> str | None:
    """Return None where a layer can be computed where its edges are placed, else why rows go to its targets."""
    layer = model.relations(index).only
    if layer is None:
        return "on a typed graph a row is sent once for all relations"
    if layer.uses_propagate or not _merges(layer):
        return f"states of {type(layer.levels.instance).__name__} do not merge"
    return None


@torch.no_grad()
def _plan(model: Model, index: int, layer: ActiveLayer) -> RelationPlan:
    edges, of = layer.block.edges, model.relations(index).layer(0)
    columns = EdgeColumns(edges.weight is not None, 0 if edges.attributes is None else edges.attributes.shape[1])
    needs_gradient = index > 0 or model.encoder is not None
    return plan_relation(of, columns, map_first=is_cheaper_first(of, layer.totals, needs_gradient=needs_gradient))


def _route(layer: ActiveLayer) -> Route | None:
    return None if layer.traffic is None else route_of(layer.traffic, num_rows=layer.num_own)


def _degrees_of_mirrors(layer: ActiveLayer, nodes: Degrees, exchange: Exchange) -> Degrees:
    """Return the degrees of this rank's mirrors, which their owners send."""
    if layer.traffic is None:
        return nodes.take(slice(0, 0))
    own = nodes.take(layer.traffic.rows)
    # three figures per relation [n, 3 R] and the type, in float64, which holds counts exactly, so one exchange does
    width = 1 if own.in_degree.ndim == 1 else own.in_degree.shape[1]
    columns = [each.reshape(len(own), width) for each in (own.in_degree, own.out_degree, own.in_weight)]
    packed = np.concatenate([*columns, types_of(own)[:, None]], 1).astype(np.float64)
    # the same columns of this rank's mirrors [M, 3 R + 1]
    found = swapped(exchange, packed, sent=layer.traffic.sent, received=layer.traffic.received)
    shape = own.in_degree.shape[1:]
    held = [found[:, width * place : width * (place + 1)].reshape(len(found), *shape) for place in range(3)]
    types = None if nodes.types is None else found[:, -1].astype(np.int64)
    return Degrees(held[0].astype(np.int64), held[1].astype(np.int64), held[2].astype(np.float32), types)
