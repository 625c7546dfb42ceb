"""Where an edge is computed when partitions are computed on together: at its target, its source, or on a grid."""

from __future__ import annotations

import numpy as np

from gnnflow.graph.arrays import IntArray
from gnnflow.graph.schema import Placement


def grid_of(partitions: int) -> tuple[int, int]:
    """Return rows and columns of the grid that partitions are laid out on, row by row; as square as their number is."""
    rows = max(number for number in range(1, int(partitions**0.5) + 1) if partitions % number == 0)
    return rows, partitions // rows


def placed_at(placement: Placement, *, target: IntArray, source: IntArray, partitions: int) -> IntArray:
    """Return the partition that computes each edge, from those that own its target and its source.

    On the grid it is the one in the row of the target's and the column of the source's, so that a node is known to
    those of its own row and column alone (2-D partitioning: Boman, Devine and Rajamanickam, SC 2013).
    """
    if placement == "source":
        return source
    if placement == "grid":
        columns = np.int64(grid_of(partitions)[1])
        return target // columns * columns + source % columns
    return target
