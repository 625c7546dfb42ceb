"""The nearest members of anchor sets (P-GNN: You et al., ICML 2019, section 4).

Of each type of n nodes there are `copies` sets of each of the sizes n / 2, n / 4, ..., 1: a node is a member of a set
of size n / 2^i with probability 2^-i, by a hash of the seed, its key and the number of the set. A node's anchor in a
set is the member from which the fewest edges lead to it, at most `distance`; among equally near ones a hash decides. A
member is its own anchor. The instance has the weight 1 / (d + 1), as in P-GNN, and the number of its set as attribute.

Anchors spread from the members along edges, one edge per round: a node with new anchors is sent to the partitions that
have an edge from it, which ask for its rows once, and gives them to the nodes without an anchor of the set.
(Deviations: sizes and copies follow P-GNN's code, not the paper's log^2 n sets; distances have a bound.)

Shapes: A anchors, each a node with a set and the set's nearest member; E edges; G sets of all types.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import AlignedArrays, IntArray, KeyArray, distinct, is_first, offsets_of, ragged_ranges
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.neighbors.graph import Instances
from gnnflow.neighbors.keyed import node_keys
from gnnflow.neighbors.selection import Delivered, Selection, SelectionResult, deliver, finish, target_types
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.config.neighbors_section import AnchorNeighbors
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner

NAME = "anchors"
_ANCHORS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class AnchorJob(Selection):
    """The job of anchors, known to every task."""

    copies: int
    distance: int

    @cached_property
    def sets_of_types(self) -> tuple[int, ...]:
        """Number of anchor sets of each type: none where no relation leads to it."""
        facts, leads = self.store.facts, target_types(self.store.schema)
        sizes = [each.num_nodes for each in facts.types] or [facts.num_nodes]
        return tuple(self.copies * num_sizes(size) if each in leads else 0 for each, size in enumerate(sizes))

    @cached_property
    def first_sets(self) -> IntArray:
        """The number of each type's first set among the sets of all types, then the number of all sets."""
        return offsets_of(np.array(self.sets_of_types))

    @property
    def num_sets(self) -> int:
        """Number of sets G of all types."""
        return int(self.first_sets[-1])


@dataclass(frozen=True)
class Anchors(AlignedArrays):
    """Nodes with the nearest member of a set: all [A], nodes and members as dense ids; the smallest tie wins."""

    nodes: IntArray
    sets: IntArray
    members: IntArray
    ties: KeyArray

    def table(self) -> pa.Table:
        """Return the anchors as rows for an exchange."""
        return pa.table({"node": self.nodes, "set": self.sets, "member": self.members, "tie": self.ties})

    @staticmethod
    def of(table: pa.Table) -> Anchors:
        """Return the anchors that rows hold."""
        return Anchors(*(to_numpy(table[name]) for name in ("node", "set", "member", "tie")))


_NONE = np.zeros(0, np.int64)
_NO_ANCHORS = Anchors(_NONE, _NONE, _NONE, _NONE.astype(np.uint64))


def num_sizes(num_nodes: int) -> int:
    """Return the number of sizes of anchor sets: log2 of the nodes, rounded up, at least one."""
    return max(int(num_nodes - 1).bit_length(), 1)


def run_rounds(job: Selection, section: AnchorNeighbors, runner: RoundRunner) -> SelectionResult:
    """Find the anchors, from distance 0 on."""
    job = job.of(section.relations(job.store.schema))
    own = AnchorJob(job.artifact, job.store, job.relations, job.seed, section.copies, section.distance)
    parts = job.store.num_partitions
    runner.run(Round("wanted", parts, parts, partial(ask, job=own)))
    reached: dict[str, str] = {}
    for distance in range(own.distance + 1):
        name = f"spread_{distance}"
        reads = {
            "wanted": "wanted",
            **reached,
            **({f"near_{distance - 1}": f"spread_{distance - 1}"} if distance else {}),
        }
        over = reads.keys() - reached.keys() - ({"wanted"} if distance < own.distance else set())
        runner.run(Round(name, parts, parts, partial(spread, job=own, distance=distance), reads, frozenset(over)))
        reached[f"reached_{distance}"] = name
    records = runner.run(Round(NAME, parts, parts, partial(write_anchors, job=own), reached, frozenset(reached)))
    return finish(job, runner, dict.fromkeys(range(len(job.relations)), Delivered(NAME, records)))


def ask(index: int, inbox: Inbox, *, job: AnchorJob) -> TaskOutput:
    """Ask the owners of all sources of a partition's edges for the anchors of these nodes."""
    sources, _ = _out_edges(index, job)
    # the nodes with an edge into this partition, each once, ascending
    wanted = distinct(sources)
    rows = pa.table({"node": wanted, "by": np.full(len(wanted), index)})
    return TaskOutput(emits=(Emit("wanted", rows, job.store.book.owner(wanted)),))


