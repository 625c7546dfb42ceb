"""The nodes at each distance (JK-Net: Xu et al., ICML 2018; as neighbours by FlexGraph, EuroSys 2021, section 2).

Ring d of a root holds the nodes whose shortest path to it has d edges; its relation is <type>__ring<d>__<type of the
root>. At most `max_nodes` of a ring are kept, over all types, by a hash of root and node; the next ring is found from
the kept nodes, each along at most as many in-edges. A node that was found and not kept is in no later ring.

A distance takes three rounds: the owner of each kept node follows its in-edges; the owner of each reached node drops
pairs that were reached before; the owner of the root keeps the first nodes of the ring and sends them to their owners.

Shapes: P pairs of a root and a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import AlignedArrays, IntArray, KeyArray, is_first
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.neighbors.graph import Instances
from gnnflow.neighbors.keyed import keyed_edges, node_keys
from gnnflow.neighbors.selection import Delivered, Selection, SelectionResult, deliver, finish, target_types
from gnnflow.sampling import top_k_ungrouped
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import RingNeighbors
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner

_PAIRS_AT_ONCE = 1 << 22  # pairs that are reached together


@dataclass(frozen=True)
class RingJob(Selection):
    """The job of rings, known to every task."""

    distance: int
    max_nodes: int

    def roots(self, partition: int) -> IntArray:
        """Return the rows of a partition's roots: the nodes of the types that some relation leads to."""
        rows = [self.store.book.rows(partition, each) for each in target_types(self.store.schema)]
        return np.concatenate([np.arange(each.start, each.stop) for each in rows])


@dataclass(frozen=True)
class Pairs(AlignedArrays):
    """Nodes that roots reached, as dense ids [P], and a hash of seed and root, which ranks them [P]."""

    roots: IntArray
    nodes: IntArray
    words: KeyArray

    def table(self) -> pa.Table:
        """Return the pairs as rows for an exchange."""
        return pa.table({"root": self.roots, "node": self.nodes, "word": self.words})

    @staticmethod
    def of(table: pa.Table) -> Pairs:
        """Return the pairs that rows hold."""
        return Pairs(*(to_numpy(table[name]) for name in ("root", "node", "word")))


def run_rounds(job: Selection, section: RingNeighbors, runner: RoundRunner) -> SelectionResult:
    """Find the rings, one distance after the other."""
    job = job.of(section.relations(job.store.schema))
    own = RingJob(job.artifact, job.store, job.relations, job.seed, section.distance, section.max_nodes)
    parts, rings = job.store.num_partitions, {}
    before: dict[str, str] = {}
    for distance in range(1, own.distance + 1):
        follow, drop, keep = (f"{step}_{distance}" for step in ("follow", "drop", "keep"))
        reads = {"kept": f"keep_{distance - 1}"} if distance > 1 else {}
        further = partial(follow_edges, job=own, distance=distance)
        runner.run(Round(follow, parts, parts, further, reads, frozenset(reads)))
        reads = {"reached": follow, **before}
        fresh = partial(drop_visited, job=own, distance=distance)
        runner.run(Round(drop, parts, parts, fresh, reads, frozenset(reads)))
        reads, before = {"new": drop}, {"visited": drop}
        nearest = partial(keep_nearest, job=own, distance=distance)
        runner.run(Round(keep, parts, parts, nearest, reads, frozenset(reads)))
        rings[f"ring_{distance}"] = keep
    records = runner.run(Round("rings", parts, parts, partial(write_rings, job=own), rings, frozenset(rings)))
    return finish(job, runner, dict.fromkeys(range(len(job.relations)), Delivered("rings", records)))


