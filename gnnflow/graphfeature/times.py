"""Builds blocks of nodes at times: each row reads only the in-edges before its time.

A row is (node, time): its in-edges are earlier than the time, and their sources are rows of the same time, in every
layer. So two rows of a node at different times share nothing, and a target's inputs do not depend on other targets of
the batch. Times without an edge between them see the same edges, and `cuts` makes them equal.

A fan-out first takes its in-edges of all times, and later ones are then left out. The scale of a sample is by all edges
that it took, so sums over the remaining edges are unbiased. Degrees are of the whole graph.

Shapes: R targets of the batch, N nodes of the neighbourhood, M distinct times of its edges, E edges of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import BoolArray, IntArray, distinct
from gnnflow.graph.batch import Block, Degrees, MiniBatch, sampled_block
from gnnflow.graph.edges import Picked
from gnnflow.graph.sampling import Fanout, Sampling, SamplingKind
from gnnflow.graphfeature.blocks import edges_of_hop
from gnnflow.graphfeature.exclusion import keeping
from gnnflow.graphfeature.neighborhood import Neighborhood

ALL_EARLIER = np.iinfo(np.int64).max
"""The cut of a time that is after every edge."""


@dataclass(frozen=True)
class TimedBatch:
    """A batch, and the cut of each of its rows: an edge into the row is before it. nodes: dense ids of the rows."""

    batch: MiniBatch
    cuts: IntArray
    nodes: IntArray


@dataclass(frozen=True)
class LateEdge:
    """An edge that is too late: dense ids of its ends, and its time."""

    source: int
    target: int
    time: int


def cuts(moments: IntArray, times: IntArray) -> IntArray:
    """Return the first edge time [M] that is not before each time; ALL_EARLIER for none.

    An edge is before the time exactly where it is before this cut.
    """
    return np.append(moments, ALL_EARLIER)[np.searchsorted(moments, times)]


def build_before(
    neighborhood: Neighborhood,
    rows: IntArray,
    before: IntArray,
    *,
    sampling: Sampling,
    num_layers: int,
) -> TimedBatch:
    """Return the pruned blocks of the nodes at the given rows, each before its time of `cuts` [R].

    (row, time) are distinct. Other arguments are as in `build_minibatch`.
    """
    assert neighborhood.edges.time is not None, "edges have times"
    size = neighborhood.num_nodes
    # the distinct cuts, ascending, and the number of each target's among them [R]
    moments, group = np.unique(before, return_inverse=True)
    # each (time, node) as one integer: at first the targets, then also their sources
    keys = group * size + rows
    assert len(distinct(keys)) == len(keys), "targets of one batch are distinct"
    hops: list[_TimedHop] = []
    for limit in sampling.of_hops(num_layers):
        hops.append(_hop_before(neighborhood, keys, moments, limit))
        keys = hops[-1].keys
    nodes = keys % size
    degrees = neighborhood.degrees.take(nodes)
    sizes = [hop.num_targets for hop in hops[1:]] + [len(keys)]
    blocks = [
        hop.block(neighborhood, degrees, num_sources=number, sampling=sampling.kind)
        for hop, number in zip(hops, sizes, strict=True)
    ]
    batch = MiniBatch(
        blocks=tuple(reversed(blocks)),
        nodes=degrees,
        features=neighborhood.features.take(nodes),
        targets=neighborhood.node_ids[rows],
    )
    return TimedBatch(batch, moments[keys // size], neighborhood.node_ids[nodes])


@dataclass(frozen=True)
class _TimedHop:
    """The in-edges of a layer's rows.

    picked: the edges of the fan-out, of all times; sources: the row of each edge's source [E], 0 for a later edge;
    earlier: whether an edge is before its row's time [E]. keys: of the layer's rows, then of the new sources.
    """

    num_targets: int
    keys: IntArray
    picked: Picked
    sources: IntArray
    earlier: BoolArray

    def block(self, neighborhood: Neighborhood, degrees: Degrees, *, num_sources: int, sampling: SamplingKind) -> Block:
        """Return the layer's block of earlier edges. degrees: of its sources, its targets first."""
        edges = neighborhood.edges.take(self.picked.positions, offsets=self.picked.offsets, sources=self.sources)
        in_degree = degrees.in_degree[: self.num_targets]
        return keeping(
            sampled_block(edges, num_sources=num_sources, in_degree=in_degree, sampling=sampling), self.earlier
        )


def _hop_before(neighborhood: Neighborhood, keys: IntArray, moments: IntArray, limit: Fanout | None) -> _TimedHop:
    """Return the in-edges of the rows.

    keys: time and node of each row as one integer. limit: the fan-out; None takes every edge.
    """
    assert neighborhood.edges.time is not None, "edges have times"
    size = neighborhood.num_nodes
    picked = edges_of_hop(neighborhood, keys % size, limit)
    # the row that each edge leads to, and whether the edge is before its time [E]
    row = picked.each(np.arange(len(keys)))
    earlier = neighborhood.edges.time[picked.positions] < moments[keys // size][row]
    # the source of an earlier edge is a row of its target's time
    reached = (keys - keys % size)[row[earlier]] + neighborhood.edges.sources[picked.positions[earlier]]
    # the sources met for the first time go after the rows; `after` is not sorted, so rows are found through an order
    found = distinct(reached)
    after = np.concatenate([keys, found[~np.isin(found, keys)]])
    sources = np.zeros(len(row), np.int64)
    order = np.argsort(after)
    sources[earlier] = order[np.searchsorted(after, reached, sorter=order)]
    return _TimedHop(len(keys), after, picked, sources, earlier)


def late_edge(timed: TimedBatch) -> LateEdge | None:
    """Return an edge of a batch that is not before its row's cut; None where there is none."""
    for block in timed.batch.blocks:
        # the target of each edge, relation by relation [E], and the edges that are not before the target's cut
        targets = np.repeat(np.tile(np.arange(block.num_targets), block.edges.num_relations), block.edges.lengths)
        assert block.edges.time is not None
        late = np.flatnonzero(block.edges.time >= timed.cuts[targets])
        if len(late):
            edge = late[0]
            ends = int(timed.nodes[block.edges.sources[edge]]), int(timed.nodes[targets[edge]])
            return LateEdge(*ends, int(block.edges.time[edge]))
    return None


def latest_edge(neighborhood: Neighborhood) -> LateEdge | None:
    """Return the latest edge of a neighbourhood; None where it has no edge."""
    edges, ids = neighborhood.edges, neighborhood.node_ids
    assert edges.time is not None
    if not edges.num_edges:
        return None
    edge = int(np.argmax(edges.time))
    # the node that the edge leads to, in any relation
    target = (np.searchsorted(edges.offsets, edge, side="right") - 1) % edges.num_targets
    return LateEdge(int(ids[edges.sources[edge]]), int(ids[target]), int(edges.time[edge]))
