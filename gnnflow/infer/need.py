"""Plans the rows that each slice computes and receives, from the last layer back.

D_K are the targets; D_{l-1} is D_l and the sources of D_l's in-edges. Each partition asks the owners for its sources
once, and the owners answer in the order they were asked, so source rows travel without their ids. A source that is a
target of the same partition is at hand and not asked for.

A source is asked for once per relation that reads it, since each relation has one layer. It is at hand where it is a
target of the same relation, from and to one type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.hashing import combine, seed_word
from gnnflow.infer import hub_edges
from gnnflow.infer.kept_reads import asked_of, kept_reads
from gnnflow.infer.reads import layer_reads
from gnnflow.infer.states import ask_for_states, counts_of, plan_of
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.mapreduce.exchange import Inbox


@dataclass(frozen=True)
class Sends:
    """The local rows that partitions asked for in a relation, a row once per partition, and where each goes to."""

    rows: IntArray
    destination: IntArray

    def among(self, rows: IntArray) -> Sends:
        """Return the sends whose rows lie in a run of the rows that can be asked for, ascending."""
        if not len(rows):
            return Sends(self.rows[:0], self.destination[:0])
        held = np.flatnonzero((self.rows >= rows[0]) & (self.rows <= rows[-1]))
        return Sends(self.rows[held], self.destination[held])


class TypeTargets(NamedTuple):
    """Targets of one type: its number, and their rows among its nodes in a partition, ascending."""

    node_type: int
    rows: IntArray


def plan_need(index: int, inbox: Inbox, *, job: InferJob, layer: int) -> TaskOutput:
    """Ask the owners for the sources of this partition's in-edges at a layer."""
    # local rows this layer computes here, ascending [T]
    rows = targets_of(index, job) if layer == job.num_layers else computed_rows(index, inbox, job, layer)
    reads = layer_reads(index, job, layer=layer, rows=rows)
    pairs = [counts_of(each, job, layer) for each in reads]
    states, sent = ask_for_states(reads, pairs, job, layer)
    counts: dict[str, Any] = {"rows": len(rows), "sources": sum(len(each.asked) for each in reads), "sent": sent}
    if layer == job.num_layers:
        counts["sample"] = _sample(index, rows, job)
    own = Emit(f"rows_{layer}", pa.table({"row": rows}), np.full(len(rows), index))
    with_hubs = [(each.relation, each.hubs) for each in reads if each.hubs is not None]
    counts["hubs"] = [of.counts for _, of in with_hubs]
    split = [
        emit
        for relation, of in with_hubs
        for emit in hub_edges.send_edges(of, index=index, job=job, layer=layer, relation=relation)
    ]
    if job.mapped:
        plans = [
            [plan_of(index, job, served, each.relation, found) for served in job.served(layer)]
            for each, found in zip(reads, pairs, strict=True)
        ]
        kept = kept_reads(reads, layer, by_pieces=[any(plan.by_pieces for plan in of) for of in plans])
        return TaskOutput(emits=(*kept, own, *split, *states), counts=counts)
    asked = {"node": np.concatenate([each.asked for each in reads])}
    if len(reads) > 1:
        asked["relation"] = np.repeat(np.arange(len(reads)), [len(each.asked) for each in reads])
    emit = Emit(f"asked_{layer}", pa.table(asked), job.neighbors.store.book.owner(asked["node"]))
    return TaskOutput(emits=(emit, own, *split, *states), counts=counts)


def targets_of(index: int, job: InferJob) -> IntArray:
    """Return the local rows to score, ascending; with types, of the target types' nodes alone."""
    store = job.neighbors.store
    return np.concatenate([_targets_of_type(index, job, kind) for kind in store.facts.target_types])


def _targets_of_type(index: int, job: InferJob, node_type: int) -> IntArray:
    store = job.neighbors.store
    own = store.book.rows(index, node_type)
    rows = np.arange(own.start, own.stop)
    if isinstance(job.node_targets, str):
        return rows
    # split code of each node of the type
    split = to_numpy(store.nodes(index, ["split"], node_type=node_type)["split"])
    return rows[np.isin(split, job.node_targets)]


