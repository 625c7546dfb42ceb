"""Hubs: targets with more in-edges than one task should read, whose edges are added up where their sources lie.

AGL re-indexes hubs in training and in inference (VLDB 2020, section 3.4). Here the owners of the sources share the
work, since their rows are at hand: no row is sent for a hub's edges.

    need_l       a hub's owner keeps the edges from its own rows, and sends the others to the owners of their sources
    slice_{l-1}  leaves the source terms where they are, and sends the terms of hubs that edges read
    hubs_l       each partition makes the states of hubs over the edges from its rows, and sends them to their owners
    slice_l      merges them behind all other parts, by ascending partition

The round is the same where rows are sent and where they are mapped, so both give the same bits. Edges are split where
every in-edge is read (a sample has a bound), and where the states of the layer's aggregation merge.

Shapes: T targets, H hubs among them, n in-edges that are split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.executions.sliced import partial_slice
from gnnflow.graph.arrays import distinct, is_first, offsets_of, ragged_ranges
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.infer.relation_task import RelationTask
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.executions.plan import TermArrays
    from gnnflow.executions.sliced import SliceTerms
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.infer.arrival import TaskPlace
    from gnnflow.infer.job import InferJob
    from gnnflow.infer.reads import LayerReads
    from gnnflow.mapreduce.exchange import Inbox


@dataclass(frozen=True)
class HubEdges:
    """In-edges of a partition's hubs in a relation. number: of hubs, split or not.

    edges: of all targets. positions [n]: of the edges that are split, hub by hub; sources [n]: the dense id that each
    comes from; targets [n]: the local row that it leads to.
    """

    number: int
    edges: InEdges
    positions: IntArray
    sources: IntArray
    targets: IntArray

    @property
    def counts(self) -> HubCounts:
        """The number of hubs, and of their edges that are split."""
        return HubCounts(self.number, len(self.positions))


class HubCounts(NamedTuple):
    """The number of a partition's hubs in a relation, and of their in-edges that are split."""

    number: int
    edges: int


class SplitEdges(NamedTuple):
    """The edges that stay with the owner of their targets, and the hubs with the others."""

    own: InEdges
    hubs: HubEdges


class OwnerTerms(NamedTuple):
    """The rows of hubs of one partition, ascending, and their terms that edges read."""

    rows: IntArray
    terms: TermArrays


class HubState(NamedTuple):
    """States of hubs from one partition, and the local row of each."""

    state: TermArrays
    rows: IntArray


def split_edges(edges: InEdges, rows: IntArray, *, index: int, job: InferJob, layer: int, relation: int) -> SplitEdges:
    """Split off the edges of hubs that come from other partitions. rows [T]: the targets' local rows."""
    hubs = none = np.zeros(0, np.int64)
    if job.hub_threshold is not None and job.neighbors.sampling.takes_every:
        hubs = rows[edges.offsets[rows + 1] - edges.offsets[rows] > job.hub_threshold]
    if not len(hubs) or not job.splits_hubs(job.need_layer(layer), relation):
        return SplitEdges(edges, HubEdges(len(hubs), edges, none, none, none))
    lengths, start = edges.lengths, job.neighbors.store.book.start(index)
    positions = ragged_ranges(edges.offsets[hubs], lengths[hubs])
    # whether each edge of a hub comes from elsewhere, and how many do of each hub [H]
    sources = edges.sources_of(positions)
    outside = (sources < start) | (sources >= start + job.neighbors.store.book.size(index))
    number = np.add.reduceat(outside, offsets_of(lengths[hubs])[:-1], dtype=np.int64)
    positions, sources = positions[outside], sources[outside]
    # the other edges, by target
    kept = np.ones(edges.num_edges, bool)
    kept[positions] = False
    lengths[hubs] -= number
    own = edges.take(np.flatnonzero(kept), offsets=offsets_of(lengths))
    return SplitEdges(own, HubEdges(len(hubs), edges, positions, sources, np.repeat(hubs, number)))


