"""Plans the rows that each rank computes in each layer and reads from other ranks, once before training.

A rank owns a run of dense ids; the nodes of its run are its masters. Backwards from the targets, layer by layer, a
breadth-first search finds the rows that still reach a target: a layer computes those alone, and only masters that an
active row reads are sent. A source that another rank owns is a mirror: a row that is received, once per layer, however
many edges read it. So traffic grows with the mirrors and not with the edges.

A rank's rows are numbered so that every layer's rows are a prefix of the layer's before: nodes that are active in the
last layer come first, in order of their ids. Sources of a layer are these rows, then its mirrors, owner by owner.
Nothing is relabelled between layers.

Ranks tell each other which rows they read with exchanges of ids, here and never again.

Shapes: N own nodes, T targets of a layer, M mirrors, E edges, K layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gnnflow.executions.base import PassCounts
from gnnflow.executions.row_exchange import Exchange, swapped, told_by_all
from gnnflow.graph.arrays import Array, IntArray, distinct, find_places, offsets_of
from gnnflow.graph.batch import Block, LayerEdges


@dataclass(frozen=True)
class Traffic:
    """The rows one rank sends in a layer: their numbers, rank by rank, how many to each, and how many come of each."""

    rows: IntArray
    sent: tuple[int, ...]
    received: tuple[int, ...]


@dataclass(frozen=True)
class Totals(PassCounts):
    """Counts of one layer over all ranks: every rank has the same numbers."""

    num_mirrors: int


@dataclass(frozen=True)
class ActiveLayer:
    """One layer of one rank.

    block: the in-edges of its T active rows; sources are the rank's rows of the layer before, num_own of them, then the
    mirrors. mirrors [M]: dense ids, ascending. traffic: None where no rank has a mirror.
    """

    block: Block
    num_own: int
    mirrors: IntArray
    traffic: Traffic | None
    totals: Totals


@dataclass(frozen=True)
class ActiveRows:
    """All layers of one rank. rows: which of the rank's nodes it starts from, as the first layer's sources lie."""

    rows: IntArray
    layers: tuple[ActiveLayer, ...]

    @property
    def targets(self) -> IntArray:
        """The rank's nodes that are targets, in the order of its outputs: ascending."""
        return self.rows[: self.layers[-1].block.num_targets]


def active_rows(blocks: Sequence[LayerEdges], targets: IntArray, *, bounds: IntArray, exchange: Exchange) -> ActiveRows:
    """Return the rows that this rank computes for its targets and for other ranks.

    blocks: one per layer, first layer first, of the rank's N own nodes; their sources are dense ids. targets: places
    among the own nodes, ascending. bounds: rank r owns the dense ids bounds[r] .. bounds[r + 1] - 1.
    """
    first, last = int(bounds[exchange.rank]), int(bounds[exchange.rank + 1])
    # the active own nodes after 0, 1, ... layers, each ascending
    active: list[IntArray] = [targets]
    found: list[Reads] = []
    for block in reversed(blocks):
        read = distinct(np.asarray(block.step_back(active[0]), np.int64))
        reads = owned_and_asked(read, bounds=bounds, exchange=exchange)
        active.insert(0, distinct(np.concatenate([active[0], reads.own - first, reads.asked - first])))
        found.insert(0, reads)
    # the nodes that each layer's inputs have and its outputs lack, first layer first
    new = [more[find_places(fewer, more) < 0] for more, fewer in pairwise(active)]
    rows = np.concatenate([targets, *reversed(new)])
    # where each own node lies among the rank's rows [N], of those that are among them
    place = np.empty(last - first, np.int64)
    place[rows] = np.arange(len(rows))
    layers: list[ActiveLayer] = []
    for number, (block, reads) in enumerate(zip(blocks, found, strict=True)):
        num_own, num_targets = len(active[number]), len(active[number + 1])
        made = numbered(block, rows[:num_targets], place=place, first=first, num_own=num_own, mirrors=reads.mirrors)
        layers.append(with_traffic(made, reads, rows=place[reads.asked - first], exchange=exchange))
        if number and block is blocks[number - 1] and _same(layers[-1], layers[-2]):
            layers[-1] = replace(layers[-1], block=layers[-2].block)
    return ActiveRows(rows, tuple(layers))


@dataclass(frozen=True)
class Gathered:
    """Rows that a rank reads after the last layer: its nodes' rows, and rows that other ranks send.

    targets: the rank's nodes whose rows it computes, for itself or others, ascending. mirrors [M]: dense ids of the
    others, ascending. traffic: its rows are the targets; None where no rank has a mirror.
    """

    first: int
    targets: IntArray
    mirrors: IntArray
    traffic: Traffic | None

    def rows_of(self, nodes: IntArray) -> IntArray:
        """Return where nodes lie, given by their dense ids, among the rows of the targets and then of the mirrors."""
        # place of each node among the mirrors, and whether it is one of them
        place = np.searchsorted(self.mirrors, nodes)
        is_mirror = np.append(self.mirrors, -1)[place] == nodes
        return np.where(is_mirror, len(self.targets) + place, np.searchsorted(self.targets, nodes - self.first))


