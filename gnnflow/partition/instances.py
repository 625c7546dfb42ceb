"""How many instances each node has in every relation that is aggregated, counted from the edges alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gnnflow.graph.arrays import IntArray
from gnnflow.graph.schema import GraphSchema

Ends = tuple[IntArray, IntArray]
"""Targets and sources of a relation's edges."""


class InstanceCounts(NamedTuple):
    """Each node's instances, and the leaves of all of them, per relation [N, R]."""

    instances: IntArray
    leaves: IntArray


@dataclass(frozen=True)
class DirectInstances:
    """A node's in-edges in each of the graph's relations, of which `kept` at most are aggregated; None: all."""

    kept: tuple[int, ...] | None

    def counts(self, ends: Sequence[Ends], *, schema: GraphSchema, num_nodes: int) -> InstanceCounts:
        """Return each node's instances, and the leaves of all of them, per relation [N, R]."""
        held = np.stack([np.bincount(dst, minlength=num_nodes) for dst, _ in ends], axis=1)
        held = held if self.kept is None else np.minimum(held, np.array(self.kept))
        return InstanceCounts(held, held)


@dataclass(frozen=True)
class PathInstances:
    """The paths to a node along each list of node types, the node's own first, of which `most` are aggregated."""

    paths: tuple[tuple[str, ...], ...]
    most: int

    def counts(self, ends: Sequence[Ends], *, schema: GraphSchema, num_nodes: int) -> InstanceCounts:
        """Return each node's instances, and the leaves of all of them, per list [N, R].

        Nothing is listed: the paths from a node are those from its neighbours added up, a step at a time.
        """
        held = [np.minimum(_paths_to(path, ends, schema, num_nodes), self.most) for path in self.paths]
        counts = np.stack(held, axis=1).astype(np.int64)
        return InstanceCounts(counts, counts * (np.array([len(path) for path in self.paths]) - 1))


def _paths_to(path: tuple[str, ...], ends: Sequence[Ends], schema: GraphSchema, num_nodes: int) -> np.ndarray:
    """Return how many paths lead to each node [N]; those that begin at other types have none."""
    # of the part of the path behind a node: how many ways there are to walk it from there [N], last step first
    found = np.ones(num_nodes)
    for target, source in reversed(list(pairwise(path))):
        added = np.zeros(num_nodes)
        for relation, (dst, src) in zip(schema.relations, ends, strict=True):
            if (relation.target, relation.source) == (target, source):
                added += np.bincount(dst, found[src], minlength=num_nodes)
        found = added
    return found
