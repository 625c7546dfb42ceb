"""In-edges as plain arrays: the one form in which partitions, shards, blocks and rounds hold them.

Every sample is a prefix: a node's in-edges lie in priority order, so its first f edges are its sample of fan-out f.

Shapes: N nodes, E edges, A edge attributes, n rows asked for, P edges picked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import FloatArray, IntArray, offsets_of, ragged_ranges

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
    rows). weight [E] and attributes [E, A] are None where the graph has none.
    """

    offsets: IntArray
    sources: SourceArray
    weight: FloatArray | None = None
    attributes: FloatArray | None = None

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
        """Return the edges at the given positions [P], weight and attributes along, grouped by new offsets.

        sources [P] number the same edges' sources anew; without them they stay as they are.
        """
        return InEdges(
            offsets,
            self.sources[positions] if sources is None else sources,
            None if self.weight is None else self.weight[positions],
            None if self.attributes is None else self.attributes[positions],
        )


def sample_scale(in_degree: IntArray, kept: IntArray) -> FloatArray:
    """Return full in-degree / kept edges [n], 1 where nothing was kept.

    The one definition of a sample's scale. Training scales its blocks by it and GraphInfer its slices; the parity
    certificate compares the two and holds only because they are equal to the last bit.
    """
    return np.where(kept > 0, in_degree / np.maximum(kept, 1), 1).astype(np.float32)
