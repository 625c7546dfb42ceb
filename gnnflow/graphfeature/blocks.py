"""From a neighbourhood to what a model computes on: one pruned block per layer.

With K layers and fan-outs [f1 .. fK] (targets first), layer K computes the targets from their first f1 in-edges,
layer K - 1 those and their sources from their first f2, and so on: layer l computes exactly what layer l + 1 reads
(pruning, AGL, VLDB 2020, section 3.3.2). Because the nodes of a later layer are the first rows of every earlier one,
blocks are built from the targets outward and a node keeps the row it got when it was first reached.

Rows are given by scatter into an array with one entry per node of the neighbourhood, not by sorting; only the entries
touched are put back, so the array serves batch after batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of, ragged_ranges
from gnnflow.graph.batch import Block, MiniBatch
from gnnflow.graphfeature.neighborhood import Neighborhood, NeighborhoodRows, RowArray

_UNSEEN = -1


@dataclass(frozen=True)
class _Layer:
    """One layer: in-edges kept of each computed node [T], which edges those are [E], their sources' batch rows [E]."""

    kept: IntArray
    edges: IntArray
    sources: IntArray


def new_scratch(num_nodes: int) -> RowArray:
    """Return scratch space for `build_minibatch` on neighbourhoods of up to num_nodes nodes, one batch at a time."""
    return np.full(num_nodes, _UNSEEN, np.int32)


def build_minibatch(
    neighborhood: Neighborhood,
    rows: IntArray,
    *,
    fanouts: Sequence[int] | None,
    num_layers: int,
    labels: Array | None = None,
    scratch: RowArray | None = None,
) -> MiniBatch:
    """Return the pruned blocks of the targets at the given distinct rows, in their order.

    fanouts: one per hop, the targets' own first; None takes every stored in-edge and leaves sample_scale None. 0
    takes none. labels [B, ...] go with rows and are passed on. Without scratch, space is allocated for this batch.
    """
    limits = _limits(fanouts, num_layers)
    nodes, layers = _reach(
        neighborhood, rows, limits, new_scratch(neighborhood.num_nodes) if scratch is None else scratch
    )
    columns = neighborhood.columns.take(nodes)
    sizes = [len(layer.kept) for layer in layers[1:]] + [len(nodes)]
    blocks = [
        Block(
            num_targets=len(layer.kept),
            num_sources=size,
            offsets=offsets_of(layer.kept),
            sources=layer.sources,
            edge_weight=None if neighborhood.edge_weight is None else neighborhood.edge_weight[layer.edges],
            edge_attributes=None if neighborhood.edge_attributes is None else neighborhood.edge_attributes[layer.edges],
            sample_scale=None if fanouts is None else _scale(columns.in_degree[: len(layer.kept)], layer.kept),
        )
        for layer, size in zip(layers, sizes, strict=True)
    ]
    return MiniBatch(
        blocks=tuple(reversed(blocks)),
        nodes=columns,
        features=neighborhood.features.take(nodes),
        targets=neighborhood.node_ids[rows],
        labels=labels,
    )


