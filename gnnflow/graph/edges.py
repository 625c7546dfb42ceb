"""In-edges as plain arrays, for partitions, shards, blocks and rounds alike.

Every sample is a prefix: a node's in-edges lie in priority order, so its first f edges are its sample of fan-out f.

A sum over a sample stands for the sum over all in-edges by a scale. A uniform sample has one per target, in-degree /
edges kept. A weighted one has one per edge: it keeps the f edges that arrive first, edge e at a time drawn from the
exponential distribution of rate w_e, and given tau, the arrival of the first edge that was not kept, e was kept with
probability 1 - exp(-w_e tau) (rank conditioning: Cohen and Kaplan, "Summarizing data using bottom-k sketches", PODC
2007). So every edge carries the arrival of the next one, and the last edge of a prefix gives tau, for any fan-out.
top_k is not a random sample: it keeps the heaviest edges, leaves the others out, and nothing is scaled.

Edges are ordered by relation: row r N + v holds the in-edges of node v in relation r. A relation is then a run of
edges, and a node has one row per relation.

An edge may come from several nodes, its leaves, as an instance of a metapath does. It is still one edge: picked,
weighed and scaled as one, with one more level of offsets to its leaves (the hierarchical dependency graph of FlexGraph,
EuroSys 2021, section 3). A source below is then a leaf.

Shapes: N nodes, R relations, E edges, L leaves of all edges, A edge attributes, n chosen nodes, P picked edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of, ragged_ranges
from gnnflow.graph.sampling import Fanout

TimeArray = npt.NDArray[np.float64]
SourceArray = npt.NDArray[np.signedinteger[Any]]
"""Sources are int64; int32 where they are rows of a neighbourhood."""


@dataclass(frozen=True)
class Picked:
    """Edges picked for some nodes, row by row.

    positions [P] in the edge arrays; counts [R n]: picked edges of each row, relation by relation.
    """

    positions: IntArray
    counts: IntArray
    num_relations: int = 1

    @property
    def offsets(self) -> IntArray:
        """CSR offsets of the rows' picked edges [R n + 1]."""
        return offsets_of(self.counts)

    @property
    def per_relation(self) -> IntArray:
        """The number of picked edges in each relation [R]."""
        edges: IntArray = self.counts.reshape(self.num_relations, -1).sum(1)
        return edges

    def each(self, values: Array) -> Array:
        """Return the value of each picked edge's target [P]. values: [n], one per node."""
        return np.repeat(values if self.num_relations == 1 else np.tile(values, self.num_relations), self.counts)


