"""The in-edges that a layer takes of a partition's targets in one relation, and where their sources come from.

A relation's targets are all of the layer's of the type that it leads to; without types there is one relation. Where
edges have leaves, sources are these, and rows alone are sent: edges are dealt to owners by their one source. A source
that is a target too is at hand. The others are asked for: of other partitions, and of this one the rows that the layer
reads but does not compute. Rows asked for come in ascending dense id, so one owner's rows are a run of them.

Shapes: T targets, E edges, S sources asked for, P partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import distinct, is_first, offsets_of
from gnnflow.graph.batch import Block, sampled_block
from gnnflow.graph.edges import InEdges, SourceArray
from gnnflow.infer.choice import PairCounts
from gnnflow.infer.hub_edges import split_edges
from gnnflow.native import NumberedSources, count_ranks, cut_pieces, number_sources

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.infer.hub_edges import HubEdges
    from gnnflow.infer.job import InferJob


class OwnerEdges(NamedTuple):
    """Positions of the edges from one owner's sources, and whether each is the first of its target among them."""

    positions: IntArray
    first: Array


class OwnerBlock(NamedTuple):
    """The block of the edges from one owner's rows, and the targets that they lead to, ascending."""

    block: Block
    targets: IntArray


@dataclass(frozen=True)
class Grouped:
    """The edges from asked-for sources, grouped by the source's owner, each group in target order.

    positions: of these edges among the E. bounds [P + 1]: where each owner's begin. first: whether an edge is the first
    of its target in its group.
    """

    positions: IntArray
    bounds: IntArray
    first: Array

    def of(self, owner: int) -> OwnerEdges:
        """Return one owner's edges."""
        own = slice(int(self.bounds[owner]), int(self.bounds[owner + 1]))
        return OwnerEdges(self.positions[own], self.first[own])


class PieceEdges(NamedTuple):
    """The edges of each target by the owner of their source, those from this partition first: its pieces.

    order [E]: positions of the edges, piece by piece; None where edges have no column to bring in it. bounds [T + 1]:
    which pieces a target has; this partition's is always one, perhaps empty. begins [pieces + 1]: where the edges of
    each piece begin. sources [E]: dense ids.
    """

    order: IntArray | None
    bounds: IntArray
    begins: IntArray
    sources: SourceArray


