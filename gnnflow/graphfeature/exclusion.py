"""Removes the edges between the ends of pairs from a batch, so that no pair is scored from its edge.

The ends of a batch's pairs are its first rows. A target edge therefore has its source and its target among them, in
every block, and no row is reached only by such an edge. A sample's scale does not change: it is the chance of each edge
to be kept, which does not depend on removed edges, so sums over the other edges are unbiased.

Edges of all relations are removed.

Shapes: B pairs, T targets and E edges of a block, R relations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gnnflow.graph.arrays import Array, IntArray, distinct, find_places
from gnnflow.graph.batch import Block, LayerEdges, MiniBatch


@dataclass(frozen=True)
class RowPairs:
    """Pairs of rows of a batch, all below num_rows: sources [B] and targets [B]."""

    sources: IntArray
    targets: IntArray
    num_rows: int

    def keys(self) -> IntArray:
        """Return both directions of every pair as integers, ascending, each once."""
        ways = [self.targets * self.num_rows + self.sources, self.sources * self.num_rows + self.targets]
        return distinct(np.concatenate(ways))


def without_pairs(batch: MiniBatch, pairs: RowPairs) -> MiniBatch:
    """Return the batch without the edges between the two ends of any pair, in either direction, in all layers."""
    keys = pairs.keys()
    # layers that share a block still share it
    made = {id(block): without_between(block, keys, pairs.num_rows) for block in batch.blocks}
    return replace(batch, blocks=tuple(made[id(block)] for block in batch.blocks))


def pairs_seen(blocks: Iterable[Block], pairs: RowPairs, *, first: int = 0) -> IntArray:
    """Return the numbers of the pairs [B] whose edge is in some block, which would reveal it to the score.

    first: as in `without_between`.
    """
    keys = pairs.keys()
    # the keys that some edge has, and whether a pair's key is among them one way or the other [B]
    found = distinct(np.concatenate([_between_ends(block, keys, pairs.num_rows, first).keys for block in blocks]))
    forward = np.isin(pairs.targets * pairs.num_rows + pairs.sources, found)
    return np.flatnonzero(forward | np.isin(pairs.sources * pairs.num_rows + pairs.targets, found))


def without_between(block: Block, keys: IntArray, num_rows: int, *, first: int | IntArray = 0) -> Block:
    """Return the block without the edges between the ends of pairs, in either direction.

    keys: of `RowPairs`. first: the number of target 0 of the block among sources, or of each target [T].
    """
    positions = _between_ends(block, keys, num_rows, first).positions
    kept = np.ones(block.num_edges, bool)
    kept[positions] = False
    return keeping(block, kept) if len(positions) else block


@dataclass(frozen=True)
class WithoutPairs(LayerEdges):
    """The in-edges of a rank's nodes without the edges between the ends of pairs, as `LayerEdges`.

    keys: of `RowPairs` whose ends are dense ids below num_nodes. first: dense id of the first node.
    """

    edges: LayerEdges
    keys: IntArray
    num_nodes: int
    first: int

    def cut(self, nodes: IntArray) -> Block:
        """Return the block of some nodes; scales do not change."""
        return without_between(self.edges.cut(nodes), self.keys, self.num_nodes, first=self.first + nodes)


def keeping(block: Block, kept: Array) -> Block:
    """Return the block with only the edges for which `kept` [E] holds; scales do not change."""
    edges = block.edges
    # kept edges, and their number before each target's first in each relation [R T + 1]
    stay = np.flatnonzero(kept)
    offsets = np.searchsorted(stay, edges.offsets)
    return Block(
        edges.take(stay, offsets=offsets),
        block.num_sources,
        sample_scale=block.sample_scale,
        edge_scale=None if block.edge_scale is None else block.edge_scale[stay],
    )


class _PairEdges(NamedTuple):
    """A block's edges that join the ends of a pair: the position and the key of each."""

    positions: IntArray
    keys: IntArray


def _between_ends(block: Block, keys: IntArray, num_rows: int, first: int | IntArray) -> _PairEdges:
    """Return the edges of a block whose ends are a pair of `keys`."""
    edges = block.edges
    # edges into rows of ends lie first in each relation; keep the ones that come from such a row
    firsts = np.arange(edges.num_relations) * block.num_targets
    runs = edges.offsets[np.stack([firsts, firsts + min(num_rows, block.num_targets)], axis=1)].tolist()
    near = np.concatenate([start + np.flatnonzero(edges.sources[start:end] < num_rows) for start, end in runs])
    # of each of these edges: the target, both ends as one integer, and whether this is a pair's key
    targets = (np.searchsorted(edges.offsets, near, side="right") - 1) % max(block.num_targets, 1)
    names = first + targets if isinstance(first, int) else first[targets]
    found = names * num_rows + edges.sources[near]
    same = find_places(keys, found) >= 0
    return _PairEdges(near[same], found[same])
