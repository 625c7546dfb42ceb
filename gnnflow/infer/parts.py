"""One layer of a partition from the rows of others, which `exchanged.py` fetches and `mapped.py` reads where they lie.

Where nothing is gained by parts a relation's in-edges are one block, as if all rows had been there from the start.
Where some partitions send states, or there are more rows than a task should hold, the state over the edges that are at
hand comes first and the others are merged to it: rows by ascending partition, then states by ascending partition,
whatever arrives first; last the states of hubs (`hubs.py`). Of one relation a target keeps its terms; of several its
input row, from which its own terms for every relation into its type are computed where it lives.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.executions.sliced import (
    Gathered,
    MergedStates,
    SliceTerms,
    gathered_runs,
    relations_slice,
    room_for,
)
from gnnflow.infer.arrival import Arrival, TaskPlace
from gnnflow.infer.exchanged import exchanged
from gnnflow.infer.hubs import states_here
from gnnflow.infer.mapped import MappedRows
from gnnflow.infer.states import plans_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.executions.plan import TermArrays
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.graph.batch import Block
    from gnnflow.infer.arrival import SourceRows
    from gnnflow.infer.hubs import HubState
    from gnnflow.infer.job import InferJob
    from gnnflow.infer.reads import LayerReads
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox


class LayerOutputs(NamedTuple):
    """A layer's output of local rows [T], run by run, and the outputs carried from earlier layers, by layer."""

    runs: Iterator[FloatArray]
    carried: dict[int, FloatArray]


def compute_layer(
    index: int, inbox: Inbox, job: InferJob, model: Model, *, layer: int, rows: IntArray, runs: Sequence[slice]
) -> LayerOutputs:
    """Compute layer `layer` of local rows [T]."""
    plans, order = plans_of(index, inbox, job, layer), model.relations(layer - 1).order
    arrivals = [Arrival.of(index, plan, relation=number) for number, plan in enumerate(plans)]
    at = TaskPlace(index, inbox, job, model, layer)
    opened = nullcontext(MappedRows(at)) if job.mapped else exchanged(at, [arrivals[each] for each in order])
    with opened as source:
        reads = source.reads(rows)
        # the first relation's block is made while what was kept is fetched
        begun = {} if job.mapped else {order[0]: arrivals[order[0]].first(reads[order[0]])}
        own = source.own()

        def gather(relation: int, kept: SliceTerms, room: int = 0) -> Gathered:
            arrival, of = arrivals[relation], reads[relation]
            of_hubs = states_here(at, relation)
            if arrival.by_pieces and (state := source.joined(arrival, of, kept.target)) is not None:
                return _with_hubs(at, arrival, of, state=state, kept=kept, of_hubs=of_hubs)
            if arrival.is_whole and not of_hubs:
                return source.whole(arrival, of, kept.source, room=room)
            first = begun.pop(relation) if relation in begun else arrival.first(of)
            return _gathered(at, source, arrival, of, first=first, kept=kept, of_hubs=of_hubs)

        if own.terms is not None:
            gathered = gather(0, own.terms, room_for(runs))
            computed = gathered_runs(model, layer - 1, own=own.terms.target, gathered=gathered, runs=runs)
            return LayerOutputs(computed, own.carried)
        assert own.h is not None, "targets of several relations keep their input rows"
        nodes = job.neighbors.store.degrees(index).take(rows)
        h = relations_slice(model, layer - 1, h=own.h, nodes=nodes, gather=gather)
        return LayerOutputs((h[run] for run in runs), own.carried)


def _gathered(
    at: TaskPlace,
    source: SourceRows,
    arrival: Arrival,
    reads: LayerReads,
    *,
    first: Block,
    kept: SliceTerms,
    of_hubs: Sequence[HubState],
) -> Gathered:
    """Return a relation's in-edges of which several parts are merged. kept: the T targets' own terms.

    first: see `Arrival.first`. of_hubs: what other partitions added up of hubs.
    """
    merged = MergedStates(
        at.model, at.layer - 1, arrival.relation, own=kept.target, sample_scale=reads.in_place.sample_scale
    )
    merged.add_block(source.at_once(arrival, reads, kept.source), first)
    for terms, block, targets in source.parts(arrival, reads, every=merged.adds):
        if merged.adds:
            merged.add_edges(terms, block)
        else:
            merged.add_block(terms, block, targets)
    for owner, state in zip(arrival.by_states.tolist(), source.states(arrival, reads, kept.target), strict=True):
        merged.add_state(state, reads.targets_of(owner))
    return _with_hubs(at, arrival, reads, state=merged.state, kept=kept, of_hubs=of_hubs)


def _with_hubs(
    at: TaskPlace,
    arrival: Arrival,
    reads: LayerReads,
    *,
    state: TermArrays,
    kept: SliceTerms,
    of_hubs: Sequence[HubState],
) -> Gathered:
    """Return the T targets' in-edges. state: over all parts but what other partitions added up of hubs."""
    if of_hubs:
        scale = reads.in_place.sample_scale
        merged = MergedStates(
            at.model, at.layer - 1, arrival.relation, own=kept.target, sample_scale=scale, state=state
        )
        for added, rows in of_hubs:
            merged.add_state(added, np.searchsorted(reads.rows, rows))
        state = merged.state
    return Gathered(kept.source, states=[state], columns=at.job.edge_columns)