def gathered(nodes: IntArray, *, bounds: IntArray, exchange: Exchange) -> Gathered:
    """Return what a rank computes and sends, if each rank reads some nodes. nodes: dense ids, ascending, each once."""
    first = int(bounds[exchange.rank])
    reads = owned_and_asked(nodes, bounds=bounds, exchange=exchange)
    # places of the own nodes that any rank reads, ascending [T], and which of them go to other ranks
    targets = distinct(np.concatenate([reads.own, reads.asked]) - first)
    count = np.array([len(reads.mirrors)], np.int64)
    traffic = Traffic(np.searchsorted(targets, reads.asked - first), reads.sent, reads.received)
    return Gathered(first, targets, reads.mirrors, traffic if told_by_all(exchange, count).any() else None)


@dataclass(frozen=True)
class Reads:
    """The dense ids that a layer reads: of own nodes, of others, and those that others ask of this rank, by rank."""

    own: IntArray
    mirrors: IntArray
    asked: IntArray
    sent: tuple[int, ...]
    received: tuple[int, ...]


def owned_and_asked(read: IntArray, *, bounds: IntArray, exchange: Exchange) -> Reads:
    """Return the nodes that a rank reads, by owner, and the rank's nodes that others ask for.

    read: dense ids, ascending.
    """
    # own nodes are a run of the ascending ids; the others are mirrors [M]
    begin, end = np.searchsorted(read, bounds[exchange.rank : exchange.rank + 2])
    own, mirrors = read[begin:end], np.concatenate([read[:begin], read[end:]])
    # how many mirrors each rank owns, and how many of this rank's nodes each reads
    received, ones = np.diff(np.searchsorted(mirrors, bounds)), [1] * exchange.size
    sent = swapped(exchange, received[:, None], sent=ones, received=ones)[:, 0].tolist()
    asked = swapped(exchange, mirrors[:, None], sent=received.tolist(), received=sent)[:, 0]
    return Reads(own, mirrors, asked, tuple(sent), tuple(received.tolist()))


def numbered(
    edges: LayerEdges, active: IntArray, *, place: IntArray, first: int, num_own: int, mirrors: IntArray
) -> ActiveLayer:
    """Return the in-edges of active nodes, their sources numbered as the rank's rows and mirrors lie."""
    block = edges.cut(active)
    # dense id of each source, and whether this rank owns it [E]
    found = np.asarray(block.edges.sources, np.int64)
    is_own = (found >= first) & (found < first + len(place))
    sources = np.empty(len(found), np.int64)
    sources[is_own] = place[found[is_own] - first]
    sources[~is_own] = num_own + np.searchsorted(mirrors, found[~is_own])
    block = replace(block, edges=replace(block.edges, sources=sources), num_sources=num_own + len(mirrors))
    return ActiveLayer(block, num_own, mirrors, None, Totals(0, 0, 0, 0))


def with_traffic(layer: ActiveLayer, reads: Reads, *, rows: IntArray, exchange: Exchange) -> ActiveLayer:
    """Return the layer with the rows that it sends, by their numbers, and what all ranks have in it together."""
    edges = layer.block.edges
    held = len(edges.sources) if edges.leaves is not None else edges.num_edges
    # what this rank has in the layer, then the sums over all ranks [4]
    figures = np.array([layer.block.num_sources, layer.block.num_targets, held, len(layer.mirrors)], np.int64)
    totals = Totals(*told_by_all(exchange, figures).sum(0).tolist())
    traffic = Traffic(rows, reads.sent, reads.received) if totals.num_mirrors else None
    return replace(layer, traffic=traffic, totals=totals)


def _same(layer: ActiveLayer, before: ActiveLayer) -> bool:
    """Return whether two layers over the same in-edges have the same rows and mirrors, and so the same block."""
    same = layer.num_own == before.num_own and layer.block.num_targets == before.block.num_targets
    return same and bool(np.array_equal(layer.mirrors, before.mirrors))


class SplitBlocks(NamedTuple):
    """The in-edges from own rows alone, and those that read a mirror.

    Sources of own are the rank's rows; of mirrored the mirrors, or where edges have leaves the rows and then the
    mirrors, since one edge may read both.
    """

    own: Block
    mirrored: Block


def split_by_mirrors(layer: ActiveLayer) -> SplitBlocks:
    """Split a layer's in-edges by their sources."""
    block, edges = layer.block, layer.block.edges
    reads_mirror: Array = edges.sources >= layer.num_own
    if edges.leaves is not None:
        # edges with a leaf that is a mirror
        reads_mirror = np.diff(offsets_of(reads_mirror)[edges.leaves]) > 0
    own, mirrored = (_edges_where(block, kept) for kept in (~reads_mirror, reads_mirror))
    own = replace(own, num_sources=layer.num_own)
    if edges.leaves is None:
        moved = replace(mirrored.edges, sources=mirrored.edges.sources - layer.num_own)
        mirrored = replace(mirrored, edges=moved, num_sources=len(layer.mirrors))
    return SplitBlocks(own, mirrored)


def _edges_where(block: Block, kept: Array) -> Block:
    edges = block.edges
    # positions of the kept edges, and the row that each leads to
    positions = np.flatnonzero(kept)
    rows = np.repeat(np.arange(len(edges.lengths)), edges.lengths)[positions]
    part = edges.take(positions, offsets=offsets_of(np.bincount(rows, minlength=len(edges.lengths))))
    return replace(block, edges=part, edge_scale=None if block.edge_scale is None else block.edge_scale[positions])
