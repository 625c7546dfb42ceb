"""Adjacency and node rows as plain arrays, which GraphFlat stores and every execution reads.

A `Block` is one layer's bipartite adjacency. Its sources start with its targets, so a stack of blocks shares one row
order: the rows of every later block are a prefix of the first block's sources, and nothing is relabelled in between.

`relation_blocks` divides a block of several relations into a block per relation, over the rows that it joins. A layer
of one relation then sees the same as on a graph without types: T targets, which come first among its S sources. Targets
are all targets of the block of the relation's target type, with or without in-edges, so that the relations into a type
compute the same rows and can be joined row by row. Sources are the targets and the sources of the edges.

Shapes: N nodes, S sources, T targets, R relations, F features, B batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray, distinct, offsets_of, ragged_ranges
from gnnflow.graph.edges import InEdges, SourceArray, edge_scale, sample_scale
from gnnflow.graph.narrow import NarrowRows
from gnnflow.graph.sampling import Fanout, SamplingKind
from gnnflow.graph.schema import GraphSchema


class LayerEdges(Protocol):
    """The in-edges of any of N nodes that a layer aggregates: a block, or a rule that makes blocks of some nodes."""

    def step_back(self, nodes: IntArray) -> SourceArray:
        """Return the sources that some nodes read, edge by edge."""
        return self.cut(nodes).edges.sources

    def cut(self, nodes: IntArray) -> Block:
        """Return the block of some nodes, in the given order, with the sources that `step_back` returns."""


@dataclass(frozen=True)
class Block:
    """One layer's in-edges of T targets, with sources as rows of the layer's input.

    Source row i < T is target i, unless own [T] says which source rows are the targets. Two scales compensate for the
    edges that a sample left out: sample_scale [R T] of a uniform sample, edge_scale [E] of a weighted one. Both are
    None where no edge is missing, and for top_k, which is not scaled.
    """

    edges: InEdges
    num_sources: int
    sample_scale: FloatArray | None = None
    edge_scale: FloatArray | None = None
    own: IntArray | None = None

    @property
    def num_targets(self) -> int:
        """The number of targets T."""
        return self.edges.num_targets

    @property
    def num_edges(self) -> int:
        """The number of edges E."""
        return self.edges.num_edges

    def step_back(self, nodes: IntArray) -> SourceArray:
        """Return the sources that some targets read, edge by edge."""
        return self.edges.step_back(nodes)

    def cut(self, nodes: IntArray) -> Block:
        """Return the block of only some targets, in the given order, with the same sources."""
        edges = self.edges
        picked = edges.prefix(nodes, limit=None)
        # a scale per row of each relation
        scale = None if self.sample_scale is None else self.sample_scale.reshape(edges.num_relations, -1)
        return Block(
            edges.take(picked.positions, offsets=picked.offsets),
            self.num_sources,
            None if scale is None else scale[:, nodes].ravel(),
            None if self.edge_scale is None else self.edge_scale[picked.positions],
            None if self.own is None else self.own[nodes],
        )

    def first(self, num_targets: int) -> Block:
        """Return the block of the first `num_targets` targets, with the same sources."""
        return self if num_targets == self.num_targets else self.cut(np.arange(num_targets))

    def run(self, targets: slice) -> Block:
        """Return the block of n consecutive targets of its one relation.

        Its sources are these targets, then all S; where `own` is known all S alone.
        """
        edges = self.edges.run(targets)
        first, last = self.edges.offsets[[targets.start, targets.stop]]
        sample_scale = None if self.sample_scale is None else self.sample_scale[targets]
        edge_scale = None if self.edge_scale is None else self.edge_scale[first:last]
        if self.own is not None:
            return Block(edges, self.num_sources, sample_scale, edge_scale, self.own[targets])
        # sources that are targets of the run [E]: they keep their own row, by which a layer finds self-loops
        is_own, number = (edges.sources >= targets.start) & (edges.sources < targets.stop), targets.stop - targets.start
        sources = edges.sources + np.where(is_own, -targets.start, number)
        return Block(replace(edges, sources=sources), number + self.num_sources, sample_scale, edge_scale)

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
            self.own,
        )


def sampled_block(edges: InEdges, *, num_sources: int, in_degree: IntArray, sampling: SamplingKind) -> Block:
    """Return the block of a sample's edges with its scale.

    in_degree [T] or [T, R]: of the targets, in the full graph. Only this function chooses a sample's scale. Training
    and GraphInfer both make their blocks here, so that the parity certificate compares blocks that are equal to the
    last bit.
    """
    assert sampling != "uniform" or edges.next_arrival is None, "the edges of a weighted sample are not a uniform one"
    if sampling == "uniform":
        # row by row, relation by relation [R T]
        by_row = in_degree if in_degree.ndim == 1 else in_degree.T.ravel()
        return Block(edges, num_sources, sample_scale=sample_scale(by_row, edges.lengths))
    if sampling == "weighted":
        return Block(edges, num_sources, edge_scale=edge_scale(edges))
    return Block(edges, num_sources)


@dataclass(frozen=True)
class SampledEdges(LayerEdges):
    """The first in-edges of N nodes as `LayerEdges`, which copy an edge only when it is cut.

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