def rows_by_type(rows: IntArray, index: int, job: InferJob) -> list[TypeTargets]:
    """Return the targets of each target type. rows: local rows of targets, ascending."""
    facts, book = job.neighbors.store.facts, job.neighbors.store.book
    places = [(kind, book.rows(index, kind)) for kind in facts.target_types]
    return [TypeTargets(kind, rows[(rows >= own.start) & (rows < own.stop)] - own.start) for kind, own in places]


def computed_rows(index: int, inbox: Inbox, job: InferJob, layer: int) -> IntArray:
    """Return D_layer of this partition: its own rows of the layer above, and what was asked of it there."""
    above = job.need_layer(layer + 1)
    # local rows that partitions asked of this one for the layer above, a row as often as it was asked for
    asked = [sends.rows for sends in sends_of(index, inbox, job, layer + 1)]
    asked += [hub_edges.sources_here(inbox, job, layer + 1, each) for each in job.hub_relations(layer + 1)]
    return rows_among([to_numpy(inbox.read(f"rows_{above}")["row"]), *asked], job.neighbors.store.book.size(index))


def rows_among(rows: Sequence[IntArray], size: int) -> IntArray:
    """Return the local rows of a partition of a size that some arrays name, each once, ascending."""
    named = np.zeros(size, bool)
    for each in rows:
        named[each] = True
    return np.flatnonzero(named)


def rows_of_layer(index: int, inbox: Inbox, job: InferJob, layer: int) -> IntArray:
    """Return D_layer of a layer (from 1), as its need round recorded it."""
    return to_numpy(inbox.read(f"rows_{job.need_layer(layer)}")["row"])


def sends_of(index: int, inbox: Inbox, job: InferJob, layer: int) -> tuple[Sends, ...]:
    """Return the local rows each partition asked of this one for a layer, by relation, each grouped by partition."""
    store = job.neighbors.store
    if job.mapped:
        relations = range(store.schema.num_relations)
        found = [asked_of(index, inbox, job, layer=layer, relation=relation) for relation in relations]
        return tuple(
            Sends(np.concatenate(each), np.repeat(np.arange(len(each)), list(map(len, each)))) for each in found
        )
    pieces = list(inbox.pieces(f"asked_{job.need_layer(layer)}"))
    # local row of each that is asked for, and the partition that asked
    rows = np.concatenate([to_numpy(piece["node"]) for piece in pieces]) - store.book.start(index)
    destination = np.repeat(np.arange(len(pieces)), [piece.num_rows for piece in pieces])
    if store.schema.num_relations == 1:
        return (Sends(rows, destination),)
    relation = np.concatenate([to_numpy(piece["relation"]) for piece in pieces])
    of_relations = (np.flatnonzero(relation == number) for number in range(store.schema.num_relations))
    return tuple(Sends(rows[own], destination[own]) for own in of_relations)


def need_channels(job: InferJob, layer: int) -> dict[str, str]:
    """Return the reads that make a layer's asked and rows channels available, and what was counted and chosen."""
    served = job.need_layer(layer)
    channels = (f"asked_{served}", f"rows_{served}", f"counts_{served}", *job.edge_channels(served))
    channels += hub_edges.need_channels(job, served)
    return dict.fromkeys(channels, f"need_{served}")


def _sample(index: int, rows: IntArray, job: InferJob) -> list[list[int]]:
    """Return this partition's candidates for the parity certificate: (hash, dense id), smallest hashes first."""
    store = job.neighbors.store
    # the key of each row to score, which are of the target types, one type after the other
    keys = np.concatenate(
        [
            to_numpy(store.nodes(index, ["key"], node_type=kind)["key"])[held]
            for kind, held in rows_by_type(rows, index, job)
        ]
    )
    # one hash per row to score, and the places of the smallest, of equal ones the first
    hashed = combine(keys, seed_word(job.seed, "parity"))
    number = min(job.parity_samples, len(hashed))
    near = np.flatnonzero(hashed <= np.partition(hashed, number - 1)[number - 1]) if number else np.zeros(0, np.int64)
    first = near[np.argsort(hashed[near], kind="stable")[:number]]
    nodes = rows[first] + store.book.start(index)
    pairs = np.stack([(hashed[first] >> np.uint64(1)).astype(np.int64), nodes], axis=1)
    listed: list[list[int]] = pairs.tolist()
    return listed