@dataclass(frozen=True)
class LayerReads:
    """The rows and edges that a layer reads in a relation for the targets of a partition.

    rows [T]: the targets' local rows, ascending. edges: their in-edges, by target; sources are dense ids. asked [S]:
    dense ids, ascending. offsets [P + 1]: where the rows of each owner begin among the asked. grouped: the edges by
    owner, where they were kept; pieces: the edges in pieces, the same. hubs: their edges that are split, unless it was
    kept. numbered: `numbers`, where they are known.
    """

    index: int
    job: InferJob
    relation: int
    rows: IntArray
    edges: InEdges
    asked: IntArray
    offsets: IntArray
    grouped: Grouped | None = None
    pieces: PieceEdges | None = None
    hubs: HubEdges | None = None
    numbered: IntArray | None = None

    @property
    def num_asked(self) -> IntArray:
        """The number of rows asked of each partition [P]."""
        return np.diff(self.offsets)

    @cached_property
    def numbers(self) -> IntArray:
        """Each edge's source as a row [E]: of the T targets, then of the S that are asked for."""
        if self.numbered is not None:
            return self.numbered
        return number_rows(self.edges.sources, self._ids, num_nodes=self.job.neighbors.store.book.num_nodes).rows

    @cached_property
    def is_own(self) -> Array:
        """True for each edge whose source is a target [E]."""
        return self.numbers < len(self.rows)

    @cached_property
    def targets(self) -> IntArray:
        """The target that each edge leads to [E]."""
        return np.repeat(np.arange(len(self.rows)), self.edges.lengths)

    @property
    def is_grouped(self) -> bool:
        """True if `by_owner` is known already."""
        return "by_owner" in self.__dict__

    @cached_property
    def by_owner(self) -> Grouped:
        """The edges from asked-for sources by the source's owner."""
        if self.grouped is not None:
            return self.grouped
        parts = len(self.offsets) - 1
        # owner of each edge's source [E outside], as a small integer, which sorts in linear time
        outside = np.flatnonzero(~self.is_own)
        owner_of_asked = np.repeat(np.arange(parts, dtype=np.min_scalar_type(parts)), self.num_asked)
        owner = owner_of_asked[self.numbers[outside] - len(self.rows)]
        # positions of these edges, owner by owner, and whether each is the first of its target there [E outside]
        positions = outside[np.argsort(owner, kind="stable")]
        bounds = offsets_of(np.bincount(owner, minlength=parts))
        first = is_first(self.targets[positions])
        first[bounds[:-1][np.diff(bounds) > 0]] = True
        return Grouped(positions, bounds, first)

    @cached_property
    def in_pieces(self) -> PieceEdges:
        """The edges in pieces."""
        number = len(self.offsets)
        order, bounds, begins = cut_pieces(self.edges.offsets, self.numbers, self._ranks, num_ranks=number)
        columns = (self.edges.weight, self.edges.attributes, self.edges.next_arrival, self.in_place.edge_scale)
        kept = None if all(column is None for column in columns) else order
        return PieceEdges(kept, bounds, begins, self.edges.sources[order].astype(self.id_type))

    @cached_property
    def _ranks(self) -> IntArray:
        """The rank of each row's owner [T + S]: zero is this partition, then they ascend."""
        ranks = np.arange(1, len(self.offsets))
        ranks[self.index] = 0
        return np.concatenate([np.zeros(len(self.rows), np.int64), np.repeat(ranks, self.num_asked)])

    @property
    def _ids(self) -> IntArray:
        """The dense ids of the targets [T]."""
        return self.rows + self.job.neighbors.store.book.start(self.index)

    @property
    def id_type(self) -> npt.DTypeLike:
        """The type in which dense ids, and rows, are kept."""
        return np.int32 if self.job.neighbors.store.book.num_nodes <= np.iinfo(np.int32).max else np.int64

    @cached_property
    def in_place(self) -> Block:
        """All edges as one block whose sources are all nodes."""
        sampling, store = self.job.neighbors.sampling.kind, self.job.neighbors.store
        in_degree = self._in_degree if sampling == "uniform" else np.zeros(0, np.int64)
        own = self._ids.astype(self.id_type)
        block = sampled_block(self.edges, num_sources=store.book.num_nodes, in_degree=in_degree, sampling=sampling)
        return replace(block, own=own)

    def block_of_pieces(self, pieces: PieceEdges) -> Block:
        """Return all edges, piece by piece, as a block of T targets whose sources are all nodes."""
        placed = self.in_place
        if pieces.order is None:
            return Block(InEdges(self.edges.offsets, pieces.sources), placed.num_sources, placed.sample_scale)
        edges = self.edges.take(pieces.order, offsets=self.edges.offsets, sources=pieces.sources)
        scale = None if placed.edge_scale is None else placed.edge_scale[pieces.order]
        return Block(edges, placed.num_sources, placed.sample_scale, scale)

    @property
    def counts(self) -> PairCounts:
        """Counts of what is read from each partition; zero for this one, which sends itself no states."""
        if self.job.joins:
            number = len(self.offsets)
            counted = count_ranks(self.edges.offsets, self.numbers, self._ranks, num_ranks=number)
            # of each owner [P], which is the rank less one; rank zero is this partition's, and not counted
            return PairCounts(self.num_asked, counted.targets[1:], counted.edges[1:])
        grouped = self.by_owner
        # for each partition [P]: edges from its rows, and targets that these lead to
        firsts = offsets_of(grouped.first)[grouped.bounds]
        edges, targets = np.diff(grouped.bounds), np.diff(firsts)
        edges[self.index] = targets[self.index] = 0
        return PairCounts(self.num_asked, targets, edges)

    @cached_property
    def whole(self) -> Block:
        """All edges as one block: its sources are the T targets, then the S rows asked for."""
        edges = replace(self.edges, sources=self.numbers)
        return replace(self.in_place, edges=edges, num_sources=len(self.rows) + len(self.asked), own=None)

    @property
    def _in_degree(self) -> IntArray:
        """The targets' full-graph in-degrees in the relation [T]."""
        store = self.job.neighbors.store
        node_type = store.schema.target_types[self.relation]
        rows = self.rows - store.book.rows(self.index, node_type).start
        found: IntArray = store.in_degrees(self.index, self.relation)[rows]
        return found

    def of_owners(self, owners: Array) -> Block:
        """Return the edges from targets, and from rows asked of the given partitions, as a block of T targets.

        Its sources are the T targets, then those partitions' rows. owners [P]: whether a partition is one of them.
        """
        # which of the T + S rows the block has, and where they lie in it
        chosen = np.concatenate([np.ones(len(self.rows), bool), np.repeat(owners, self.num_asked)])
        place = np.cumsum(chosen) - 1
        # positions of the edges that come from these rows, and offsets of each target's [T + 1]
        positions = np.flatnonzero(chosen[self.numbers])
        offsets = offsets_of(np.bincount(self.targets[positions], minlength=len(self.rows)))
        return self._part(positions, offsets, place[self.numbers[positions]], num_sources=int(chosen.sum()))

    def of_owner(self, owner: int, *, every: bool = False) -> OwnerBlock:
        """Return the edges from one partition's rows as a block of the targets that they lead to.

        Its sources are the rows asked of that partition. every: the block has all T targets.
        """
        positions, first = self.by_owner.of(owner)
        sources, number = self.numbers_asked(positions, owner), int(self.num_asked[owner])
        if every:
            offsets = offsets_of(np.bincount(self.targets[positions], minlength=len(self.rows)))
            return OwnerBlock(self._part(positions, offsets, sources, num_sources=number), np.arange(len(self.rows)))
        targets = self.targets[positions[first]]
        # where each target's edges begin among the owner's [n + 1]
        offsets = np.append(np.flatnonzero(first), len(positions))
        return OwnerBlock(self._part(positions, offsets, sources, num_sources=number, targets=targets), targets)

    def numbers_asked(self, positions: IntArray, owner: IntArray | int) -> IntArray:
        """Return the place of each edge's source among the rows asked of its owner."""
        numbers: IntArray = self.numbers[positions] - len(self.rows) - self.offsets[owner]
        return numbers

    def targets_of(self, owner: int) -> IntArray:
        """Return which targets have in-edges from one partition's rows, ascending."""
        positions, first = self.by_owner.of(owner)
        return self.targets[positions[first]]

    def _part(
        self,
        positions: IntArray,
        offsets: IntArray,
        sources: IntArray,
        *,
        num_sources: int,
        targets: IntArray | slice = slice(None),
    ) -> Block:
        whole = self.whole
        return Block(
            whole.edges.take(positions, offsets=offsets, sources=sources),
            num_sources,
            None if whole.sample_scale is None else whole.sample_scale[targets],
            None if whole.edge_scale is None else whole.edge_scale[positions],
        )


