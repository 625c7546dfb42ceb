"""Neighbour functions for a graph without types, as a user may write them by mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnflow.neighbors import Instances, NeighborGraph

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray


def raises(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """Read a key that is not there."""
    return {"odd": {}["colour"]}


def out_of_range(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """Count leaves from one."""
    return {"odd": Instances(roots, roots + graph.num_nodes)}


def by_position(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """Count roots from zero in every partition."""
    return {"odd": Instances(np.arange(len(roots)), roots)}


def of_another_relation(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """Read a relation that the graph does not have."""
    _, sources = graph.in_edges(roots, "node__knows__node")
    return {"odd": Instances(roots, sources)}


def nothing_found(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """Find no instance of any root."""
    none = np.zeros(0, np.int64)
    return {"odd": Instances(none, none)}


def varying(graph: NeighborGraph, roots: IntArray) -> dict[str, Instances]:
    """Give one instance of all in-neighbours."""
    offsets, sources = graph.in_edges(roots)
    held = np.diff(offsets) > 0
    return {"odd": Instances(roots[held], sources, offsets=np.r_[0, np.cumsum(np.diff(offsets)[held])])}


def list_of_pairs(graph: NeighborGraph, roots: IntArray) -> object:
    """Return pairs instead of instances."""
    return [(root, root) for root in roots]
