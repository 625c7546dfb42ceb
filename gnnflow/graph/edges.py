"""In-edges as plain arrays: the one form in which partitions, shards, blocks and rounds hold them.

Every sample is a prefix: a node's in-edges lie in priority order, so its first f edges are its sample of fan-out f.

A sum over a sample stands for the sum over all in-edges by a scale. A uniform sample has one per target, in-degree /
edges kept. A weighted one has one per edge: it keeps the f edges that arrive first, edge e at a time drawn from the
exponential distribution of rate w_e, and given tau, the arrival of the first edge that was not kept, e was kept with
probability 1 - exp(-w_e tau) (rank conditioning: Cohen and Kaplan, "Summarizing data using bottom-k sketches", PODC
2007). So every edge carries the arrival of the one after it, and the last edge of a prefix says what tau is, for any
fan-out. top_k is no random sample: it keeps the heaviest edges, leaves the others out, and nothing is scaled.

Edges of several relations lie one relation after the other: row r N + v holds the in-edges of node v in relation r. A
relation is then a run of edges, and what follows below is said of rows, of which a node has one per relation.

An edge may come from several nodes, its leaves, as an instance of a metapath does. It is one edge all the same: picked,
weighed and scaled as one, with one more level of offsets to its leaves (the hierarchical dependency graph of FlexGraph,
EuroSys 2021, section 3). What is called a source below is then a leaf.

Shapes: N nodes, R relations, E edges, L leaves of all edges, A edge attributes, n nodes asked for, P edges picked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of, ragged_ranges

SamplingKind = Literal["none", "uniform", "weighted", "top_k"]
TimeArray = npt.NDArray[np.float64]
SourceArray = npt.NDArray[np.signedinteger[Any]]
"""Sources are int64, or int32 where a neighbourhood's own rows are meant."""
Fanout = int | tuple[int, ...]
"""How many in-edges one hop takes of a node in each relation: the same of all, or a number for each."""


@dataclass(frozen=True)
class Picked:
    """Edges picked for some nodes, row by row.

    positions [P] in the edge arrays; counts [R n]: how many each row has, relation by relation.
    """

    positions: IntArray
    counts: IntArray
    num_relations: int = 1

    @property
    def offsets(self) -> IntArray:
        """Which picked edges belong to each row: CSR offsets [R n + 1]."""
        return offsets_of(self.counts)

    @property
    def per_node(self) -> IntArray:
        """How many edges were picked for each node [n]."""
        return self.counts if self.num_relations == 1 else self.counts.reshape(self.num_relations, -1).sum(0)

    @property
    def per_relation(self) -> IntArray:
        """How many edges were picked in each relation [R]."""
        edges: IntArray = self.counts.reshape(self.num_relations, -1).sum(1)
        return edges

    def each(self, values: Array) -> Array:
        """Return for each picked edge [P] the value of the node it leads to. values: [n]."""
        return np.repeat(values if self.num_relations == 1 else np.tile(values, self.num_relations), self.counts)