def layer_reads(index: int, job: InferJob, *, layer: int, rows: IntArray) -> tuple[LayerReads, ...]:
    """Return a layer's reads in each relation for local rows of a partition, ascending."""
    store, limit = job.neighbors.store, job.fanout(layer)
    start, held = store.book.start(index), job.neighbors.in_edges(index)
    found = []
    for relation, node_type in enumerate(store.schema.target_types):
        places = store.book.rows(index, node_type)
        # the layer's rows of the type that the relation leads to
        own = rows[np.searchsorted(rows, places.start) : np.searchsorted(rows, places.stop)]
        every = held.relation(relation)
        of_relation, hubs = split_edges(every, own, index=index, job=job, layer=layer, relation=relation)
        picked = of_relation.prefix(own, limit=limit[relation] if isinstance(limit, tuple) else limit)
        edges = of_relation.take(picked.positions, offsets=picked.offsets)
        # dense ids to ask for [S], ascending, each edge's source as a row [E], and where each owner's ids begin [P + 1]
        asked, numbers = number_rows(edges.sources, own + start, num_nodes=store.book.num_nodes)
        bounds = np.searchsorted(asked, store.book.offsets[:: store.book.num_types])
        found.append(LayerReads(index, job, relation, own, edges, asked, bounds, hubs=hubs, numbered=numbers))
    return tuple(found)


def number_rows(sources: SourceArray, targets: IntArray, *, num_nodes: int) -> NumberedSources:
    """Return the sources that are no targets, and the rows of all sources.

    sources [E] and targets [T], ascending, are dense ids. Rows are the T targets, then those sources.
    """
    numbered = number_sources(sources, targets, num_nodes=num_nodes)
    if numbered is not None:
        return numbered
    others = distinct(sources[~np.isin(sources, targets)])
    every = np.concatenate([targets, others])
    order = np.argsort(every, kind="stable")
    return NumberedSources(others, order[np.searchsorted(every[order], sources)])
