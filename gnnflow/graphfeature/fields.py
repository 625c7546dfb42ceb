"""The order of a GraphFeature's edges, and the numbers of its formats. `graph_feature.proto` has the fields.

In memory edges are grouped by relation, in a message column by message: edges of several messages and relations are
reordered when they are written and read.

Shapes: n messages, N nodes of all of them, R relations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnflow.graph.arrays import IntArray, ragged_ranges
from gnnflow.graph.edges import InEdges
from gnnflow.graphfeature.neighborhood import NeighborhoodRows

FORMAT, TYPED_FORMAT, LEAVES_FORMAT, NARROW = 1, 2, 3, 4
"""The formats, and the number that is added where dense features are narrow."""


def relation_lists(nodes: IntArray, relations: int) -> IntArray:
    """Return the first list of each relation of each message, then the number of all lists [n R + 1].

    Lists are grouped by message, then by relation. nodes [n + 1].
    """
    first = relations * nodes[:-1, None] + np.arange(relations) * np.diff(nodes)[:, None]
    return np.append(first.ravel(), relations * nodes[-1])


def by_message(rows: NeighborhoodRows) -> InEdges:
    """Return the edges of the union message by message, each message's relation by relation."""
    edges, nodes = rows.neighborhood.edges, rows.node_offsets
    if edges.num_relations == 1 or len(rows) == 1:
        return edges
    # the first list of each message in each relation [n, R], then all lists, grouped by message [R N]
    first = nodes[:-1, None] + np.arange(edges.num_relations) * edges.num_targets
    return _reordered(edges, ragged_ranges(first.ravel(), np.repeat(np.diff(nodes), edges.num_relations)))


def join_relations(held: InEdges, nodes: IntArray) -> InEdges:
    """Return edges, grouped by message and relation, in groups by relation and message."""
    sizes = np.diff(nodes)
    if held.num_relations == 1 or len(sizes) == 1:
        return held
    # the first list of each relation in each message [R, n], then all lists, grouped by relation [R N]
    first = held.num_relations * nodes[:-1] + np.arange(held.num_relations)[:, None] * sizes
    return _reordered(held, ragged_ranges(first.ravel(), np.tile(sizes, held.num_relations)))


def _reordered(edges: InEdges, lists: IntArray) -> InEdges:
    """Return the same lists of edges in another order. lists [R N]: numbers of lists."""
    picked = replace(edges, num_relations=1).prefix(lists, limit=None)
    return edges.take(picked.positions, offsets=picked.offsets)