@dataclass(frozen=True)
class InEdges:
    """The in-edges of N nodes, each node's in priority order, so that a fan-out is a prefix.

    offsets [R N + 1] and sources [E] are a CSR by relation, then target; whoever holds the edges says what a source
    counts (dense ids, rows). weight [E], attributes [E, A] and time [E] are None where the graph has none.
    next_arrival [E], only of weighted samples: when the next in-edge of the same node arrives, whether it is held here
    or not; infinity for a node's last.
    leaves [E + 1]: where the leaves of each edge begin among sources, which are then [L]; None where each has one.
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
        """How many nodes N have their in-edges here; a node may have none."""
        return (len(self.offsets) - 1) // self.num_relations

    @property
    def num_edges(self) -> int:
        """How many edges E there are."""
        return len(self.sources) if self.leaves is None else len(self.leaves) - 1

    @property
    def lengths(self) -> IntArray:
        """How many in-edges each node has here in each relation, relation by relation [R N]."""
        return np.diff(self.offsets)

    @property
    def leaf_counts(self) -> IntArray:
        """How many leaves each edge has [E]."""
        return np.ones(self.num_edges, np.int64) if self.leaves is None else np.diff(self.leaves)

    @cached_property
    def leaves_each(self) -> int | None:
        """How many leaves every edge has; None where that differs from edge to edge, or there is no edge."""
        if self.leaves is None:
            return 1
        counts = self.leaf_counts
        return int(counts[0]) if len(counts) and bool((counts == counts[0]).all()) else None

    def sources_of(self, positions: IntArray) -> SourceArray:
        """Return the sources of the edges at the given positions [P], edge by edge; with leaves, all of theirs."""
        if self.leaves is None:
            return self.sources[positions]
        if self.leaves_each:
            return self.sources.reshape(-1, self.leaves_each)[positions].reshape(-1)
        return self.sources[ragged_ranges(self.leaves[positions], self._counts_at(positions))]

    def per_leaf(self, positions: IntArray, values: Array) -> Array:
        """Return for each source of the edges at the given positions its edge's value. values: [P]."""
        return values if self.leaves is None else np.repeat(values, self.leaves_each or self._counts_at(positions))

    def source_offsets(self, picked: Picked) -> IntArray:
        """Return which of the sources of picked edges belong to each row: offsets [R n + 1] into `sources_of`."""
        leaves = self._leaves_of(picked.positions)
        return picked.offsets if leaves is None else leaves[picked.offsets]

    def _leaves_of(self, positions: IntArray) -> IntArray | None:
        """Return where the leaves of each of some edges begin among those of these edges [P + 1]."""
        if self.leaves is None:
            return None
        if self.leaves_each is not None:
            return np.arange(len(positions) + 1, dtype=np.int64) * self.leaves_each
        return offsets_of(self._counts_at(positions))

    def _counts_at(self, positions: IntArray) -> IntArray:
        """Return how many leaves each of some edges has [P]."""
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
        # a run of edges is a run of leaves
        leaves = None if self.leaves is None else self.leaves[first : last + 1]
        run = slice(first, last) if leaves is None else slice(int(leaves[0]), int(leaves[-1]))
        return replace(
            self._columns(slice(first, last)),
            offsets=rows - rows[0],
            sources=self.sources[run],
            leaves=None if leaves is None else leaves - leaves[0],
        )

    def prefix(self, nodes: IntArray, *, limit: IntArray | Fanout | None, taken: IntArray | int = 0) -> Picked:
        """Pick the in-edges of some nodes from number `taken` up to number `limit` of each row; None: to its end.

        Both are one number for all rows or one per row [R n]; a limit may also be one per relation. taken is what an
        earlier, smaller prefix holds already.
        """
        rows = nodes
        if self.num_relations > 1:
            rows = (np.arange(self.num_relations)[:, None] * self.num_targets + nodes).ravel()
        starts = self.offsets[rows]
        # in-edges of each row asked for [R n]
        lengths = self.offsets[rows + 1] - starts
        # those that lie before the limit [R n]
        wanted = lengths if limit is None else np.minimum(lengths, limit_of_rows(limit, len(nodes)))
        # those not taken yet [R n]
        counts = np.maximum(wanted - taken, 0)
        return Picked(ragged_ranges(starts + taken, counts), counts, self.num_relations)

    def step_back(self, nodes: IntArray, *, limit: IntArray | Fanout | None = None) -> SourceArray:
        """Return the sources that some nodes read, edge by edge: one hop of a search for what reaches a target.

        limit: as of `prefix`. A source comes as often as edges from it do (AGL, VLDB 2020, section 3.3.2).
        """
        return self.sources_of(self.prefix(nodes, limit=limit).positions)

    @property
    def none(self) -> InEdges:
        """The same nodes without any in-edge."""
        return self.take(np.zeros(0, np.int64), offsets=np.zeros_like(self.offsets))

    def take(self, positions: IntArray, *, offsets: IntArray, sources: SourceArray | None = None) -> InEdges:
        """Return the edges at the given positions [P], all columns along, grouped by new offsets [R n + 1].

        sources number what `sources_of` gives for the same positions anew; without them they stay as they are.
        """
        found = self.sources_of(positions) if sources is None else sources
        return replace(self._columns(positions), offsets=offsets, sources=found, leaves=self._leaves_of(positions))

    def _columns(self, positions: IntArray | slice) -> InEdges:
        """Return the columns of some edges, with the offsets and sources of all."""
        return replace(
            self,
            weight=None if self.weight is None else self.weight[positions],
            attributes=None if self.attributes is None else self.attributes[positions],
            next_arrival=None if self.next_arrival is None else self.next_arrival[positions],
            time=None if self.time is None else self.time[positions],
        )


def limit_of_rows(limit: IntArray | Fanout, num_nodes: int) -> IntArray | int:
    """Return a limit as one number for all rows, or one for each row of the relations of so many nodes [R n]."""
    return np.repeat(limit, num_nodes) if isinstance(limit, tuple) else limit


def by_relation(relations: Sequence[InEdges]) -> InEdges:
    """Return the in-edges of the same nodes in several relations as one, in the order given.

    A column that only some of them have is filled: weights with one, attributes with zeros to the widest, times with
    the earliest there is. Where edges of some have leaves, the others' are their own single leaf.
    """
    if len(relations) == 1:
        return relations[0]
    widest = max(0 if each.attributes is None else each.attributes.shape[1] for each in relations)

    def joined(column: Callable[[InEdges], Array | None], fill: float, dtype: npt.DTypeLike) -> Array | None:
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
    """Return the attributes of edges [E, width], zeros to the right of their own."""
    wide = np.zeros((edges.num_edges, width), np.float32)
    if edges.attributes is not None:
        wide[:, : edges.attributes.shape[1]] = edges.attributes
    return wide


def sample_scale(in_degree: IntArray, kept: IntArray) -> FloatArray:
    """Return the scale of each target of a uniform sample [n]: in-degree / kept edges, 1 where nothing was kept."""
    return np.where(kept > 0, in_degree / np.maximum(kept, 1), 1).astype(np.float32)


def edge_scale(edges: InEdges) -> FloatArray:
    """Return the scale of each edge of a weighted sample [E]: 1 / (1 - exp(-w tau)).

    edges: a prefix of each target's in-edges. An edge of weight 0 is kept only after all others and adds nothing to a
    weighted sum; its scale is 1.
    """
    assert edges.weight is not None
    assert edges.next_arrival is not None, "a weighted sample knows when the edges it left out would have arrived"
    lengths = edges.lengths
    # when the first edge that was not kept arrives, of each target that kept any
    tau = edges.next_arrival[edges.offsets[1:][lengths > 0] - 1]
    # the same for each edge [E]
    tau = np.repeat(tau, lengths[lengths > 0])
    positive = edges.weight > 0
    exponent = np.multiply(edges.weight, tau, out=np.full(len(tau), np.inf), where=positive, dtype=np.float64)
    scale: FloatArray = (1 / -np.expm1(-exponent)).astype(np.float32)
    return scale
