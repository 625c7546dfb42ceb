"""Cuts a neighbourhood into the input of a model: one pruned block per layer.

With K layers and fan-outs [f1 .. fK] (targets first), layer K computes the targets from their first f1 in-edges,
layer K - 1 these and their sources from their first f2, and so on: layer l computes exactly the rows that layer l + 1
reads (pruning, AGL, VLDB 2020, section 3.3.2). Because the nodes of a later layer are the first rows of every earlier
one, blocks are built from the targets outward and a node keeps the row it got when it was first reached.

Rows are given by scatter into an array with one entry per node of the neighbourhood, not by sorting; only changed
entries are reset, so the array serves batch after batch.

Shapes: B targets of a batch, N nodes of the neighbourhood, R relations, T nodes a layer computes, E edges it reads, L
sources of these: one each or, where edges have leaves, all of an edge's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.batch import Block, Degrees, InPlaceBatch, MiniBatch, sampled_block
from gnnflow.graph.edges import InEdges, Picked, SourceArray, row_limits
from gnnflow.graph.sampling import Fanout, Sampling, SamplingKind
from gnnflow.graphfeature.neighborhood import Neighborhood, NeighborhoodRows, RowArray
from gnnflow.native import number

UNSEEN = -1
"""The entry of scratch space for a node without a row."""


@dataclass(frozen=True)
class _Layer:
    """One layer: the in-edges picked for each node it computes [R T], and those edges' sources as batch rows [L]."""

    picked: Picked
    sources: IntArray

    @property
    def num_targets(self) -> int:
        return len(self.picked.counts) // self.picked.num_relations


class _Reached(NamedTuple):
    """Nodes in batch row order, and layers from the last to the first."""

    nodes: IntArray
    layers: list[_Layer]


class Numbered(NamedTuple):
    """The row of each node found, and the nodes that had no row before, in the order of their rows."""

    rows: IntArray
    new: SourceArray


def new_scratch(num_nodes: int) -> RowArray:
    """Return scratch space for `build_minibatch` on neighbourhoods of up to num_nodes nodes, one batch at a time."""
    return np.full(num_nodes, UNSEEN, np.int32)


def build_minibatch(
    neighborhood: Neighborhood,
    rows: IntArray,
    *,
    sampling: Sampling,
    num_layers: int,
    labels: Array | None = None,
    scratch: RowArray | None = None,
) -> MiniBatch:
    """Return the pruned blocks of the targets at the given distinct rows, in their order.

    sampling: the choice of stored in-edges, which decides their scale. labels [B, ...]: of the rows, passed on. Without
    scratch, space is allocated for this batch.
    """
    limits = sampling.of_hops(num_layers)
    # the neighbourhood's row of each batch row, targets first; and the layers from the last to the first
    nodes, layers = _reach(
        neighborhood, rows, limits, new_scratch(neighborhood.num_nodes) if scratch is None else scratch
    )
    # degrees of each batch row; a layer's own nodes are the first T of them
    degrees = neighborhood.degrees.take(nodes)
    return MiniBatch(
        blocks=_blocks(neighborhood, layers, degrees, sampling=sampling.kind),
        nodes=degrees,
        features=neighborhood.features.take(nodes),
        targets=neighborhood.node_ids[rows],
        labels=labels,
    )


class Used(NamedTuple):
    """The part of a neighbourhood that a batch computes from.

    nodes: the neighbourhood's row of each batch row [S], the targets first; hops: the distance of each from the targets
    [S]. edges: positions of the in-edges that each layer reads, for the first layer first.
    """

    nodes: IntArray
    hops: IntArray
    edges: tuple[IntArray, ...]


def used_by_batch(neighborhood: Neighborhood, rows: IntArray, *, sampling: Sampling, num_layers: int) -> Used:
    """Return the nodes and edges behind the blocks of `build_minibatch` for the same arguments, in their order."""
    nodes, layers = _reach(neighborhood, rows, sampling.of_hops(num_layers), new_scratch(neighborhood.num_nodes))
    hops = np.searchsorted([layer.num_targets for layer in layers], np.arange(len(nodes)), side="right")
    return Used(nodes.astype(np.int64), hops, tuple(layer.picked.positions for layer in reversed(layers)))