def sum_relations(degrees: IntArray) -> IntArray:
    """Return the degrees over all relations [N], from degrees [N] or, with several relations, [N, R]."""
    return degrees if degrees.ndim == 1 else degrees.sum(1)


@dataclass(frozen=True)
class Degrees:
    """The degrees and type of each row in the full graph, never in a sample.

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
        zeros = np.zeros_like(self.in_degree)
        return Degrees(zeros, zeros, np.zeros_like(self.in_weight), self.types)

    def relation(self, number: int) -> Degrees:
        """Return the degrees in one relation [N]."""
        if self.in_degree.ndim == 1:
            return self
        own = (slice(None), number)
        return Degrees(self.in_degree[own], self.out_degree[own], self.in_weight[own], self.types)


@dataclass(frozen=True)
class Features:
    """Node input features in exactly one form: dense [N, F], or sparse rows (offsets, index, optional value).

    narrow: dense holds stored rows of this form, bytes [n, row_bytes]; None: float32 numbers. rows [N]: which of narrow
    rows these are, gathered only where they are read or widened; None: all.
    """

    width: int
    dense: Array | None = None
    offsets: IntArray | None = None
    index: IntArray | None = None
    value: FloatArray | None = None
    narrow: NarrowRows | None = None
    rows: IntArray | None = None

    @property
    def is_sparse(self) -> bool:
        """True where rows are stored as (index, value) pairs."""
        return self.dense is None

    def __len__(self) -> int:
        """Return the number of rows."""
        if self.dense is not None:
            return len(self.dense if self.rows is None else self.rows)
        assert self.offsets is not None
        return len(self.offsets) - 1

    @property
    def stored(self) -> Array:
        """The dense rows as they are stored [N, F], or [N, row_bytes]."""
        assert self.dense is not None
        return self.dense if self.rows is None else np.take(self.dense, self.rows, axis=0)

    @property
    def numbers(self) -> FloatArray:
        """The dense rows as float32 numbers [N, F]: narrow rows in new memory."""
        return self.stored if self.narrow is None else self.narrow.decode(self.stored)

    def take(self, rows: IntArray) -> Features:
        """Return the given rows, in the given order."""
        if self.narrow is not None:
            return replace(self, rows=rows if self.rows is None else self.rows[rows])
        if self.dense is not None:
            # np.take gathers whole rows faster than indexing does, and as bytes it takes them from any address.
            gathered = np.take(self.dense.view(np.uint8), rows, axis=0) if self.width else self.dense[rows]
            return Features(self.width, dense=gathered.view(np.float32))
        assert self.offsets is not None
        assert self.index is not None
        # nonzero columns of each row [N], then their positions
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        picked = ragged_ranges(self.offsets[rows], lengths)
        value = None if self.value is None else self.value[picked]
        return Features(self.width, offsets=offsets_of(lengths), index=self.index[picked], value=value)


@dataclass(frozen=True)
class TypedFeatures:
    """Node input features of several types. types [N]: the number of each row's type.

    parts: the features of each type, in the order of the type's rows; None for a type without features.
    """

    types: IntArray
    parts: tuple[Features | None, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.types)

    @cached_property
    def places(self) -> IntArray:
        """The number of each row among the rows of its type [N]."""
        places = np.empty(len(self), np.int64)
        for number in range(len(self.parts)):
            # rows of one type, numbered in their order
            rows = np.flatnonzero(self.types == number)
            places[rows] = np.arange(len(rows))
        return places

    def take(self, rows: IntArray) -> TypedFeatures:
        """Return the given rows, in the given order."""
        types, places = self.types[rows], self.places[rows]
        # the rows of each type as rows of its part
        own = (places[types == number] for number in range(len(self.parts)))
        parts = (None if part is None else part.take(of) for part, of in zip(self.parts, own, strict=True))
        return TypedFeatures(types, tuple(parts))


NodeFeatures = Features | TypedFeatures
"""Input features of rows of one type, or of several types."""


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
    """A batch whose first layer reads its sources in place, from the neighbourhood that the batch was cut from.

    first holds the in-edges of the T nodes that the first layer computes; its sources are rows of the neighbourhood,
    and so are rows [T], the T nodes themselves. blocks belong to the later layers; the first of them has these T nodes
    as sources, and nodes describes them. targets: dense ids of the B targets.
    """

    first: Block
    rows: IntArray
    blocks: tuple[Block, ...]
    nodes: Degrees
    targets: IntArray

    def read_rows(self) -> tuple[InPlaceBatch, IntArray]:
        """Return the batch over only the rows of the neighbourhood that it reads, and these rows, ascending."""
        is_read = np.zeros(self.first.num_sources, bool)
        is_read[self.first.edges.sources] = True
        is_read[self.rows] = True
        read = np.flatnonzero(is_read)
        # the place of each row among these; other entries are never used
        places = np.empty(self.first.num_sources, np.int64)
        places[read] = np.arange(len(read))
        edges = replace(self.first.edges, sources=places[self.first.edges.sources])
        return replace(
            self, first=replace(self.first, edges=edges, num_sources=len(read)), rows=places[self.rows]
        ), read


_UNSEEN = -1


@dataclass(frozen=True)
class RelationBlock:
    """One relation's part of a block.

    targets [T]: its targets as rows of the block's targets, ascending; sources [S]: its sources as rows of the block's
    sources, the targets first, then the others ascending.
    """

    relation: int
    block: Block
    targets: IntArray
    sources: IntArray


def relation_blocks(block: Block, types: IntArray, schema: GraphSchema) -> tuple[RelationBlock, ...]:
    """Return a block per relation. types: the number of each source row's type, of the block."""
    target_types = types[: block.num_targets]
    # the rows of each type among the targets
    targets = [np.flatnonzero(target_types == number) for number in range(schema.num_types)]
    # the place of each source row among the sources of one relation [S]
    places = np.full(block.num_sources, _UNSEEN, np.int64)
    return tuple(
        _part(block.relation(number), number, targets[target_type], places)
        for number, target_type in enumerate(schema.target_types)
    )


def _part(block: Block, number: int, targets: IntArray, places: IntArray) -> RelationBlock:
    """Return one relation's part. places: all _UNSEEN, before and after."""
    edges = block.edges
    places[targets] = np.arange(len(targets))
    # sources of the edges that are not targets of the relation, ascending
    read = distinct(edges.sources[places[edges.sources] == _UNSEEN].astype(np.int64))
    places[read] = np.arange(len(targets), len(targets) + len(read))
    # in-edges of each target [T]: rows of other types have none, so the order of edges stays
    lengths = edges.lengths[targets]
    assert int(lengths.sum()) == edges.num_edges, "a relation's edges lead to nodes of its target type"
    own = replace(edges, offsets=offsets_of(lengths), sources=places[edges.sources])
    sources = np.concatenate([targets, read])
    places[sources] = _UNSEEN
    scale = None if block.sample_scale is None else block.sample_scale[targets]
    return RelationBlock(number, Block(own, len(sources), scale, block.edge_scale), targets, sources)