@dataclass(frozen=True)
class InEdges:
    """The in-edges of N nodes, each node's in priority order, so that a fan-out is a prefix.

    offsets [R N + 1] and sources [E] are a CSR by relation, then target; sources are dense ids or rows, as the owner
    says. weight [E], attributes [E, A] and time [E] are None where the graph has none. next_arrival [E], only
    of weighted samples: the arrival of the next in-edge of the same node, held here or not; infinity for a node's last.
    leaves [E + 1]: offsets of each edge's leaves in sources, which are then [L]; None where each edge has one leaf.
    """

    offsets: IntArray
    sources: SourceArray
    weight: FloatArray | None = None
    attributes: FloatArray | None = None
    next_arrival: TimeArray | None = None
    time: IntArray | None = None
    num_relations: int = 1
    leaves: IntArray | None = None

    @property
    def num_targets(self) -> int:
        """The number of nodes N, with or without in-edges."""
        return (len(self.offsets) - 1) // self.num_relations

    @property
    def num_edges(self) -> int:
        """The number of edges E."""
        return len(self.sources) if self.leaves is None else len(self.leaves) - 1

    @property
    def lengths(self) -> IntArray:
        """The number of in-edges of each row here [R N]."""
        return np.diff(self.offsets)

    @property
    def leaf_counts(self) -> IntArray:
        """The number of leaves of each edge [E]."""
        return np.ones(self.num_edges, np.int64) if self.leaves is None else np.diff(self.leaves)

    @cached_property
    def leaves_each(self) -> int | None:
        """The number of leaves that all edges have; None where it differs between edges, or there is no edge."""
        if self.leaves is None:
            return 1
        counts = self.leaf_counts
        return int(counts[0]) if len(counts) and bool((counts == counts[0]).all()) else None

    def sources_of(self, positions: IntArray) -> SourceArray:
        """Return the sources (with leaves, all leaves) of the edges at the given positions [P], edge by edge."""
        if self.leaves is None:
            return self.sources[positions]
        if self.leaves_each:
            return self.sources.reshape(-1, self.leaves_each)[positions].reshape(-1)
        return self.sources[ragged_ranges(self.leaves[positions], self._counts_at(positions))]

    def per_leaf(self, positions: IntArray, values: Array) -> Array:
        """Return the value of its edge for each source of the edges at the given positions. values: [P]."""
        return values if self.leaves is None else np.repeat(values, self.leaves_each or self._counts_at(positions))

    def source_offsets(self, picked: Picked) -> IntArray:
        """Return the offsets of each row's sources [R n + 1] in the result of `sources_of`."""
        leaves = self._leaves_of(picked.positions)
        return picked.offsets if leaves is None else leaves[picked.offsets]

    def _leaves_of(self, positions: IntArray) -> IntArray | None:
        """Return the offsets of the leaves of some edges [P + 1] among the leaves of these edges."""
        if self.leaves is None:
            return None
        if self.leaves_each is not None:
            return np.arange(len(positions) + 1, dtype=np.int64) * self.leaves_each
        return offsets_of(self._counts_at(positions))

    def _counts_at(self, positions: IntArray) -> IntArray:
        """Return the number of leaves of each edge at the given positions [P]."""
        assert self.leaves is not None
        counts: IntArray = self.leaves[positions + 1] - self.leaves[positions]
        return counts

    def relation(self, number: int) -> InEdges:
        """Return the in-edges of one relation, over the same memory."""
        if self.num_relations == 1:
            return self
        return replace(self.run(slice(number * self.num_targets, (number + 1) * self.num_targets)), num_relations=1)

    def run(self, targets: slice) -> InEdges:
        """Return the in-edges of a run of rows, over the same memory."""
        rows = self.offsets[targets.start : targets.stop + 1]
        first, last = int(rows[0]), int(rows[-1])
        # consecutive edges have consecutive leaves
        leaves = None if self.leaves is None else self.leaves[first : last + 1]
        run = slice(first, last) if leaves is None else slice(int(leaves[0]), int(leaves[-1]))
        return replace(
            self._columns(slice(first, last)),
            offsets=rows - rows[0],
            sources=self.sources[run],
            leaves=None if leaves is None else leaves - leaves[0],
        )

    def prefix(self, nodes: IntArray, *, limit: IntArray | Fanout | None, taken: IntArray | int = 0) -> Picked:
        """Pick the in-edges `taken` to `limit` of each row of some nodes; a limit of None means to the row's end.

        Both are one number for all rows or one per row [R n]; a limit may also be one per relation. taken: the edges
        that an earlier, smaller prefix holds already.
        """
        rows = nodes
        if self.num_relations > 1:
            rows = (np.arange(self.num_relations)[:, None] * self.num_targets + nodes).ravel()
        starts = self.offsets[rows]
        # in-edges of each chosen row [R n]
        lengths = self.offsets[rows + 1] - starts
        # in-edges before the limit [R n]
        wanted = lengths if limit is None else np.minimum(lengths, row_limits(limit, len(nodes)))
        # in-edges before the limit that are not taken yet [R n]
        counts = np.maximum(wanted - taken, 0)
        return Picked(ragged_ranges(starts + taken, counts), counts, self.num_relations)

    def step_back(self, nodes: IntArray, *, limit: IntArray | Fanout | None = None) -> SourceArray:
        """Return the sources of some nodes' in-edges, edge by edge: one hop backwards from the targets.

        limit: as in `prefix`. A source comes once per edge from it (AGL, VLDB 2020, section 3.3.2).
        """
        return self.sources_of(self.prefix(nodes, limit=limit).positions)

    @property
    def no_edges(self) -> InEdges:
        """The same nodes without in-edges."""
        return self.take(np.zeros(0, np.int64), offsets=np.zeros_like(self.offsets))

    def take(self, positions: IntArray, *, offsets: IntArray, sources: SourceArray | None = None) -> InEdges:
        """Return the edges at the given positions [P] with all columns, grouped by new offsets [R n + 1].

        sources: new numbers for the result of `sources_of` at the same positions; None keeps the old ones.
        """
        found = self.sources_of(positions) if sources is None else sources
        return replace(self._columns(positions), offsets=offsets, sources=found, leaves=self._leaves_of(positions))

    def _columns(self, positions: IntArray | slice) -> InEdges:
        """Return the columns of some edges, with the offsets and sources of all edges."""
        return replace(
            self,
            weight=None if self.weight is None else self.weight[positions],
            attributes=None if self.attributes is None else self.attributes[positions],
            next_arrival=None if self.next_arrival is None else self.next_arrival[positions],
            time=None if self.time is None else self.time[positions],
        )


