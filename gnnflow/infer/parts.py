"""One layer of a partition from what other partitions sent, fetched while the task reads and orders its edges.

Where nothing is gained by parts a relation's in-edges are one block, as if all rows had been there from the start.
Where some partitions send states, or there are more rows than a task should hold, the state over the edges that are at
hand comes first and the others are merged to it, each while the next is fetched: rows by ascending partition, then
states by ascending partition, whatever arrives first. Of one relation a target keeps its terms; of several its input
row, from which its own terms for every relation into its type are computed where it lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.executions.plan import plan_layer
from gnnflow.executions.sliced import (
    Gathered,
    MergedStates,
    SliceTerms,
    gathered_runs,
    kept_layout,
    relations_slice,
    room_for,
)
from gnnflow.infer.reads import layer_reads
from gnnflow.infer.sending import carried_layers
from gnnflow.infer.states import plans_of
from gnnflow.mapreduce.exchange import fetching
from gnnflow.storage.columns import to_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from gnnflow.executions.plan import EdgeColumns
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.graph.batch import Block
    from gnnflow.infer.job import InferJob
    from gnnflow.infer.reads import LayerReads
    from gnnflow.infer.states import Plan
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox

_PIECES_AHEAD = 2
"""How many pieces are fetched, or wait fetched, while one is merged: memory holds no more of them."""


class LayerOutputs(NamedTuple):
    """A layer's output of local rows [T], run by run, and the outputs carried from earlier layers, by layer."""

    runs: Iterator[FloatArray]
    carried: dict[int, FloatArray]


def compute_layer(
    index: int, inbox: Inbox, job: InferJob, model: Model, *, layer: int, rows: IntArray, runs: Sequence[slice]
) -> LayerOutputs:
    """Compute layer `layer` of local rows [T]."""
    plans, order = plans_of(index, inbox, job, layer), model.relations(layer - 1).order
    arrivals = [Arrival.of(index, job, plan, layer=layer, relation=number) for number, plan in enumerate(plans)]
    wanted = [(f"own_{layer}", index), *(piece for relation in order for piece in arrivals[relation].wanted)]
    with fetching(inbox, wanted, ahead=pieces_ahead(job, plans, wanted)) as pieces:
        reads = layer_reads(index, job, layer=layer, rows=rows)
        begun = {order[0]: arrivals[order[0]].first(reads[order[0]])}  # while what was kept is fetched
        own = next(pieces)
        carried = {number: to_matrix(own[f"output_{number}"]) for number in carried_layers(model, layer, job)}

        def gather(relation: int, kept: SliceTerms, room: int = 0) -> Gathered:
            arrival, of = arrivals[relation], reads[relation]
            first = begun.pop(relation) if relation in begun else arrival.first(of)
            return arrival.gathered(pieces, of, first, model, kept=kept, room=room)

        if job.keeps_terms:
            kept = _kept(own, model, layer, job.edge_columns)
            gathered = gather(0, kept, room_for(runs))
            computed = gathered_runs(model, layer - 1, own=kept.target, gathered=gathered, runs=runs)
            return LayerOutputs(computed, carried)
        nodes = job.neighbors.store.degrees(index).take(rows)
        h = relations_slice(model, layer - 1, h=to_matrix(own["h"]), nodes=nodes, gather=gather)
        return LayerOutputs((h[run] for run in runs), carried)