def extract_rows(
    neighborhood: Neighborhood, rows: IntArray, *, fanouts: Sequence[int] | None, num_layers: int
) -> NeighborhoodRows:
    """Return each target's own neighbourhood, cut from a merged one, its nodes in row order.

    Holds what `build_minibatch` needs for the same fan-outs and no more. Memory is that of all neighbourhoods side by
    side (a node once per target that reaches it), so callers pass targets in chunks.
    """
    size = neighborhood.num_nodes
    # A (target, node) pair is one integer that sorts by target, then row: the union's row order.
    pairs = np.arange(len(rows), dtype=np.int64) * size + rows
    taken = np.zeros(len(rows), np.int64)
    for limit in _limits(fanouts, num_layers):
        kept = np.maximum(taken, _kept(neighborhood, pairs % size, limit))
        edges = ragged_ranges(neighborhood.offsets[pairs % size] + taken, kept - taken)
        reached = np.repeat(pairs // size * size, kept - taken) + neighborhood.sources[edges]
        every = np.unique(np.concatenate([pairs, reached]))
        taken = np.zeros(len(every), np.int64)
        taken[np.searchsorted(every, pairs)] = kept
        pairs = every
    return _cut(neighborhood, rows, pairs, taken)


def _limits(fanouts: Sequence[int] | None, num_layers: int) -> Sequence[int | None]:
    assert fanouts is None or len(fanouts) == num_layers, "one fan-out per layer"
    return [None] * num_layers if fanouts is None else fanouts


def _kept(neighborhood: Neighborhood, nodes: IntArray, limit: int | None) -> IntArray:
    """Return how many in-edges [T] a fan-out keeps of each node."""
    stored = neighborhood.offsets[nodes + 1] - neighborhood.offsets[nodes]
    kept = stored if limit is None else np.minimum(stored, limit)
    full = neighborhood.columns.in_degree[nodes]
    wanted = full if limit is None else np.minimum(full, limit)
    assert np.array_equal(kept, wanted), "the neighbourhood was cut to fewer hops or smaller fan-outs than asked for"
    return kept


def _reach(
    neighborhood: Neighborhood, rows: IntArray, limits: Sequence[int | None], row_of: RowArray
) -> tuple[IntArray, list[_Layer]]:
    """Return the nodes reached, in batch row order, and the layers from the last to the first."""
    nodes, layers = rows, list[_Layer]()
    row_of[rows] = np.arange(len(rows), dtype=np.int32)
    distinct = bool(np.all(row_of[rows] == np.arange(len(rows))))
    for hop, limit in enumerate(limits if distinct else ()):
        # An equal fan-out repeats the previous layer's edges; only nodes reached since then are new.
        known = layers[-1] if hop and limit == limits[hop - 1] else None
        fresh = nodes if known is None else nodes[len(known.kept) :]
        kept = _kept(neighborhood, fresh, limit)
        edges = ragged_ranges(neighborhood.offsets[fresh], kept)
        found = neighborhood.sources[edges]
        nodes = np.concatenate([nodes, _admit(found, row_of, first_row=len(nodes))])
        layer = _Layer(kept, edges, row_of[found].astype(np.int64))
        layers.append(layer if known is None else _append(known, layer))
    row_of[nodes] = _UNSEEN
    assert distinct, "targets of one batch are distinct"
    return nodes, layers


def _admit(found: RowArray, row_of: RowArray, *, first_row: int) -> RowArray:
    """Give rows to nodes found for the first time, in order of appearance, and return them."""
    unseen = found[row_of[found] < 0]
    # Of equal indices the last assignment stays: written backwards, each node holds its first position.
    positions = np.arange(len(unseen), dtype=np.int32)
    row_of[unseen[::-1]] = positions[::-1]
    new: RowArray = unseen[row_of[unseen] == positions]
    row_of[new] = np.arange(first_row, first_row + len(new), dtype=np.int32)
    return new


def _append(known: _Layer, more: _Layer) -> _Layer:
    return _Layer(
        np.concatenate([known.kept, more.kept]),
        np.concatenate([known.edges, more.edges]),
        np.concatenate([known.sources, more.sources]),
    )


def _scale(in_degree: IntArray, kept: IntArray) -> FloatArray:
    """Return full in-degree / kept edges [T], 1 where nothing was kept."""
    return np.where(kept > 0, in_degree / np.maximum(kept, 1), 1).astype(np.float32)


def _cut(neighborhood: Neighborhood, rows: IntArray, pairs: IntArray, taken: IntArray) -> NeighborhoodRows:
    """Return the union of (target, node) pairs [P], sorted, with each pair's first `taken` in-edges."""
    size, targets = neighborhood.num_nodes, np.arange(len(rows) + 1, dtype=np.int64)
    nodes, base = pairs % size, pairs // size * size
    edges = ragged_ranges(neighborhood.offsets[nodes], taken)
    union = Neighborhood(
        roots=np.searchsorted(pairs, targets[:-1] * size + rows),
        node_ids=neighborhood.node_ids[nodes],
        columns=neighborhood.columns.take(nodes),
        features=neighborhood.features.take(nodes),
        offsets=offsets_of(taken),
        sources=np.searchsorted(pairs, np.repeat(base, taken) + neighborhood.sources[edges]).astype(np.int32),
        edge_weight=None if neighborhood.edge_weight is None else neighborhood.edge_weight[edges],
        edge_attributes=None if neighborhood.edge_attributes is None else neighborhood.edge_attributes[edges],
    )
    return NeighborhoodRows(union, root_offsets=targets, node_offsets=np.searchsorted(pairs, targets * size))
