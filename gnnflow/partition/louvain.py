"""Partitions and clusters of whole communities, found by the Louvain method.

Blondel et al., "Fast unfolding of communities in large networks", J. Stat. Mech. 2008, by NetworKit's PLM in one thread
(Staudt and Meyerhenke, IEEE TPDS 2016). Nodes are visited in an order by the hash of their keys and the seed, so the
result depends on nothing else. A community that is too large for a part is cut by the same method at a higher
resolution, and in the end into runs of nodes. Then communities are dealt to partitions, the largest first, and within
each to its clusters, by LDG over the graph between communities (`streaming.py`).

One process holds the graph: 16 bytes for each joined pair of nodes, about four times that while they are sorted, and
NetworKit's own copy, of about 20 bytes a pair and direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import offsets_of, ragged_ranges
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.graph.libraries import load_library
from gnnflow.partition.metis import joined_nodes, subgraph
from gnnflow.partition.planning import Plan, loads_of, read_keys, shares_of
from gnnflow.partition.streaming import Stream, chunk_bounds

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.partition.balance import InducedGraph
    from gnnflow.partition.costs import CostArray
    from gnnflow.storage.graph_store import GraphStore

_LARGEST = 0.25  # of what a part should have: pieces as small as this can be dealt evenly
_LARGEST_OF_CLUSTER = 1.0
_MORE_RESOLUTION = 2.0
_MOST_CUTS = 6


@dataclass(frozen=True)
class Louvain:
    """Partitions by communities. imbalance: the largest load of a partition over the mean."""

    clusters: int
    imbalance: float
    resolution: float

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return the owner and the cluster of each node."""
        parts = store.num_partitions
        graph, keys = joined_nodes(store), combine(read_keys(store), seed_word(seed, "louvain"))
        loads = shares_of(np.concatenate([loads_of(store, number) for number in range(parts)]))
        # the community of each node [N]; then the piece of each node, small enough to deal evenly
        found = _communities(graph, keys, resolution=self.resolution)
        figures = {"communities": float(found.max(initial=-1) + 1)}
        pieces = _cut(graph, keys, found, loads, largest=_LARGEST / parts, resolution=self.resolution)
        owner = _dealt(graph, pieces, loads, parts=parts, imbalance=self.imbalance)
        if not self.clusters:
            return Plan(owner, figures=figures)
        cluster = np.zeros(len(owner), np.int64)
        for partition in range(parts):
            nodes = np.flatnonzero(owner == partition)
            # the partition's own graph, loads and pieces, its nodes by number
            inner, held = subgraph(graph, nodes), shares_of(loads[nodes])
            _, own = np.unique(pieces[nodes], return_inverse=True)
            largest = _LARGEST_OF_CLUSTER / self.clusters
            own = _cut(inner, keys[nodes], own, held, largest=largest, resolution=self.resolution)
            cluster[nodes] = _dealt(inner, own, held, parts=self.clusters, imbalance=self.imbalance)
        return Plan(owner, cluster, figures=figures)


def _communities(graph: InducedGraph, keys: KeyArray, *, resolution: float) -> IntArray:
    """Return the number of each node's community [N]."""
    networkit = load_library("networkit", extra="louvain")
    # the first node of each pair, and whether this is the direction in which the pair is passed on [E]
    first = np.repeat(np.arange(graph.num_nodes), np.diff(graph.offsets))
    once = first < graph.neighbors
    # place of each node among those that are visited [N]
    place = np.empty(graph.num_nodes, np.uint64)
    place[np.argsort(keys, kind="stable")] = np.arange(graph.num_nodes, dtype=np.uint64)
    ends = place[first[once]], place[graph.neighbors[once]]
    threads = networkit.getMaxNumberOfThreads()
    networkit.setNumberOfThreads(1)
    try:
        read = networkit.GraphFromCoo((np.ones(len(ends[0])), ends), n=graph.num_nodes)
        method = networkit.community.PLM(read, gamma=resolution, par="none")
        method.run()
        # community of each node, in the order in which nodes are visited [N]
        held = np.array(method.getPartition().getVector(), np.int64)
    finally:
        networkit.setNumberOfThreads(threads)
    _, number = np.unique(held[place.astype(np.int64)], return_inverse=True)
    return number.astype(np.int64)


