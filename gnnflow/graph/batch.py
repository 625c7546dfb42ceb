"""Adjacency and node rows as plain arrays: what GraphFlat stores, training reads and every execution computes on.

A `Block` is one layer's bipartite adjacency. Its sources start with its targets, so a stack of blocks shares one row
order: the rows of every later block are a prefix of the first block's sources, and nothing is relabelled in between.

Shapes: N nodes, T targets, R relations, F features, B batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of, ragged_ranges
from gnnflow.graph.edges import Fanout, InEdges, SamplingKind, SourceArray, edge_scale, sample_scale


class LayerEdges(Protocol):
    """The in-edges that a layer aggregates of any of N nodes: a block, or what makes blocks of some nodes."""

    def step_back(self, nodes: IntArray) -> SourceArray:
        """Return the sources that some nodes read, edge by edge."""

    def cut(self, nodes: IntArray) -> Block:
        """Return the block of some nodes, in the given order; sources are named as `step_back` names them."""


@dataclass(frozen=True)
class Block:
    """One layer's in-edges of T targets, their sources as rows of what the layer reads.

    Source row i < T is target i. What makes up for edges that a sample left out: sample_scale [R T] of a uniform
    sample, edge_scale [E] of a weighted one, both None where every edge is there or a truncation (top_k) is taken as it
    is.
    """

    edges: InEdges
    num_sources: int
    sample_scale: FloatArray | None = None
    edge_scale: FloatArray | None = None

    @property
    def num_targets(self) -> int:
        """How many targets T the block computes."""
        return self.edges.num_targets

    @property
    def num_edges(self) -> int:
        """How many edges the block holds."""
        return self.edges.num_edges

    def step_back(self, nodes: IntArray) -> SourceArray:
        """Return the sources that some targets read, edge by edge."""
        return self.edges.step_back(nodes)

    def cut(self, nodes: IntArray) -> Block:
        """Return the block of some targets alone, in the given order, with the same sources."""
        edges = self.edges
        picked = edges.prefix(nodes, limit=None)
        # a scale per row of each relation
        scale = None if self.sample_scale is None else self.sample_scale.reshape(edges.num_relations, -1)
        return Block(
            edges.take(picked.positions, offsets=picked.offsets),
            self.num_sources,
            None if scale is None else scale[:, nodes].ravel(),
            None if self.edge_scale is None else self.edge_scale[picked.positions],
        )

    def first(self, num_targets: int) -> Block:
        """Return the block of the first so many targets, with the same sources."""
        return self if num_targets == self.num_targets else self.cut(np.arange(num_targets))

    def run(self, targets: slice) -> Block:
        """Return the block of a run of n targets in its one relation: their own n source rows, then all of this one."""
        own, edges = targets.stop - targets.start, self.edges.run(targets)
        first, last = self.edges.offsets[[targets.start, targets.stop]]
        # a source that is a target of the run is its own row there: a layer may ask whether an edge is a self-loop
        is_own = (edges.sources >= targets.start) & (edges.sources < targets.stop)
        return Block(
            replace(edges, sources=edges.sources + np.where(is_own, -targets.start, own)),
            own + self.num_sources,
            None if self.sample_scale is None else self.sample_scale[targets],
            None if self.edge_scale is None else self.edge_scale[first:last],
        )

    def relation(self, number: int) -> Block:
        """Return the block of one relation's edges, over the same memory."""
        if self.edges.num_relations == 1:
            return self
        rows = slice(number * self.num_targets, (number + 1) * self.num_targets)
        first, last = self.edges.offsets[[rows.start, rows.stop]]
        return Block(
            self.edges.relation(number),
            self.num_sources,
            None if self.sample_scale is None else self.sample_scale[rows],
            None if self.edge_scale is None else self.edge_scale[first:last],
        )


def sampled_block(edges: InEdges, *, num_sources: int, in_degree: IntArray, sampling: SamplingKind) -> Block:
    """Return the block of a sample's edges with its scale. in_degree [T] or [T, R]: of the targets, in the full graph.

    The one place where a sample's scale is decided. Training and GraphInfer both make their blocks here; the parity
    certificate compares the two and holds only because they are equal to the last bit.
    """
    assert sampling != "uniform" or edges.next_arrival is None, "the edges of a weighted sample are no uniform one"
    if sampling == "uniform":
        # row by row, relation by relation [R T]
        by_row = in_degree if in_degree.ndim == 1 else in_degree.T.ravel()
        return Block(edges, num_sources, sample_scale=sample_scale(by_row, edges.lengths))
    if sampling == "weighted":
        return Block(edges, num_sources, edge_scale=edge_scale(edges))
    return Block(edges, num_sources)


@dataclass(frozen=True)
class SampledEdges:
    """The first in-edges of N nodes, which are cut where they are asked for: `LayerEdges` that copy nothing before.

    limit: the layer's fan-out; None takes every edge. in_degree [N] or [N, R]: in the full graph.
    """

    edges: InEdges
    num_sources: int
    in_degree: IntArray
    limit: Fanout | None
    sampling: SamplingKind

    def step_back(self, nodes: IntArray) -> SourceArray:
        """Return the sources that some nodes read, edge by edge."""
        return self.edges.step_back(nodes, limit=self.limit)

    def cut(self, nodes: IntArray) -> Block:
        """Return the block of some nodes, with the scale of their sample."""
        picked = self.edges.prefix(nodes, limit=self.limit)
        return sampled_block(
            self.edges.take(picked.positions, offsets=picked.offsets),
            num_sources=self.num_sources,
            in_degree=self.in_degree[nodes],
            sampling="none" if self.limit is None else self.sampling,
        )


