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

from gnnflow.graph.arrays import Array, IntArray, offsets_of
from gnnflow.graph.batch import Block, sampled_block
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
    scratch[members] = 0
    scratch[targets] = UNSEEN
    # members that are no targets
    others = members[scratch[members] == 0]
    nodes = np.concatenate([targets, others])
    scratch[nodes] = np.arange(len(nodes), dtype=np.int32)
    fresh = nodes
    for _ in range(boundary_hops):
        _, fresh = number_rows(edges.step_back(fresh), scratch, first_row=len(nodes))
        nodes = np.concatenate([nodes, fresh])
    block = _block(graph, nodes, scratch)
    scratch[nodes] = UNSEEN
    return ClusterRows(nodes, block)


def _block(graph: Neighborhood, nodes: IntArray, row_of: RowArray) -> Block:
    """Return the in-edges among the nodes whose rows are given."""
    picked = graph.edges.prefix(nodes, limit=None)
    inside = _inside(graph.edges, picked, row_of)
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


def _inside(edges: InEdges, picked: Picked, row_of: RowArray) -> Array:
    """Return whether all sources of each picked edge have rows [E]."""
    known: Array = row_of[edges.sources_of(picked.positions)] != UNSEEN
    if edges.leaves is None or not len(known):
        return known
    # the first leaf of each edge; every edge has one or more
    starts = offsets_of(edges.leaves[picked.positions + 1] - edges.leaves[picked.positions])[:-1]
    every: Array = np.logical_and.reduceat(known, starts)
    return every
