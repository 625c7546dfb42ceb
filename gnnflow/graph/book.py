"""The partition book: which partition owns which dense node ids.

Dense ids are contiguous within a partition, so the book is P + 1 offsets and ownership a binary search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import Array, IntArray


@dataclass(frozen=True)
class PartitionBook:
    """Partition p owns the dense ids offsets[p] .. offsets[p + 1] - 1. offsets: int64 [P + 1]."""

    offsets: IntArray

    @property
    def num_partitions(self) -> int:
        """How many partitions the graph has."""
        return len(self.offsets) - 1

    @property
    def num_nodes(self) -> int:
        """How many nodes all partitions hold."""
        return int(self.offsets[-1])

    def owner(self, nodes: Array) -> IntArray:
        """Return the partition that owns each dense id."""
        return np.searchsorted(self.offsets, nodes, side="right").astype(np.int64) - 1

    def start(self, partition: int) -> int:
        """Return the first dense id of a partition."""
        return int(self.offsets[partition])

    def size(self, partition: int) -> int:
        """Return how many nodes a partition owns."""
        return int(self.offsets[partition + 1] - self.offsets[partition])