def row_limits(limit: IntArray | Fanout, num_nodes: int) -> IntArray | int:
    """Return a limit as one number for all rows, or as one per row [R n]."""
    return np.repeat(limit, num_nodes) if isinstance(limit, tuple) else limit


def join_relations(relations: Sequence[InEdges]) -> InEdges:
    """Return the in-edges of the same nodes in several relations as one, in the given order.

    A column that only some of them have is filled: weights with one, attributes with zeros up to the largest width,
    times with the smallest value. Where edges of some have leaves, an edge of the others is its own single leaf.
    """
    if len(relations) == 1:
        return relations[0]
    widest = max(0 if each.attributes is None else each.attributes.shape[1] for each in relations)

    def joined(column: Callable[[InEdges], Array | None], fill: float, dtype: npt.DTypeLike) -> Array | None:
        # the column of each relation [E_r], or None; a missing one is filled where another relation has it
        held = [column(each) for each in relations]
        if all(each is None for each in held):
            return None
        pairs = zip(held, relations, strict=True)
        return np.concatenate([np.full(of.num_edges, fill, dtype) if it is None else it for it, of in pairs])

    return InEdges(
        offsets_of(np.concatenate([each.lengths for each in relations])),
        np.concatenate([each.sources for each in relations]),
        weight=joined(lambda each: each.weight, 1, np.float32),
        attributes=np.concatenate([_widened(each, widest) for each in relations]) if widest else None,
        next_arrival=joined(lambda each: each.next_arrival, np.inf, np.float64),
        time=joined(lambda each: each.time, np.iinfo(np.int64).min, np.int64),
        num_relations=len(relations),
        leaves=None
        if all(each.leaves is None for each in relations)
        else offsets_of(np.concatenate([each.leaf_counts for each in relations])),
    )


def _widened(edges: InEdges, width: int) -> FloatArray:
    """Return the attributes of edges [E, width], with zeros to the right."""
    wide = np.zeros((edges.num_edges, width), np.float32)
    if edges.attributes is not None:
        wide[:, : edges.attributes.shape[1]] = edges.attributes
    return wide


def sample_scale(in_degree: IntArray, kept: IntArray) -> FloatArray:
    """Return the scale of each target of a uniform sample [n]: in-degree / kept edges, 1 where none was kept."""
    return np.where(kept > 0, in_degree / np.maximum(kept, 1), 1).astype(np.float32)


def edge_scale(edges: InEdges) -> FloatArray:
    """Return the scale of each edge of a weighted sample [E]: 1 / (1 - exp(-w tau)).

    edges: a prefix of each target's in-edges. An edge of weight 0 is kept last and adds nothing to a weighted sum; its
    scale is 1.
    """
    assert edges.weight is not None
    assert edges.next_arrival is not None, "edges of a weighted sample have next_arrival"
    lengths = edges.lengths
    # arrival of the first edge that was not kept, for each target with kept edges
    tau = edges.next_arrival[edges.offsets[1:][lengths > 0] - 1]
    # the same for each edge [E]
    tau = np.repeat(tau, lengths[lengths > 0])
    positive = edges.weight > 0
    # w tau of each edge [E], infinity where w is 0
    exponent = np.multiply(edges.weight, tau, out=np.full(len(tau), np.inf), where=positive, dtype=np.float64)
    scale: FloatArray = (1 / -np.expm1(-exponent)).astype(np.float32)
    return scale