def follow_edges(index: int, inbox: Inbox, *, job: RingJob, distance: int) -> TaskOutput:
    """Follow the in-edges of a partition's nodes that are in the last ring of some root."""
    book, edges = job.store.book, keyed_edges(job.store, index, distinct=True)
    keys = node_keys(job.store, index)
    if distance == 1:
        roots = job.roots(index)
        words = combine(keys[roots], seed_word("rings", job.seed))
        pairs = Pairs(roots + book.start(index), roots + book.start(index), words)
    else:
        pairs = Pairs.of(inbox.read("kept").combine_chunks())
    pieces = []
    for some in pairs.pieces(max(_PAIRS_AT_ONCE // job.max_nodes, 1)):
        rows = some.nodes - book.start(index)
        # where a node has too many in-edges, each pair follows a different run of them
        positions, counts = edges.pick(rows, combine(some.words, keys[rows]), limit=job.max_nodes)
        # the pair that each followed in-edge starts from, one entry per followed edge
        before = np.repeat(np.arange(len(counts)), counts)
        pieces.append(_distinct(Pairs(some.roots[before], edges.sources[positions], some.words[before])))
    reached = pieces[0] if len(pieces) == 1 else _distinct(Pairs.joined(pieces))
    return TaskOutput(emits=(Emit("reached", reached.table(), book.owner(reached.nodes)),))


def drop_visited(index: int, inbox: Inbox, *, job: RingJob, distance: int) -> TaskOutput:
    """Drop the pairs that were reached before, and send the others to the roots' owners."""
    book = job.store.book
    size, start = max(book.size(index), 1), book.start(index)
    # each pair of a root and a node of this partition once, by root, then node [P]
    pairs = _distinct(Pairs.of(inbox.read("reached").combine_chunks()))
    # pairs as integers: those reached now, and all reached before
    keys = pairs.roots * size + pairs.nodes - start
    visited = to_numpy(inbox.read("visited")["pair"]) if distance > 1 else np.zeros(0, np.int64)
    fresh = np.flatnonzero((pairs.roots != pairs.nodes) & ~np.isin(keys, visited))
    new = pairs.take(fresh)
    # a hash of seed, root and node, which ranks the new pairs of a root [P]
    priority = combine(new.words, node_keys(job.store, index)[new.nodes - start])
    known = pa.table({"pair": np.concatenate([visited, keys[fresh]])})
    return TaskOutput(
        emits=(
            Emit("new", new.table().append_column("priority", pa.array(priority)), book.owner(new.roots)),
            Emit("visited", known, np.full(known.num_rows, index)),
        ),
        counts={"new": len(fresh)},
    )


def keep_nearest(index: int, inbox: Inbox, *, job: RingJob, distance: int) -> TaskOutput:
    """Keep the first nodes of each root's ring, and send them to their owners."""
    table = inbox.read("new").combine_chunks()
    pairs = Pairs.of(table)
    # the distinct roots [n], and the number of each pair's root among them [P]
    roots, row = np.unique(pairs.roots, return_inverse=True)
    priority = to_numpy(table["priority"])
    kept = pairs.take(top_k_ungrouped(row, priority, num_targets=len(roots), limit=job.max_nodes).edges)
    ring = pa.table({"root": kept.roots, "node": kept.nodes})
    followed = kept if distance < job.distance else kept.take(np.zeros(0, np.int64))
    return TaskOutput(
        emits=(
            Emit("kept", followed.table(), job.store.book.owner(followed.nodes)),
            Emit(f"ring_{distance}", ring, np.full(ring.num_rows, index)),
        ),
        counts={"kept": ring.num_rows},
    )


def write_rings(index: int, inbox: Inbox, *, job: RingJob) -> TaskOutput:
    """Write the rings of a partition's roots."""
    book, types, found = job.store.book, job.store.schema.types, {}
    for distance in range(1, job.distance + 1):
        ring = inbox.read(f"ring_{distance}")
        roots, nodes = to_numpy(ring["root"]), to_numpy(ring["node"])
        root_types, node_types = book.type_of(roots), book.type_of(nodes)
        for number, relation in enumerate(job.schema.relations):
            if relation.name == f"ring{distance}":
                ends = types.index(relation.target), types.index(relation.source)
                # whether the relation joins the types of a pair's nodes [P]
                own = (root_types == ends[0]) & (node_types == ends[1])
                found[number] = Instances(roots[own], nodes[own])
    return deliver(index, job, found)


def _distinct(pairs: Pairs) -> Pairs:
    """Return each pair once, by root, then node."""
    order = np.lexsort((pairs.nodes, pairs.roots))
    return pairs.take(order[is_first(pairs.roots[order], pairs.nodes[order])])
