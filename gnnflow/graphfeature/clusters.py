"""Cuts a few clusters from the whole graph: the nodes of a batch and the edges among them.

Rows are given by scatter, as in `blocks.py`: the batch's targets first, then the other nodes of its clusters, then the
boundary, hop by hop along in-edges. An edge is kept where all its sources are rows.

Kept in-edges of a node represent all of them, like a uniform sample: `sampled_block` scales their sum by in-degree /
edges kept. Degrees are of the full graph, so that layers compute as in evaluation, and a boundary as deep as the model
gives exact targets.

Shapes: B targets, n rows, E edges picked, R relations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import Array, IntArray, find_places, offsets_of
from gnnflow.graph.batch import Block, LayerEdges, sampled_block
from gnnflow.graph.edges import InEdges, Picked
from gnnflow.graphfeature.blocks import UNSEEN, number_rows
from gnnflow.graphfeature.neighborhood import Neighborhood, RowArray


@dataclass(frozen=True)
class ClusterRows:
    """The rows of a batch of clusters: nodes [n], the targets first, and the block of all in-edges among them."""

    nodes: IntArray
    block: Block


def cut_clusters(
    graph: Neighborhood, targets: IntArray, *, members: IntArray, boundary_hops: int, scratch: RowArray
) -> ClusterRows:
    """Return the rows of some clusters. graph: the whole graph with every in-edge, and dense id i in row i.

    members: all nodes of the clusters; targets: some of them. scratch: from `new_scratch`, unchanged afterwards.
    """
    edges = graph.edges
    # in the scratch space members are 0, and targets are unseen again
    scratch[members] = 0
    scratch[targets] = UNSEEN
    # members that are no targets
    others = members[scratch[members] == 0]
    nodes = np.concatenate([targets, others])
    scratch[nodes] = np.arange(len(nodes), dtype=np.int32)
    fresh = nodes
    for _ in range(boundary_hops):
        fresh = number_rows(edges.step_back(fresh), scratch, first_row=len(nodes)).new
        nodes = np.concatenate([nodes, fresh])
    block = _block(graph, nodes, scratch)
    scratch[nodes] = UNSEEN
    return ClusterRows(nodes, block)


def _block(graph: Neighborhood, nodes: IntArray, row_of: RowArray) -> Block:
    """Return the in-edges among the nodes whose rows are given."""
    # all in-edges of the nodes, row by row [E], and whether each is kept [E]
    picked = graph.edges.prefix(nodes, limit=None)
    inside = _inside(graph.edges, picked, row_of[graph.edges.sources_of(picked.positions)] != UNSEEN)
    # kept edges before each row's first [R n + 1]
    offsets = offsets_of(inside)[picked.offsets]
    positions = picked.positions[inside]
    sources = row_of[graph.edges.sources_of(positions)].astype(np.int64)
    in_degree = graph.degrees.in_degree[nodes]
    return sampled_block(
        graph.edges.take(positions, offsets=offsets, sources=sources),
        num_sources=len(nodes),
        in_degree=in_degree,
        sampling="none" if len(positions) == in_degree.sum() else "uniform",
    )


@dataclass(frozen=True)
class EdgesAmong(LayerEdges):
    """The in-edges of N nodes whose sources are among some nodes, as `LayerEdges` of a batch of clusters on ranks.

    in_degree [N] or [N, R]: in the full graph. among: dense ids of these nodes, ascending.
    """

    edges: InEdges
    num_sources: int
    in_degree: IntArray
    among: IntArray

    def cut(self, nodes: IntArray) -> Block:
        """Return the block of some nodes, scaled for the edges that are left out."""
        picked = self.edges.prefix(nodes, limit=None)
        # whether each source is among the nodes [L], then whether each edge is kept [E]
        known = find_places(self.among, self.edges.sources_of(picked.positions)) >= 0
        inside = _inside(self.edges, picked, known)
        return sampled_block(
            self.edges.take(picked.positions[inside], offsets=offsets_of(inside)[picked.offsets]),
            num_sources=self.num_sources,
            in_degree=self.in_degree[nodes],
            sampling="uniform",
        )


def _inside(edges: InEdges, picked: Picked, known: Array) -> Array:
    """Return whether all sources of each picked edge are known [E]. known [L]: whether each source is."""
    if edges.leaves is None or not len(known):
        return known
    # the first leaf of each edge; every edge has one or more
    starts = offsets_of(edges.leaves[picked.positions + 1] - edges.leaves[picked.positions])[:-1]
    every: Array = np.logical_and.reduceat(known, starts)
    return every
