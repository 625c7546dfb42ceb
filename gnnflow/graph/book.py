"""The books: which partition owns which dense node ids, of which type they are, and in which cluster.

Dense ids are contiguous within a partition, within it those of a type are, in the order of the schema's types, and
within these those of a cluster. So a book is offsets, and partition, type and cluster are a binary search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import Array, IntArray


@dataclass(frozen=True)
class PartitionBook:
    """Nodes of type t in partition p have the dense ids offsets[p T + t] .. offsets[p T + t + 1] - 1.

    offsets: int64 [P T + 1], of P partitions and T = num_types.
    """

    offsets: IntArray
    num_types: int = 1

    @property
    def num_partitions(self) -> int:
        """How many partitions the graph has."""
        return (len(self.offsets) - 1) // self.num_types

    @property
    def num_nodes(self) -> int:
        """How many nodes all partitions hold."""
        return int(self.offsets[-1])

    def owner(self, nodes: Array) -> IntArray:
        """Return the partition that owns each dense id."""
        return self._place(nodes) // self.num_types

    def type_of(self, nodes: Array) -> IntArray:
        """Return the number of each dense id's type."""
        return self._place(nodes) % self.num_types

    def start(self, partition: int) -> int:
        """Return the first dense id of a partition."""
        return int(self.offsets[partition * self.num_types])

    def size(self, partition: int) -> int:
        """Return how many nodes a partition owns."""
        return int(self.offsets[(partition + 1) * self.num_types]) - self.start(partition)

    def rows(self, partition: int, node_type: int) -> slice:
        """Return where the nodes of a type lie among a partition's nodes."""
        place, start = partition * self.num_types + node_type, self.start(partition)
        return slice(int(self.offsets[place]) - start, int(self.offsets[place + 1]) - start)

    def _place(self, nodes: Array) -> IntArray:
        return np.searchsorted(self.offsets, nodes, side="right").astype(np.int64) - 1


@dataclass(frozen=True)
class ClusterBook:
    """The clusters of a graph, numbered p C + c where each of P partitions has C of them.

    starts: int64 [P T C + 1]; of type t the cluster c of partition p has the dense ids from starts[(p T + t) C + c] on,
    to the next of these numbers. Some of these runs may be empty.
    """

    starts: IntArray
    num_partitions: int
    num_types: int

    @property
    def num_clusters(self) -> int:
        """How many clusters the nodes are in."""
        return (len(self.starts) - 1) // self.num_types

    def number(self, nodes: Array) -> IntArray:
        """Return the number of each dense id's cluster."""
        place, each = np.searchsorted(self.starts, nodes, side="right").astype(np.int64) - 1, self._per_partition
        return place // (self.num_types * each) * each + place % each

    def runs(self, numbers: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first dense id and the length of each run of some clusters [N]: int64 [N T], types within each."""
        partition, place = np.divmod(numbers[:, None], self._per_partition)
        at = ((partition * self.num_types + np.arange(self.num_types)) * self._per_partition + place).ravel()
        return self.starts[at], self.starts[at + 1] - self.starts[at]

    @property
    def _per_partition(self) -> int:
        return self.num_clusters // self.num_partitions
