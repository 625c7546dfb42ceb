"""The books of dense node ids: the partition, type and cluster of each; and the placement of edges.

Dense ids are ordered by partition, then by type in the order of the schema, then by cluster. So a book is offsets, and
partition, type and cluster are found by a binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.schema import Placement


@dataclass(frozen=True)
class PartitionBook:
    """Nodes of type t in partition p have the dense ids offsets[p T + t] .. offsets[p T + t + 1] - 1.

    offsets: int64 [P T + 1], of P partitions and T = num_types.
    """

    offsets: IntArray
    num_types: int = 1

    @property
    def num_partitions(self) -> int:
        """The number of partitions P."""
        return (len(self.offsets) - 1) // self.num_types

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all partitions."""
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
        """Return the number of nodes of a partition."""
        return int(self.offsets[(partition + 1) * self.num_types]) - self.start(partition)

    def rows(self, partition: int, node_type: int) -> slice:
        """Return the nodes of a type as a slice of a partition's nodes."""
        place, start = partition * self.num_types + node_type, self.start(partition)
        return slice(int(self.offsets[place]) - start, int(self.offsets[place + 1]) - start)

    def _place(self, nodes: Array) -> IntArray:
        return np.searchsorted(self.offsets, nodes, side="right").astype(np.int64) - 1


class Runs(NamedTuple):
    """Runs of consecutive dense ids: the first id and the length of each."""

    starts: IntArray
    lengths: IntArray


class GridShape(NamedTuple):
    """Rows and columns of a grid of partitions, which they fill row by row."""

    rows: int
    columns: int


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
        """The number of clusters P C."""
        return (len(self.starts) - 1) // self.num_types

    def number(self, nodes: Array) -> IntArray:
        """Return the number of each dense id's cluster."""
        place, each = np.searchsorted(self.starts, nodes, side="right").astype(np.int64) - 1, self._per_partition
        return place // (self.num_types * each) * each + place % each

    def runs(self, numbers: IntArray) -> Runs:
        """Return the runs of some clusters [N]: [N T], types within each cluster."""
        # partitions [N, 1] and places of the clusters in them [N, 1], then runs [N T]
        partition, place = np.divmod(numbers[:, None], self._per_partition)
        at = ((partition * self.num_types + np.arange(self.num_types)) * self._per_partition + place).ravel()
        return Runs(self.starts[at], self.starts[at + 1] - self.starts[at])

    @property
    def _per_partition(self) -> int:
        return self.num_clusters // self.num_partitions


def grid_shape(partitions: int) -> GridShape:
    """Return the most square grid of partitions."""
    rows = max(number for number in range(1, int(partitions**0.5) + 1) if partitions % number == 0)
    return GridShape(rows, partitions // rows)


def edge_partitions(placement: Placement, *, target: IntArray, source: IntArray, partitions: int) -> IntArray:
    """Return the partition that computes each edge [E], from the partitions of its target [E] and its source [E].

    On the grid it is the partition in the target's row and the source's column, so that only one row and one column
    need a node (2-D partitioning: Boman, Devine and Rajamanickam, SC 2013).
    """
    if placement == "source":
        return source
    if placement == "grid":
        columns = np.int64(grid_shape(partitions).columns)
        return target // columns * columns + source % columns
    return target
