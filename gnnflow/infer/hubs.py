"""Hubs: targets with more in-edges than one task should read, whose edges are added up where their sources lie.

AGL re-indexes hubs in training and in inference (VLDB 2020, section 3.4). Here the owners of the sources share the
work, since their rows are at hand: no row is sent for a hub's edges.

    need_l       a hub's owner keeps the edges from its own rows, and sends the others to the owners of their sources
    slice_{l-1}  leaves the source terms where they are, and sends the terms of hubs that edges read
    hubs_l       each partition makes the states of hubs over the edges from its rows, and sends them to their owners
    slice_l      merges them behind all other parts, by ascending partition

The round is the same where rows are sent and where they are mapped, so both give the same bits. Edges are split where
every in-edge is read (a sample has a bound), and where the states of the layer's aggregation merge.

Shapes: T targets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.executions.sliced import partial_slice
from gnnflow.graph.arrays import is_first
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.infer import hub_edges
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
    from gnnflow.mapreduce.exchange import Inbox


class OwnerTerms(NamedTuple):
    """The rows of hubs of one partition, ascending, and their terms that edges read."""

    rows: IntArray
    terms: TermArrays


class HubState(NamedTuple):
    """States of hubs from one partition, and the local row of each."""

    state: TermArrays
    rows: IntArray


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
    for owner, edges in zip(owners, hub_edges.edges_here(task.inbox, task.job, task.layer, task.relation), strict=True):
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
        rows = hub_edges.sources_here(task.inbox, task.job, task.layer, task.relation)
        kept = task.inbox.read(task.channel("hub_source"), tasks=(task.index,))
        return OwnerTerms(rows, task.plan.source.unpack(to_matrix(kept["row"])))
    # a run of the arrays of all nodes: every row of this partition, whoever reads it
    book = task.job.neighbors.store.book
    start, size = book.start(task.index), book.size(task.index)
    held = task.inbox.map(task.channel("source"), None, task.plan.source.names)
    return OwnerTerms(np.arange(size), {name: each[start : start + size] for name, each in held.items()})


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


def left_channels(job: InferJob, layer: int) -> tuple[str, ...]:
    """Return the channels of what a slice leaves for the round that makes states of hubs."""
    reading = [relation for relation in job.hub_relations(layer) if job.reads_targets(layer, relation)]
    kept = () if job.mapped else hub_edges.hub_channels(job, layer, "hub_source")
    return (*kept, *(job.channel("hub_target", layer, relation) for relation in reading))


def text_of(job: InferJob, counted: Sequence[hub_edges.HubCounts]) -> str:
    """Return a line on the hubs of all layers and relations; "" where there are none."""
    number, edges = sum(each.number for each in counted), sum(each.edges for each in counted)
    if not number:
        return ""
    hubs = f"hubs: {number:,} times a target reads more than {job.hub_threshold:,} in-edges"
    if not edges:
        return f"{hubs}; its partition adds them all up, since the states of parts of them do not merge"
    return f"{hubs}; {edges:,} of these are added up by the partitions of their sources"