def spread(index: int, inbox: Inbox, *, job: AnchorJob, distance: int) -> TaskOutput:
    """Find the anchors at a distance of a partition's nodes, and send them to the partitions that asked for them."""
    if distance == 0:
        new = members(index, job)
    else:
        near = Anchors.of(inbox.read(f"near_{distance - 1}").combine_chunks())
        before = [to_numpy(inbox.read(f"reached_{each}")["place"]) for each in range(distance)]
        new = _spread_along_edges(index, job, near, before)
    # one row for each node and partition that asked for it
    asked = inbox.read("wanted").combine_chunks()
    # the partitions that asked for each node of this one, in the order of the nodes
    order = np.argsort(to_numpy(asked["node"]), kind="stable")
    node, by = to_numpy(asked["node"])[order], to_numpy(asked["by"])[order]
    # for each new anchor [A]: the first request for its node, and the number of requests
    first = np.searchsorted(node, new.nodes)
    counts = np.searchsorted(node, new.nodes, side="right") - first
    if distance == job.distance:
        counts = np.zeros_like(counts)
    # the row of the anchor that each request is sent
    picked = np.repeat(np.arange(len(counts)), counts)
    reached = pa.table({"place": _places(new, index, job), "member": new.members})
    return TaskOutput(
        emits=(
            Emit(f"near_{distance}", new.table(), by[ragged_ranges(first, counts)], picked=picked),
            Emit(f"reached_{distance}", reached, np.full(reached.num_rows, index)),
        ),
        counts={"anchors": reached.num_rows},
    )


def members(index: int, job: AnchorJob) -> Anchors:
    """Return the members of all sets among a partition's nodes: each is its own anchor."""
    book, keys, parts = job.store.book, node_keys(job.store, index), [_NO_ANCHORS]
    for node_type, (count, first) in enumerate(zip(job.sets_of_types, job.first_sets[:-1], strict=True)):
        rows = book.rows(index, node_type)
        for number in range(count):
            hashed = combine(keys[rows], seed_word(NAME, job.seed, number))
            # sets of one size are adjacent: half of the nodes, then a quarter
            inside = np.flatnonzero(hashed >> np.uint64(63 - number // job.copies) == 0)
            nodes = inside + rows.start + book.start(index)
            parts.append(Anchors(nodes, np.full(len(nodes), first + number), nodes, mix(hashed[inside])))
    return Anchors.joined(parts)


def _spread_along_edges(index: int, job: AnchorJob, near: Anchors, before: Sequence[IntArray]) -> Anchors:
    """Return the anchors that a partition's nodes get from their in-neighbours."""
    sources, targets = _out_edges(index, job)
    order = np.argsort(sources, kind="stable")
    sources, targets = sources[order], targets[order]
    # for each anchor [A]: its first edge and the number of edges from its node
    first = np.searchsorted(sources, near.nodes)
    counts = np.searchsorted(sources, near.nodes, side="right") - first
    known = np.concatenate(before)
    best = _NO_ANCHORS
    for rows in _pieces(counts):
        # one anchor per edge from a node with an anchor, moved to the edge's target
        given = near.take(np.repeat(rows, counts[rows]))
        given = replace(given, nodes=targets[ragged_ranges(first[rows], counts[rows])])
        fresh = np.flatnonzero(~np.isin(_places(given, index, job), known))
        best = _nearest(Anchors.joined([best, given.take(fresh)]), index, job)
    return best


def _nearest(anchors: Anchors, index: int, job: AnchorJob) -> Anchors:
    """Return the member with the smallest tie for each node and set, sorted by node, then set."""
    places = _places(anchors, index, job)
    order = np.lexsort((anchors.ties, places))
    return anchors.take(order[is_first(places[order])])


def _places(anchors: Anchors, index: int, job: AnchorJob) -> IntArray:
    """Return one integer for each node of a partition and set, which sorts by node, then set."""
    return (anchors.nodes - job.store.book.start(index)) * max(job.num_sets, 1) + anchors.sets


def write_anchors(index: int, inbox: Inbox, *, job: AnchorJob) -> TaskOutput:
    """Write the anchors of a partition's nodes, in the sets of their types."""
    # an anchor per (node, set) [A], a table for each distance at which it was found
    tables = [inbox.read(f"reached_{each}") for each in range(job.distance + 1)]
    place, member = (np.concatenate([to_numpy(table[name]) for table in tables]) for name in ("place", "member"))
    distance = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    # by node, then set: a place is both as one integer
    order = np.argsort(place)
    row, number = np.divmod(place[order], max(job.num_sets, 1))
    member, weight = member[order], (1 / (distance[order] + 1)).astype(np.float32)
    book, found = job.store.book, {}
    for relation, node_type in enumerate(job.schema.target_types):
        rows, sets = book.rows(index, node_type), job.first_sets[node_type : node_type + 2]
        # rows of nodes of this type whose anchor is in a set of this type
        own = (row >= rows.start) & (row < rows.stop) & (number >= sets[0]) & (number < sets[1])
        of_type = (number[own] - sets[0]).astype(np.float32)[:, None]
        found[relation] = Instances(row[own] + book.start(index), member[own], weight[own], of_type)
    return deliver(index, job, found)


def _out_edges(index: int, job: AnchorJob) -> tuple[IntArray, IntArray]:
    """Return both ends of all edges that lead to a partition's nodes: sources and targets [E]."""
    numbers = range(job.store.schema.num_relations)
    tables = [job.store.edges(index, ["src", "dst"], relation=each) for each in numbers]
    sources, targets = (np.concatenate([to_numpy(table[name]) for table in tables]) for name in ("src", "dst"))
    return sources, targets


def _pieces(counts: IntArray) -> Iterator[IntArray]:
    """Yield rows in runs with a bounded number of edges."""
    # edges up to each row, and the rows where this number passes a multiple of the bound
    total = np.cumsum(counts)
    cuts = np.searchsorted(total, np.arange(_ANCHORS_AT_ONCE, int(total[-1]) if len(total) else 0, _ANCHORS_AT_ONCE))
    yield from np.split(np.arange(len(counts)), cuts)