@dataclass(frozen=True)
class Arrival:
    """Receives rows and states of a relation at a partition for a layer.

    at_once [P]: whose rows the first part reads. by_rows and by_states: whose rows, then whose states are merged to it.
    """

    job: InferJob
    layer: int
    relation: int
    at_once: Array
    by_rows: IntArray
    by_states: IntArray
    by_pieces: bool

    @classmethod
    def of(cls, index: int, job: InferJob, plan: Plan, *, layer: int, relation: int) -> Arrival:
        """Return the arrival that carries out a partition's plan."""
        sends = plan.num_asked > 0
        # all that come as rows, or this partition's own alone
        at_once = sends & ~plan.as_states & (np.arange(len(sends)) == index if plan.by_pieces else True)
        by_rows = np.flatnonzero(sends & ~at_once & ~plan.as_states)
        return cls(job, layer, relation, at_once, by_rows, np.flatnonzero(plan.as_states), plan.by_pieces)

    @property
    def wanted(self) -> list[tuple[str, int]]:
        """The pieces to fetch, in the order in which `gathered` takes them."""
        rows, states = (self.job.channel(what, self.layer, self.relation) for what in ("source", "state"))
        found = [(rows, task) for each in (np.flatnonzero(self.at_once), self.by_rows) for task in each.tolist()]
        return found + [(states, task) for task in self.by_states.tolist()]

    def first(self, reads: LayerReads) -> Block:
        """Return the block that is computed on first: of all edges, where nothing is merged to it."""
        return reads.of_owners(self.at_once) if self.by_pieces or len(self.by_states) else reads.whole

    def gathered(
        self,
        pieces: Iterator[pa.Table],
        reads: LayerReads,
        first: Block,
        model: Model,
        *,
        kept: SliceTerms,
        room: int = 0,
    ) -> Gathered:
        """Return the relation's in-edges, as received. kept: the T targets' own terms; first: see `first`.

        room: see `Gathered`, which has it where all is one block.
        """
        columns = self.job.edge_columns
        plan = plan_layer(model, self.layer - 1, columns).relations[self.relation]
        layout = plan.source
        source = layout.unpack(self._packed(pieces, reads, layout.pack(kept.source), room=room))
        if first is reads.whole:
            return Gathered(source, first, room=room)
        where = (model, self.layer - 1, self.relation)
        merged = MergedStates(*where, own=kept.target, sample_scale=reads.whole.sample_scale)
        merged.add_block({name: each[room:] for name, each in source.items()}, first)
        for owner in self.by_rows.tolist():
            block, targets = reads.of_owner(owner)
            merged.add_block(layout.unpack(to_matrix(next(pieces)["row"])), block, targets)
        for owner in self.by_states.tolist():
            merged.add_state(plan.state_layout.unpack(to_matrix(next(pieces)["state"])), reads.targets_of(owner))
        return Gathered(kept.source, states=[merged.state], columns=columns)

    def _packed(self, pieces: Iterator[pa.Table], reads: LayerReads, own: FloatArray, *, room: int) -> FloatArray:
        """Return source terms side by side [room + T + n, W]: of the T targets, then of the rows that come first.

        Each piece is copied to its place while the next is fetched.
        """
        # where the first piece's rows begin, behind the room and the targets' own rows
        begin = room + len(own)
        packed = np.empty((begin + int(reads.num_asked[self.at_once].sum()), own.shape[1]), np.float32)
        packed[room:begin] = own
        for _ in range(int(self.at_once.sum())):
            for chunk in next(pieces)["row"].chunks:
                packed[begin : begin + len(chunk)] = to_matrix(chunk)
                begin += len(chunk)
        assert begin == len(packed), "as many rows come as were asked for"
        return packed


def pieces_ahead(job: InferJob, plans: Sequence[Plan], wanted: Sequence[object]) -> int:
    """Return how many of the wanted pieces to fetch ahead."""
    return _PIECES_AHEAD if any(plan.by_pieces for plan in plans) else job.exchange.ahead(len(wanted))


def _kept(own: pa.Table, model: Model, layer: int, columns: EdgeColumns) -> SliceTerms:
    """Return the terms that were kept of T targets."""
    (plan,), layout = plan_layer(model, layer - 1, columns).relations, kept_layout(model, layer - 1)
    # A layer without target terms keeps none: Arrow has no column of width zero.
    target = layout.unpack(to_matrix(own["target"])) if layout.names else {}
    return SliceTerms(plan.source.unpack(to_matrix(own["source"])), target)