def build_in_place(
    neighborhood: Neighborhood,
    rows: IntArray,
    *,
    sampling: Sampling,
    num_layers: int,
    scratch: RowArray | None = None,
) -> InPlaceBatch:
    """Return the blocks of `build_minibatch`, but leave the first layer's sources in place.

    So the nodes of the last hop, by far the most, are neither numbered nor copied.
    """
    limits = sampling.of_hops(num_layers)
    nodes, layers = _reach(
        neighborhood, rows, limits[:-1], new_scratch(neighborhood.num_nodes) if scratch is None else scratch
    )
    degrees = neighborhood.degrees.take(nodes)
    picked = edges_of_hop(neighborhood, nodes, limits[-1])
    # the neighbourhood's row of each of these edges' sources
    sources = neighborhood.edges.sources_of(picked.positions).astype(np.int64)
    first = sampled_block(
        neighborhood.edges.take(picked.positions, offsets=picked.offsets, sources=sources),
        num_sources=neighborhood.num_nodes,
        in_degree=degrees.in_degree,
        sampling=sampling.kind,
    )
    return InPlaceBatch(
        first=first,
        rows=nodes.astype(np.int64),
        blocks=_blocks(neighborhood, layers, degrees, sampling=sampling.kind),
        nodes=degrees,
        targets=neighborhood.node_ids[rows],
    )