def _cut(
    graph: InducedGraph, keys: KeyArray, community: IntArray, loads: CostArray, *, largest: float, resolution: float
) -> IntArray:
    """Return communities [N] none of which has more than the largest share of a load, unless it is one node."""
    for _ in range(_MOST_CUTS):
        nodes = np.flatnonzero(_too_large(community, loads, largest))
        if not len(nodes):
            return community
        resolution *= _MORE_RESOLUTION
        inner = subgraph(graph, nodes)
        # keep only pairs within a community, so that none grows
        # the first node of each pair, and whether both nodes are in one community [E]
        first = np.repeat(np.arange(len(nodes)), np.diff(inner.offsets))
        same = community[nodes[first]] == community[nodes[inner.neighbors]]
        kept = type(graph)(offsets_of(np.bincount(first[same], minlength=len(nodes))), inner.neighbors[same])
        found = _communities(kept, keys[nodes], resolution=resolution)
        community = community.copy()
        community[nodes] = found + community.max() + 1
        _, community = np.unique(community, return_inverse=True)
    # a community that no resolution cuts becomes runs of nodes with the largest share
    # nodes community by community [N], and the loads of their community up to and with each [N, K]
    order = np.lexsort((keys, community))
    before = np.cumsum(loads[order], axis=0)
    starts = np.searchsorted(community[order], np.arange(community.max(initial=-1) + 1))
    before -= np.concatenate([np.zeros((1, loads.shape[1])), before])[starts[community[order]]]
    # number of each node's run within its community, nodes in order [N]
    run = (before.sum(1) / largest).astype(np.int64)
    # one integer for each node's community and run [N]; only communities that are too large have several runs
    number = np.empty(len(order), np.int64)
    number[order] = community[order] * (run.max(initial=0) + 1) + np.where(
        _too_large(community, loads, largest)[order], run, 0
    )
    _, pieces = np.unique(number, return_inverse=True)
    return pieces.astype(np.int64)


def _too_large(community: IntArray, loads: CostArray, largest: float) -> np.ndarray:
    """Return whether each node is in a community of several nodes with more than the largest share [N]."""
    # each load of each community, one row per community
    held = np.stack([np.bincount(community, each) for each in loads.T], axis=1)
    answer: np.ndarray = ((held.max(1, initial=0) > largest) & (np.bincount(community) > 1))[community]
    return answer


def _dealt(graph: InducedGraph, pieces: IntArray, loads: CostArray, *, parts: int, imbalance: float) -> IntArray:
    """Return the part of each node [N], by its piece; pieces are dealt the largest first."""
    count = int(pieces.max(initial=-1)) + 1
    # the load of each piece [C, 3], and the graph between pieces, edges weighted by how many they stand for
    held = np.stack([np.bincount(pieces, each, minlength=count) for each in loads.T], axis=1).astype(np.float64)
    capacity = np.tile(loads.sum(0) * imbalance / parts, (parts, 1))
    stream = Stream(count, capacity=capacity)
    between = _between(graph, pieces, count)
    order = np.argsort(-held.max(1, initial=0), kind="stable")
    # a chunk's pieces do not see where the others of it go, so chunks are small
    for start, stop in pairwise(chunk_bounds(count).tolist()):
        items = order[start:stop]
        lengths = between.offsets[items + 1] - between.offsets[items]
        rows = ragged_ranges(between.offsets[items], lengths)
        stream.deal(items, held[items], lengths, between.neighbors[rows], between.weight[rows])
    return stream.owner[pieces]


@dataclass(frozen=True)
class _Between:
    """Numbers of pairs between pieces: neighbors and weight [E] grouped by offsets [K + 1]."""

    offsets: IntArray
    neighbors: IntArray
    weight: IntArray


def _between(graph: InducedGraph, pieces: IntArray, count: int) -> _Between:
    # the pieces of both ends of each pair of nodes [E], and whether they differ
    first = np.repeat(pieces, np.diff(graph.offsets))
    second = pieces[graph.neighbors]
    apart = first != second
    # each pair of pieces as one integer, ascending, and the number of node pairs between them
    pairs, weight = np.unique(first[apart] * count + second[apart], return_counts=True)
    offsets = offsets_of(np.bincount(pairs // max(count, 1), minlength=count))
    return _Between(offsets, pairs % max(count, 1), weight)