def over_relations(degrees: IntArray) -> IntArray:
    """Return degrees [N], or [N, R] of several relations, as those over all of them [N]; of no row too."""
    return degrees if degrees.ndim == 1 else degrees.sum(1)


@dataclass(frozen=True)
class Degrees:
    """What the graph knows of each row: full-graph values, never those of a sample.

    in_weight is the sum of in-edge weights, equal to in_degree where the graph has none. All are [N], or [N, R] where
    there are several relations. types [N]: the number of each row's type; None where there is one type.
    """

    in_degree: IntArray
    out_degree: IntArray
    in_weight: FloatArray
    types: IntArray | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.in_degree)

    def take(self, rows: Array | slice) -> Degrees:
        """Return the given rows, in the given order."""
        types = None if self.types is None else self.types[rows]
        return Degrees(self.in_degree[rows], self.out_degree[rows], self.in_weight[rows], types)

    @property
    def zeros(self) -> Degrees:
        """The degrees of the same rows in a graph without edges."""
        nothing = np.zeros_like(self.in_degree)
        return Degrees(nothing, nothing, np.zeros_like(self.in_weight), self.types)

    def relation(self, number: int) -> Degrees:
        """Return the degrees in one relation [N]."""
        if self.in_degree.ndim == 1:
            return self
        own = (slice(None), number)
        return Degrees(self.in_degree[own], self.out_degree[own], self.in_weight[own], self.types)


@dataclass(frozen=True)
class Features:
    """Node input features in exactly one form: dense [N, F], or sparse rows (offsets, index, optional value)."""

    width: int
    dense: FloatArray | None = None
    offsets: IntArray | None = None
    index: IntArray | None = None
    value: FloatArray | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether rows are stored as (index, value) pairs."""
        return self.dense is None

    def __len__(self) -> int:
        """Return the number of rows."""
        if self.dense is not None:
            return len(self.dense)
        assert self.offsets is not None
        return len(self.offsets) - 1

    def take(self, rows: IntArray) -> Features:
        """Return the given rows, in the given order."""
        if self.dense is not None:
            # np.take gathers whole rows faster than indexing does, and as bytes it takes them from any address.
            gathered = np.take(self.dense.view(np.uint8), rows, axis=0) if self.width else self.dense[rows]
            return Features(self.width, dense=gathered.view(np.float32))
        assert self.offsets is not None
        assert self.index is not None
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        picked = ragged_ranges(self.offsets[rows], lengths)
        value = None if self.value is None else self.value[picked]
        return Features(self.width, offsets=offsets_of(lengths), index=self.index[picked], value=value)


@dataclass(frozen=True)
class TypedFeatures:
    """Node input features of several types. types [N]: the number of each row's type.

    parts: one per type, its rows in the order in which rows of the type come; None of a type that has no features.
    """

    types: IntArray
    parts: tuple[Features | None, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.types)

    @cached_property
    def places(self) -> IntArray:
        """The number of each row among those of its type [N]."""
        places = np.empty(len(self), np.int64)
        for number in range(len(self.parts)):
            rows = np.flatnonzero(self.types == number)
            places[rows] = np.arange(len(rows))
        return places

    def take(self, rows: IntArray) -> TypedFeatures:
        """Return the given rows, in the given order."""
        types, places = self.types[rows], self.places[rows]
        own = (places[types == number] for number in range(len(self.parts)))
        parts = (None if part is None else part.take(of) for part, of in zip(self.parts, own, strict=True))
        return TypedFeatures(types, tuple(parts))


NodeFeatures = Features | TypedFeatures
"""Input features of the rows of a graph: of one type, or of several."""


@dataclass(frozen=True)
class MiniBatch:
    """A batch of B targets with one pruned block per layer.

    blocks[0] feeds the first layer; the sources of blocks[l + 1] are the targets of blocks[l]; the last block's targets
    are the batch's. nodes and features belong to the sources of blocks[0]. labels: int64 [B] (UNLABELLED = -1),
    float32 [B, C] multi-label, float32 [B] regression, or None.
    """

    blocks: tuple[Block, ...]
    nodes: Degrees
    features: NodeFeatures
    targets: IntArray
    labels: Array | None = None


@dataclass(frozen=True)
class InPlaceBatch:
    """A batch whose first layer reads its sources where they lie, in the neighbourhood it was cut from.

    first holds the in-edges of the T nodes that the first layer computes; its sources are rows of the neighbourhood,
    and so are rows [T], the T nodes themselves. blocks are those of the later layers, the first of which has these T
    nodes as sources; nodes belong to them. targets: dense ids of the B targets.
    """

    first: Block
    rows: IntArray
    blocks: tuple[Block, ...]
    nodes: Degrees
    targets: IntArray