def extract_rows(
    neighborhood: Neighborhood, rows: IntArray, *, sampling: Sampling, num_layers: int
) -> NeighborhoodRows:
    """Return each target's separate neighbourhood, cut from a merged one, its nodes in row order.

    Holds only the edges that `build_minibatch` needs for the same sampling. Memory is the sum of all neighbourhoods (a
    node once per target that reaches it), so callers pass targets in chunks.
    """
    size = neighborhood.num_nodes
    # A (target, node) pair is one integer that sorts by target, then row: the union's row order.
    # pairs reached so far, ascending [P]: at first each target with itself
    pairs = np.arange(len(rows), dtype=np.int64) * size + rows
    # number of followed in-edges of each pair's node in each relation [R P]
    num_relations = neighborhood.edges.num_relations
    taken = np.zeros(num_relations * len(rows), np.int64)
    for limit in sampling.of_hops(num_layers):
        # the in-edges that this hop adds, pair by pair [E]
        picked = edges_of_hop(neighborhood, pairs % size, limit, taken=taken)
        # their sources, paired with the same targets
        reached = _paired_sources(neighborhood, picked, pairs // size * size)
        # old and new pairs, ascending, and the followed edges of each
        every = np.unique(np.concatenate([pairs, reached]))
        followed = np.zeros((num_relations, len(every)), np.int64)
        followed[:, np.searchsorted(every, pairs)] = (taken + picked.counts).reshape(num_relations, -1)
        pairs, taken = every, followed.ravel()
    return _cut(neighborhood, rows, pairs, taken)


def _blocks(
    neighborhood: Neighborhood, layers: Sequence[_Layer], degrees: Degrees, *, sampling: SamplingKind
) -> tuple[Block, ...]:
    """Return a block per layer, first to last. layers: from the last to the first. degrees: of all rows."""
    # rows that each layer reads: the rows of the layer before it, and for the first layer all rows of the batch
    sizes = [layer.num_targets for layer in layers[1:]] + [len(degrees)]
    blocks = [
        sampled_block(
            neighborhood.edges.take(layer.picked.positions, offsets=layer.picked.offsets, sources=layer.sources),
            num_sources=size,
            in_degree=degrees.in_degree[: layer.num_targets],
            sampling=sampling,
        )
        for layer, size in zip(layers, sizes, strict=False)
    ]
    return tuple(reversed(blocks))


def edges_of_hop(
    neighborhood: Neighborhood, nodes: IntArray, limit: Fanout | None, *, taken: IntArray | int = 0
) -> Picked:
    """Pick a fan-out's in-edges of each node, without the first `taken`; asserts that the neighbourhood has them."""
    picked = neighborhood.edges.prefix(nodes, limit=limit, taken=taken)
    # in-edges of each node in the full graph, by node or by relation and node, and the number that the fan-out takes
    full = neighborhood.degrees.in_degree[nodes]
    full = full if full.ndim == 1 else full.T.ravel()
    wanted = full if limit is None else np.minimum(full, row_limits(limit, len(nodes)))
    complete = np.array_equal(picked.counts, np.maximum(wanted - taken, 0))
    assert complete, "the neighbourhood was cut to fewer hops or smaller fan-outs than asked for"
    return picked


def _reach(neighborhood: Neighborhood, rows: IntArray, limits: Sequence[Fanout | None], row_of: RowArray) -> _Reached:
    """Return the nodes reached and the layers.

    row_of [N] holds each reached node's batch row meanwhile, UNSEEN elsewhere.
    """
    # the neighbourhood's row of each batch row so far: at first the targets alone [B]
    nodes, layers = rows, list[_Layer]()
    row_of[rows] = np.arange(len(rows), dtype=np.int32)
    # A target named twice holds only its second row.
    distinct = bool(np.all(row_of[rows] == np.arange(len(rows))))
    for hop, limit in enumerate(limits if distinct else ()):
        # An equal fan-out repeats the previous layer's edges; only nodes reached since then are new.
        known = layers[-1] if hop and limit == limits[hop - 1] else None
        fresh = nodes if known is None else nodes[known.num_targets :]
        # positions of the fresh nodes' in-edges [E], and how many each has
        picked = edges_of_hop(neighborhood, fresh, limit)
        # the neighbourhood's row of each of these edges' sources [L]
        found = neighborhood.edges.sources_of(picked.positions)
        # the batch row of each of them [L], and the nodes met here for the first time
        sources, new = number_rows(found, row_of, first_row=len(nodes))
        nodes = np.concatenate([nodes, new])
        layer = _Layer(picked, sources)
        layers.append(layer if known is None else _append(neighborhood.edges, known, layer))
    # reset to unseen, so that the scratch array serves the next batch
    row_of[nodes] = UNSEEN
    assert distinct, "targets of one batch are distinct"
    return _Reached(nodes, layers)


def number_rows(found: SourceArray, row_of: RowArray, *, first_row: int) -> Numbered:
    """Give rows to new nodes; return the row of each node found, and the new nodes."""
    return Numbered(*(number(found, row_of, first_row=first_row) or _number(found, row_of, first_row=first_row)))


def _number(found: SourceArray, row_of: RowArray, *, first_row: int) -> Numbered:
    """Give rows as `native.number` does, without the core."""
    # nodes without a row yet, with repetitions [U]
    unseen = found[row_of[found] < 0]
    # the last assignment of an index stays: written backwards, each node holds its first position
    positions = np.arange(len(unseen), dtype=np.int32)
    row_of[unseen[::-1]] = positions[::-1]
    # each such node once, at its first position
    new: SourceArray = unseen[row_of[unseen] == positions]
    row_of[new] = np.arange(first_row, first_row + len(new), dtype=np.int32)
    return Numbered(row_of[found].astype(np.int64), new)


def _append(edges: InEdges, known: _Layer, more: _Layer) -> _Layer:
    """Return the layer of both layers' nodes, in each relation first the nodes of `known`, then of `more`."""
    relations = known.picked.num_relations
    counts = [layer.picked.counts.reshape(relations, -1) for layer in (known, more)]

    def joined(values: Callable[[_Layer], Array], offsets: Callable[[_Layer], IntArray]) -> Array:
        # each layer's values, cut where its next relation begins
        parts = (np.split(values(of), offsets(of)[np.arange(1, relations) * of.num_targets]) for of in (known, more))
        return np.concatenate([piece for both in zip(*parts, strict=True) for piece in both])

    positions = joined(lambda layer: layer.picked.positions, lambda layer: layer.picked.offsets)
    sources = joined(lambda layer: layer.sources, lambda layer: edges.source_offsets(layer.picked))
    return _Layer(Picked(positions, np.concatenate(counts, axis=1).ravel(), relations), sources)


def _paired_sources(neighborhood: Neighborhood, picked: Picked, bases: IntArray) -> IntArray:
    """Return the sources of picked edges as pairs [L]: the base of the edge's target [P] plus the row."""
    edges = neighborhood.edges
    return edges.per_leaf(picked.positions, picked.each(bases)) + edges.sources_of(picked.positions)


def _cut(neighborhood: Neighborhood, rows: IntArray, pairs: IntArray, taken: IntArray) -> NeighborhoodRows:
    """Return the union of (target, node) pairs [P], sorted, with each pair's first `taken` in-edges [R P]."""
    size, targets = neighborhood.num_nodes, np.arange(len(rows) + 1, dtype=np.int64)
    # each pair's node, and the first number of its target's pairs [P]
    nodes, base = pairs % size, pairs // size * size
    # all in-edges that were followed from any pair [E], the first `taken` of each
    picked = neighborhood.edges.prefix(nodes, limit=taken)
    # the union's row of each edge's sources: the place of (same target, source) among the pairs
    sources = np.searchsorted(pairs, _paired_sources(neighborhood, picked, base)).astype(np.int32)
    union = Neighborhood(
        roots=np.searchsorted(pairs, targets[:-1] * size + rows),
        node_ids=neighborhood.node_ids[nodes],
        degrees=neighborhood.degrees.take(nodes),
        features=neighborhood.features.take(nodes),
        edges=neighborhood.edges.take(picked.positions, offsets=picked.offsets, sources=sources),
    )
    return NeighborhoodRows(union, root_offsets=targets, node_offsets=np.searchsorted(pairs, targets * size))
