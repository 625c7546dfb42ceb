"""A rank's part of the graph in memory: its nodes, the in-edges that training reads of them, features and labels.

Shapes: N own nodes, L labelled ones among them that have a split, C outputs, R relations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.executions.globalbatch import PlacedEdges
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.batch import Block, Degrees, NodeFeatures, sampled_block
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.edges import InEdges
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.sampling import Fanout
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.neighborhood import join_degrees, join_edges
from gnnflow.graphfeature.shards import labels_of
from gnnflow.neighbors.selected import Neighbors, edges_by_row
from gnnflow.storage.columns import take_rows, to_numpy
from gnnflow.storage.graph_store import GraphStore, read_features


class Labelled(NamedTuple):
    """The dense ids of labelled nodes [T], their splits [T] and their labels."""

    ids: IntArray
    splits: IntArray
    labels: Array


_NO_TARGETS = Labelled(*(np.empty(0, np.int64),) * 3)


@dataclass(frozen=True)
class OwnPart:
    """One rank's part of a graph.

    first: dense id of its first node. edges: in-edges of its N nodes by place, sources dense ids. rows [L]: places of
    its labelled nodes that have a split, ascending; splits and labels are theirs.
    """

    first: int
    edges: InEdges
    nodes: Degrees
    features: NodeFeatures
    rows: IntArray
    splits: IntArray
    labels: Array

    def of(self, split: str) -> IntArray:
        """Return the places of a split among the L nodes, ascending."""
        return np.flatnonzero(self.splits == SPLITS.index(split))

    @property
    def without_edges(self) -> OwnPart:
        """The same nodes in the graph without its edges."""
        return replace(self, edges=self.edges.no_edges, nodes=self.nodes.zeros)


def partitions_of(rank: int, num_ranks: int, book: PartitionBook) -> range:
    """Return the partitions that a rank owns: a run, as many as on any other rank or one more.

    Raises TrainingError where the graph has fewer partitions than there are ranks.
    """
    number = book.num_partitions
    if number < num_ranks:
        raise TrainingError(
            f"{num_ranks} ranks share {number} partitions, and each needs one",
            where="train.workers",
            fix=f"Set graph.partitions to {num_ranks} or more, or ask for fewer ranks.",
        )
    return range(number * rank // num_ranks, number * (rank + 1) // num_ranks)


def bounds_of(num_ranks: int, book: PartitionBook) -> IntArray:
    """Return where the dense ids of each rank begin, and where the last one's end [ranks + 1]."""
    firsts = [book.start(partitions_of(rank, num_ranks, book).start) for rank in range(num_ranks)]
    return np.array([*firsts, book.num_nodes], np.int64)


def read_part(neighbors: Neighbors, partitions: Sequence[int], *, targets: bool = True) -> OwnPart:
    """Read a run of partitions, at least one. targets: with the labelled nodes; else it says of none."""
    store = neighbors.store
    rows, splits, labels = zip(*(labelled(store, each) if targets else _NO_TARGETS for each in partitions), strict=True)
    return OwnPart(
        store.book.start(partitions[0]),
        join_edges([neighbors.in_edges(each) for each in partitions], [0] * len(partitions)),
        join_degrees([store.degrees(each) for each in partitions]),
        read_features(store, {each: np.arange(store.book.size(each)) for each in partitions}),
        np.concatenate(rows) - store.book.start(partitions[0]),
        np.concatenate(splits),
        np.concatenate(labels),
    )


def read_placed(store: GraphStore, partitions: Sequence[int]) -> PlacedEdges | None:
    """Return the edges that a run of partitions computes; None where these are their in-edges, or have types."""
    if not store.facts.placement or store.schema.is_typed:
        return None
    columns, book = ("dst", "src", *store.edge_columns), store.book
    table = pa.concat_tables([store.placed_edges(each, columns) for each in partitions]).combine_chunks()
    first, last = book.start(partitions[0]), book.start(partitions[-1]) + book.size(partitions[-1])
    into = to_numpy(table["dst"])
    is_own = (into >= first) & (into < last)
    near, far = (take_rows(table, np.flatnonzero(kept)) for kept in (is_own, ~is_own))
    # targets that other ranks own, each once, and the row of each far edge among them
    ghosts, row = np.unique(into[~is_own], return_inverse=True)
    return PlacedEdges(
        edges_by_row(near, into[is_own] - first, num_nodes=last - first),
        edges_by_row(far, row, num_nodes=len(ghosts)),
        ghosts,
    )


def blocks_of(part: OwnPart, neighbors: Neighbors, *, num_layers: int) -> list[Block]:
    """Return the in-edges that each layer aggregates of all own nodes, first layer first; sources are dense ids.

    Layers of the same fan-out have one block in common.
    """
    num_nodes, every = neighbors.store.book.num_nodes, np.arange(len(part.nodes))
    limits, kind = neighbors.sampling.of_hops(num_layers), neighbors.sampling.kind
    made: dict[Fanout | None, Block] = {None: Block(part.edges, num_nodes)}
    for limit in limits:
        if limit not in made:
            picked = part.edges.prefix(every, limit=limit)
            edges = part.edges.take(picked.positions, offsets=picked.offsets)
            made[limit] = sampled_block(edges, num_sources=num_nodes, in_degree=part.nodes.in_degree, sampling=kind)
    return [made[limit] for limit in reversed(limits)]


def labelled(store: GraphStore, partition: int) -> Labelled:
    """Return a partition's labelled nodes that have a split; none where targets are pairs."""
    if store.facts.targets == "edges":
        return _NO_TARGETS
    target_type = store.facts.target_type
    table = store.nodes(partition, ["split", "labelled", "label"], node_type=target_type)
    rows = _rows_of_targets(table)
    first = store.book.start(partition) + store.book.rows(partition, target_type).start
    held = take_rows(table, rows)
    return Labelled(rows + first, to_numpy(held["split"]).astype(np.int64), labels_of(held["label"]))


def targets_by_split(store: GraphStore, partitions: Sequence[int]) -> IntArray:
    """Return how many labelled nodes of some partitions are in each split [3], without reading a label."""
    found = np.zeros(len(SPLITS), np.int64)
    for partition in partitions:
        table = store.nodes(partition, ["split", "labelled"], node_type=store.facts.target_type)
        found += np.bincount(to_numpy(table["split"])[_rows_of_targets(table)], minlength=len(SPLITS))
    return found


def _rows_of_targets(table: pa.Table) -> IntArray:
    return np.flatnonzero((to_numpy(table["split"]) >= 0) & to_numpy(table["labelled"]))