def send_edges(reads: LayerReads, *, layer: int) -> tuple[Emit, ...]:
    """Return the split edges on their way to the owners of their sources. layer: of the need round."""
    hubs, job, relation = reads.hubs, reads.job, reads.relation
    if hubs is None or not len(hubs.positions):
        return ()
    book, edges, positions = job.neighbors.store.book, hubs.edges, hubs.positions
    owner = book.owner(hubs.sources)
    # local rows at the owners of the sources
    columns = {"source": pa.array(hubs.sources - book.offsets[:: book.num_types][owner])}
    columns["target"] = pa.array(hubs.targets)
    if edges.weight is not None:
        columns["weight"] = pa.array(edges.weight[positions])
    if edges.attributes is not None and edges.attributes.shape[1]:
        columns["attributes"] = from_matrix(edges.attributes[positions])
    # the hubs whose terms this partition sends later
    rows = distinct(hubs.targets)
    named = Emit(job.channel("hub_rows", layer, relation), pa.table({"row": rows}), np.full(len(rows), reads.index))
    return Emit(job.channel("hub_edges", layer, relation), pa.table(columns), owner), named


def sources_here(inbox: Inbox, job: InferJob, layer: int, relation: int) -> IntArray:
    """Return the local rows that split edges of a layer's relation come from, ascending."""
    found = [to_numpy(edges["source"]) for edges in _edges_here(inbox, job, layer, relation)]
    return distinct(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _edges_here(inbox: Inbox, job: InferJob, layer: int, relation: int) -> Sequence[pa.Table]:
    """Return the edges that each owner of hubs sent here."""
    owners, channel = job.hub_owners(layer, relation), job.channel("hub_edges", job.need_layer(layer), relation)
    return list(inbox.pieces(channel, tasks=owners)) if owners else []


def send_targets(task: RelationTask, run: IntArray, terms_of: Callable[[IntArray], SliceTerms]) -> tuple[Emit, ...]:
    """Return terms of this partition's hubs on their way to all partitions, where edges read them.

    terms_of: gives the terms of rows of a run.
    """
    if not task.reads_targets or task.index not in task.job.hub_owners(task.layer, task.relation):
        return ()
    named = to_numpy(task.inbox.read(task.asked_channel("hub_rows"), tasks=(task.index,))["row"])
    rows, reads, parts = _among(named, run), task.plan.read, task.job.neighbors.store.num_partitions
    terms = terms_of(rows).target
    packed = reads.pack({name: terms[name] for name in reads.names})
    table = pa.table({"row": rows, "terms": from_matrix(packed)})
    every = np.tile(np.arange(len(rows)), parts)
    return (Emit(task.channel("hub_target"), table, np.repeat(np.arange(parts), len(rows)), picked=every),)


def keep_sources(task: RelationTask, named: IntArray, run: IntArray, packed: FloatArray) -> tuple[Emit, ...]:
    """Return source terms that stay here for `make_states`. named: the rows of `sources_here`.

    run: local rows, ascending, of which packed are the terms.
    """
    if not task.job.hub_owners(task.layer, task.relation):
        return ()
    places = np.searchsorted(run, _among(named, run))
    table = pa.table({"row": from_matrix(packed)})
    return (Emit(task.channel("hub_source"), table, np.full(len(places), task.index), picked=places),)


def _among(rows: IntArray, run: IntArray) -> IntArray:
    """Return the rows that lie in a run of rows, ascending."""
    return rows[(rows >= run[0]) & (rows <= run[-1])] if len(run) else rows[:0]


def make_states(index: int, inbox: Inbox, *, job: InferJob, layer: int) -> TaskOutput:
    """Make the states of hubs over the edges from a partition's rows, and send them to the hubs' owners."""
    with job.computing(index) as model:
        tasks = [RelationTask(index, inbox, job, model, layer, each) for each in job.hub_relations(layer)]
        return TaskOutput(emits=tuple(_states_of(task) for task in tasks))


def _states_of(task: RelationTask) -> Emit:
    plan, owners = task.plan, task.job.hub_owners(task.layer, task.relation)
    rows, source = _source_terms(task)
    states, targets, destination = [np.zeros((0, plan.state_layout.width), np.float32)], [], []
    for owner, edges in zip(owners, _edges_here(task.inbox, task.job, task.layer, task.relation), strict=True):
        if not edges.num_rows:
            continue
        block, led = _block_of(edges, rows, num_sources=len(source["value"]))
        state = partial_slice(
            task.model,
            task.layer - 1,
            own=_target_terms(task, owner, led),
            source=source,
            block=block,
            relation=task.relation,
        )
        states.append(plan.state_layout.pack(state))
        targets.append(led)
        destination.append(np.full(len(led), owner))
    none = np.zeros(0, np.int64)
    table = pa.table({"row": np.concatenate([none, *targets]), "state": from_matrix(np.concatenate(states))})
    return Emit(task.channel("hub_state"), table, np.concatenate([none, *destination]))


def _source_terms(task: RelationTask) -> OwnerTerms:
    """Return local rows that hold those that edges come from, ascending, and their source terms."""
    if not task.job.mapped:
        rows = sources_here(task.inbox, task.job, task.layer, task.relation)
        kept = task.inbox.read(task.channel("hub_source"), tasks=(task.index,))
        return OwnerTerms(rows, task.plan.source.unpack(to_matrix(kept["row"])))
    held = task.inbox.map(task.channel("source"), task.index, ("rows", *task.plan.source.names))
    return OwnerTerms(held.pop("rows"), held)


def _target_terms(task: RelationTask, owner: int, rows: IntArray) -> TermArrays:
    """Return the terms that edges read of an owner's hubs."""
    if not task.reads_targets:
        return {}
    sent = task.inbox.read(task.channel("hub_target"), tasks=(owner,))
    terms = task.plan.read.unpack(to_matrix(sent["terms"]))
    places = np.searchsorted(to_numpy(sent["row"]), rows)
    return {name: each[places] for name, each in terms.items()}


class _Led(NamedTuple):
    """A block of edges, and the row that each of its targets has at its owner."""

    block: Block
    rows: IntArray


def _block_of(edges: pa.Table, rows: IntArray, *, num_sources: int) -> _Led:
    """Return received edges as a block. rows: the local rows that the block's sources are, ascending."""
    targets, names = to_numpy(edges["target"]), edges.column_names
    first = np.flatnonzero(is_first(targets))
    columns = InEdges(
        offsets=np.append(first, len(targets)),
        sources=np.searchsorted(rows, to_numpy(edges["source"])),
        weight=to_numpy(edges["weight"]) if "weight" in names else None,
        attributes=to_matrix(edges["attributes"]) if "attributes" in names else None,
    )
    return _Led(Block(columns, num_sources), targets[first])


def states_here(at: TaskPlace, relation: int) -> list[HubState]:
    """Return the states of this partition's hubs, by ascending partition that made them."""
    if at.index not in at.job.hub_owners(at.layer, relation):
        return []
    layout = at.plans[relation].state_layout
    pieces = at.inbox.pieces(at.job.channel("hub_state", at.layer, relation))
    return [
        HubState(layout.unpack(to_matrix(piece["state"])), to_numpy(piece["row"])) for piece in pieces if piece.num_rows
    ]


def hub_channels(job: InferJob, layer: int, *names: str) -> tuple[str, ...]:
    """Return the channels of some names in which something of a layer's hubs travels."""
    return tuple(job.channel(name, layer, relation) for name in names for relation in job.hub_relations(layer))


def need_channels(job: InferJob, need_layer: int) -> tuple[str, ...]:
    """Return the channels in which a need round sends split edges and names hubs."""
    return hub_channels(job, need_layer, "hub_edges", "hub_rows")


def left_channels(job: InferJob, layer: int) -> tuple[str, ...]:
    """Return the channels of what a slice leaves for the round that makes states of hubs."""
    reading = [relation for relation in job.hub_relations(layer) if job.reads_targets(layer, relation)]
    kept = () if job.mapped else hub_channels(job, layer, "hub_source")
    return (*kept, *(job.channel("hub_target", layer, relation) for relation in reading))


def text_of(job: InferJob, counted: Sequence[HubCounts]) -> str:
    """Return a line on the hubs of all layers and relations; "" where there are none."""
    number, edges = sum(each.number for each in counted), sum(each.edges for each in counted)
    if not number:
        return ""
    hubs = f"hubs: {number:,} times a target reads more than {job.hub_threshold:,} in-edges"
    if not edges:
        return f"{hubs}; its partition adds them all up, since the states of parts of them do not merge"
    return f"{hubs}; {edges:,} of these are added up by the partitions of their sources"
