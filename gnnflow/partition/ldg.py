"""Partitions by streaming: each node goes to the partition with most of its in-neighbours, less if it is full.

LDG of Stanton and Kliot (KDD 2012; `streaming.py`), streamed several times: from the second pass on a node sees where
all of its in-neighbours went (Nishimura and Ugander, "Restreaming graph partitioning", KDD 2013). The order of
partitions, and of the nodes of each, is by the hash of keys and seed. A store has in-edges alone, so on a graph whose
edges are not there in both directions the neighbours that a node leads to are not seen.

Memory: eight bytes for each node of the graph, and the ends of the edges into one partition of the store that is read;
and for each of the nodes that are dealt at once, 2,048 at most, a few numbers per partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import distinct, offsets_of
from gnnflow.graph.edges import InEdges
from gnnflow.graph.hashing import combine, hash_integers, seed_word
from gnnflow.partition.planning import Plan, keys_of, loads_of
from gnnflow.partition.streaming import Stream, chunk_bounds
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.partition.costs import CostArray
    from gnnflow.storage.graph_store import GraphStore
_CHUNKS = 4  # so that no more than a thirty-second of the nodes are dealt at once


@dataclass(frozen=True)
class Ldg:
    """Partitions by streaming. imbalance: the most of a load over its mean; even: the numbers of balanced `LOADS`."""

    imbalance: float
    passes: int
    even: tuple[int, ...] = (0,)
    clusters: int = 0

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return the owner of each node."""
        parts, book = store.num_partitions, store.book
        # the loads of the whole graph [K], and one over each
        total = np.sum([loads_of(store, number)[:, self.even].sum(0) for number in range(parts)], axis=0)
        share = 1 / np.where(total > 0, total, 1)
        stream = Stream(book.num_nodes, capacity=np.tile(total * share * self.imbalance / parts, (parts, 1)))
        order = np.argsort(combine(hash_integers(np.arange(parts)), seed_word(seed, "ldg")), kind="stable").tolist()
        dealt = 0
        for _ in range(self.passes):
            stream.loads[:] = 0
            for partition in order:
                loads = loads_of(store, partition)[:, self.even] * share
                _deal(stream, store, partition, loads=loads, dealt=dealt, seed=seed)
                dealt = min(dealt + book.size(partition), book.num_nodes // _CHUNKS)
        return Plan(stream.owner)


def _deal(stream: Stream, store: GraphStore, partition: int, *, loads: CostArray, dealt: int, seed: int) -> None:
    """Deal the nodes of a partition of the store, after `dealt` others."""
    start, size = store.book.start(partition), store.book.size(partition)
    edges = _in_neighbors(store, partition)
    lengths = edges.lengths
    nodes = np.argsort(combine(keys_of(store, partition), seed_word(seed, "ldg")), kind="stable")
    for begin, end in pairwise(chunk_bounds(size, dealt=dealt).tolist()):
        chunk = nodes[begin:end]
        stream.deal(start + chunk, loads[chunk], lengths[chunk], edges.step_back(chunk))


def _in_neighbors(store: GraphStore, partition: int) -> InEdges:
    """Return the in-edges of a partition's nodes in all relations as one, each pair of ends once."""
    tables = [store.edges(partition, ["dst", "src"], relation=number) for number in range(store.schema.num_relations)]
    start, num_nodes = store.book.start(partition), store.book.num_nodes
    # each pair of row and source as one integer, ascending
    pairs = distinct(
        np.concatenate([(to_numpy(each["dst"]) - start) * num_nodes + to_numpy(each["src"]) for each in tables])
    )
    row = pairs // max(num_nodes, 1)
    return InEdges(offsets_of(np.bincount(row, minlength=store.book.size(partition))), pairs - row * num_nodes)
