"""In-edges as plain arrays: the one form in which partitions, shards, blocks and rounds hold them.

Every sample is a prefix: a node's in-edges lie in priority order, so its first f edges are its sample of fan-out f.

A sum over a sample stands for the sum over all in-edges by a scale. A uniform sample has one per target, in-degree /
edges kept. A weighted one has one per edge: it keeps the f edges that arrive first, edge e at a time drawn from the
exponential distribution of rate w_e, and given tau, the arrival of the first edge that was not kept, e was kept with
probability 1 - exp(-w_e tau) (rank conditioning: Cohen and Kaplan, "Summarizing data using bottom-k sketches", PODC
2007). So every edge carries the arrival of the one after it, and the last edge of a prefix says what tau is, for any
fan-out. top_k is no random sample: it keeps the heaviest edges, leaves the others out, and nothing is scaled.

Shapes: N nodes, E edges, A edge attributes, n rows asked for, P edges picked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import FloatArray, IntArray, offsets_of, ragged_ranges

SamplingKind = Literal["none", "uniform", "weighted", "top_k"]
TimeArray = npt.NDArray[np.float64]
SourceArray = npt.NDArray[np.signedinteger[Any]]
"""Sources are int64, or int32 where a neighbourhood's own rows are meant."""


@dataclass(frozen=True)
class Picked:
    """Edges picked for some rows, row by row: their positions [P] in the edge arrays, and how many each row has [n]."""

    positions: IntArray
    counts: IntArray

    @property
    def offsets(self) -> IntArray:
        """Which picked edges belong to each row: CSR offsets [n + 1]."""
        return offsets_of(self.counts)


@dataclass(frozen=True)
class InEdges:
    """The in-edges of N nodes, each node's in priority order, so that a fan-out is a prefix.

    offsets [N + 1] and sources [E] are a CSR by target; whoever holds the edges says what a source counts (dense ids,
    rows). weight [E], attributes [E, A] and time [E] are None where the graph has none. next_arrival [E], only of
    weighted samples: when the next in-edge of the same node arrives, whether it is held here or not; infinity for a
    node's last.
    """

    offsets: IntArray
    sources: SourceArray
    weight: FloatArray | None = None
    attributes: FloatArray | None = None
    next_arrival: TimeArray | None = None
    time: IntArray | None = None

    @property
    def num_targets(self) -> int:
        """How many nodes N have their in-edges here; a node may have none."""
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        """How many edges E there are."""
        return len(self.sources)

    @property
    def lengths(self) -> IntArray:
        """How many in-edges each node has here [N]."""
        return np.diff(self.offsets)

    def prefix(self, rows: IntArray, *, limit: IntArray | int | None, taken: IntArray | int = 0) -> Picked:
        """Pick each row's in-edges from number `taken` up to number `limit`; None picks to the end of the row.

        Both are one number for all rows or one per row [n]. taken is what an earlier, smaller prefix holds already.
        """
        starts = self.offsets[rows]
        # in-edges of each row asked for [n]
        lengths = self.offsets[rows + 1] - starts
        # those that lie before the limit [n]
        wanted = lengths if limit is None else np.minimum(lengths, limit)
        # those not taken yet [n]
        counts = np.maximum(wanted - taken, 0)
        return Picked(ragged_ranges(starts + taken, counts), counts)

    def take(self, positions: IntArray, *, offsets: IntArray, sources: SourceArray | None = None) -> InEdges:
        """Return the edges at the given positions [P], all columns along, grouped by new offsets.

        sources [P] number the same edges' sources anew; without them they stay as they are.
        """
        return InEdges(
            offsets,
            self.sources[positions] if sources is None else sources,
            None if self.weight is None else self.weight[positions],
            None if self.attributes is None else self.attributes[positions],
            None if self.next_arrival is None else self.next_arrival[positions],
            None if self.time is None else self.time[positions],
        )


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
