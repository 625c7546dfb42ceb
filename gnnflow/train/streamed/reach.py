"""How far each node is from the training targets: a layer need not compute rows that reach none.

Backwards from the targets, layer by layer, a breadth-first search finds the rows that are read
(`globalbatch/active_sets.py` does the same for a graph in memory). It goes over the stored partitions once per layer
and holds one of them at a time, and stops where what it would find saves little.

Shapes: N nodes, T targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.edges import Fanout, InEdges

MOST = 0.75  # of all rows: where more are active, all are computed
NOWHERE = -1  # the depth of a row that no layer reads


def depths(
    book: PartitionBook,
    in_edges: Callable[[int], InEdges] | None,
    targets: IntArray,
    *,
    fanouts: Sequence[Fanout] | None,
    num_layers: int,
) -> Array | None:
    """Return the last layer behind which each node's row reaches a target [N], 0 for what is read alone.

    None where all rows are computed in every layer. in_edges: reads those of a partition; None for a graph without any.
    targets: dense ids. fanouts: targets first.
    """
    depth = np.full(book.num_nodes, NOWHERE, np.int8)
    depth[targets] = num_layers
    for layer in range(num_layers, 0, -1):
        if (depth >= layer).mean() > MOST:
            break
        fanout = None if fanouts is None else fanouts[num_layers - layer]
        for partition in range(book.num_partitions):
            first = book.start(partition)
            rows = np.flatnonzero(depth[first : first + book.size(partition)] >= layer)
            if len(rows) and in_edges is not None:
                read = in_edges(partition).step_back(rows, limit=fanout)
                depth[read] = np.maximum(depth[read], layer - 1)
                del read
    else:
        layer = 0
    if (depth >= layer).mean() > MOST:
        np.maximum(depth, layer, out=depth)
    return None if (depth == num_layers).all() else depth
