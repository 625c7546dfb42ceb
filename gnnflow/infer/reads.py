"""The in-edges that a layer takes of a partition's targets in a graph without types, and where their sources come from.

Where edges have leaves, sources are these, L of them, and rows alone are sent: parts of edges are asked for of edges
with one source each. A source that is a target too is at hand. The others are asked for: of other partitions, and of this one the rows that
the layer reads but does not compute. Rows asked for come in ascending dense id, so one owner's rows are a run of them.

Shapes: T targets, E edges, S sources asked for, P partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import distinct, offsets_of
from gnnflow.graph.batch import Block, sampled_block
from gnnflow.infer.choice import PairCounts
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.edges import InEdges
    from gnnflow.infer.job import InferJob


@dataclass(frozen=True)
class Grouped:
    """The edges from asked-for sources, grouped by the source's owner, each group in target order.

    positions: of these edges among the E. bounds [P + 1]: where each owner's begin. first: whether an edge is the first
    of its target in its group.
    """

    positions: IntArray
    bounds: IntArray
    first: Array

    def of(self, owner: int) -> tuple[IntArray, Array]:
        """Return positions and first of one owner's edges."""
        own = slice(int(self.bounds[owner]), int(self.bounds[owner + 1]))
        return self.positions[own], self.first[own]


@dataclass(frozen=True)
class LayerReads:
    """What a layer reads for the targets of a partition.

    rows [T]: the targets' local rows, ascending. edges: their in-edges, by target; sources are dense ids. is_own [E]:
    whether the source is among the targets. asked [S]: dense ids, ascending. offsets [P + 1]: where the rows of each
    owner begin among the asked.
    """

    index: int
    job: InferJob
    rows: IntArray
    edges: InEdges
    is_own: Array
    asked: IntArray
    offsets: IntArray

    @classmethod
    def of(cls, index: int, job: InferJob, *, layer: int, rows: IntArray) -> LayerReads:
        """Read the in-edges of local rows at a layer."""
        book = job.neighbors.store.book
        held = job.neighbors.in_edges(index)
        picked = held.prefix(rows, limit=job.fanout(layer))
        edges = held.take(picked.positions, offsets=picked.offsets)
        # whether each source lies in this partition, then whether it is a target as well [E]
        local = edges.sources - book.start(index)
        is_own = (local >= 0) & (local < book.size(index))
        if len(rows) < book.size(index):
            is_target = np.zeros(book.size(index), bool)
            is_target[rows] = True
            is_own[is_own] = is_target[local[is_own]]
        asked = distinct(edges.sources[~is_own])
        return cls(index, job, rows, edges, is_own, asked, np.searchsorted(asked, book.offsets))

    @property
    def num_asked(self) -> IntArray:
        """How many rows are asked of each partition [P]."""
        return np.diff(self.offsets)

    @cached_property
    def own_rows(self) -> IntArray:
        """Which target the source of each edge is [E]; meaningless where it is none."""
        store = self.job.neighbors.store
        place = np.zeros(store.book.size(self.index), np.int64)
        place[self.rows] = np.arange(len(self.rows))
        local = self.edges.sources - store.book.start(self.index)
        return place[np.where(self.is_own, local, 0)] if len(place) else local

    @cached_property
    def asked_rows(self) -> IntArray:
        """Which of the asked-for rows the source of each edge is [E]; meaningless where it is a target."""
        numbers = np.zeros(len(self.edges.sources), np.int64)
        outside = ~self.is_own
        numbers[outside] = np.searchsorted(self.asked, self.edges.sources[outside])
        return numbers

    @cached_property
    def targets(self) -> IntArray:
        """Which target each edge leads to [E]."""
        return np.repeat(np.arange(len(self.rows)), self.edges.lengths)

    @cached_property
    def by_owner(self) -> Grouped:
        """The edges from asked-for sources by the source's owner."""
        parts = len(self.offsets) - 1
        # owner of each edge's source [E outside], as a small integer, which sorts in linear time
        outside = np.flatnonzero(~self.is_own)
        owner_of_asked = np.repeat(np.arange(parts, dtype=np.min_scalar_type(parts)), self.num_asked)
        owner = owner_of_asked[self.asked_rows[outside]]
        positions = outside[np.argsort(owner, kind="stable")]
        bounds = offsets_of(np.bincount(owner, minlength=parts))
        targets = self.targets[positions]
        first = np.ones(len(positions), bool)
        np.not_equal(targets[1:], targets[:-1], out=first[1:])
        first[bounds[:-1][np.diff(bounds) > 0]] = True
        return Grouped(positions, bounds, first)

    @property
    def counts(self) -> PairCounts:
        """How much is read of each partition, none of its own: no states go from a partition to itself."""
        grouped = self.by_owner
        firsts = offsets_of(grouped.first)[grouped.bounds]
        edges, targets = np.diff(grouped.bounds), np.diff(firsts)
        edges[self.index] = targets[self.index] = 0
        return PairCounts(self.num_asked, targets, edges)

    @cached_property
    def whole(self) -> Block:
        """All edges as one block: its sources are the T targets, then the S rows asked for."""
        sources = np.where(self.is_own, self.own_rows, len(self.rows) + self.asked_rows)
        store, sampling = self.job.neighbors.store, self.job.neighbors.sampling
        return sampled_block(
            replace(self.edges, sources=sources),
            num_sources=len(self.rows) + len(self.asked),
            in_degree=to_numpy(store.nodes(self.index, ["in_degree"])["in_degree"])[self.rows],
            sampling=sampling,
        )

    def of_owners(self, owners: Array) -> Block:
        """Return the edges whose source is a target or a row asked of the given partitions, as a block of T targets.

        Its sources are the T targets, then those partitions' rows.
        """
        chosen = np.repeat(owners, self.num_asked)
        # where each row asked for comes to lie [S]
        place = len(self.rows) + np.cumsum(chosen) - chosen
        positions = np.flatnonzero(self.is_own | chosen[self.asked_rows] if len(chosen) else self.is_own)
        sources = self.whole.edges.sources[positions]
        outside = ~self.is_own[positions]
        sources[outside] = place[self.asked_rows[positions[outside]]]
        offsets = offsets_of(np.bincount(self.targets[positions], minlength=len(self.rows)))
        return self._part(positions, offsets, sources, num_sources=len(self.rows) + int(chosen.sum()))

    def of_owner(self, owner: int) -> tuple[Block, IntArray]:
        """Return the edges from one partition's rows as a block of the targets that they lead to, and which these are.

        Its sources are the rows asked of that partition.
        """
        positions, first = self.by_owner.of(owner)
        targets = self.targets[positions[first]]
        sources = self.asked_rows[positions] - self.offsets[owner]
        offsets = np.append(np.flatnonzero(first), len(positions))
        block = self._part(positions, offsets, sources, num_sources=int(self.num_asked[owner]), targets=targets)
        return block, targets

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
