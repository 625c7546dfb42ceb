"""Partial states instead of rows: which partition needs them of which edges.

A need round counts what each pair of partitions would send and chooses (`choice.py`). Where states are chosen, the
partition of the targets sends the edges once, in the form below; the owner of the sources then sends a state per target
with each layer that takes states, in the order in which the edges name their targets (`relation_task.py`).

Edges of a pair, by target: `source`, which of the rows asked for; `first`, whether it is the first edge of the next
target; and the columns that edges have: weight, attributes, scale (of a weighted sample). Targets have no numbers. All
of this is said of one relation; a typed graph chooses and sends relation by relation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.executions.plan import plan_layers
from gnnflow.graph.run_facts import Sent
from gnnflow.infer.choice import LayerBytes, PairCounts, choose, needs_counts, takes_pieces
from gnnflow.infer.row_form import number_bytes
from gnnflow.mapreduce.exchange import Emit
from gnnflow.storage.columns import from_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import RowKind
    from gnnflow.executions.plan import EdgeColumns, RelationPlan
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.infer.choice import Choice
    from gnnflow.infer.job import InferJob
    from gnnflow.infer.reads import LayerReads
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox

_FLOAT_BYTES = 4
_EDGE_BYTES = 4.125
"""A source as int32, and one bit."""


@dataclass(frozen=True)
class Plan:
    """Plan of how one layer's rows come to a partition in a relation.

    num_asked and as_states [P]; by_pieces: see `takes_pieces`.
    """

    num_asked: IntArray
    as_states: Array
    by_pieces: bool


def layer_bytes(
    model: Model, *, leaves: Sequence[int], columns: EdgeColumns, rows: RowKind = "float32"
) -> tuple[tuple[LayerBytes, ...], ...]:
    """Return each layer's bytes per source and per target in each relation. leaves: of the edges of each relation.

    Rows alone are sent, and taken all at once, where edges have leaves: an edge is then whole at its target's owner,
    and whoever owns one of its leaves has no part of it to add up.
    """

    def of(plan: RelationPlan, leaves: int) -> LayerBytes:
        row = number_bytes(rows) * plan.source.width
        if leaves != 1 or not plan.merges:
            return LayerBytes(row, None, merges=False)
        state, read = (_FLOAT_BYTES * layout.width for layout in (plan.state_layout, plan.read))
        return LayerBytes(row, state, merges=True, read=read, joins=plan.layer.levels.instance.joins)

    return tuple(tuple(map(of, layer.relations, leaves)) for layer in plan_layers(model, columns))


def edge_bytes(job: InferJob) -> float:
    """Return the bytes of an edge that is sent, by its columns."""
    facts = job.neighbors.store.facts
    columns = int(facts.has_weight) + facts.attribute_width + int(job.neighbors.sampling.kind == "weighted")
    return _EDGE_BYTES + _FLOAT_BYTES * columns


def choose_for(job: InferJob, need_layer: int, relation: int, counts: PairCounts) -> Choice:
    """Return the choice in a relation for the layers that a need round serves."""
    return choose(
        counts,
        job.layers_served(need_layer, relation),
        edge_bytes=edge_bytes(job),
        sending=job.exchange.sending,
        num_partitions=job.neighbors.store.num_partitions,
    )


def ask_for_states(
    reads: Sequence[LayerReads], counts: Sequence[PairCounts], job: InferJob, layer: int
) -> tuple[tuple[Emit, ...], list[dict[str, int]]]:
    """Choose rows or states of each partition, relation by relation.

    Return what tells them and this one, and what to count of each relation. layer: of the need round.
    """
    # counts of all relations, one relation after the other [R P]
    known = {name: np.concatenate([getattr(each, name) for each in counts]) for name in ("sources", "targets", "edges")}
    emits = [Emit(f"counts_{layer}", pa.table(known), np.full(len(known["sources"]), reads[0].index))]
    counted = []
    for of, found in zip(reads, counts, strict=True):
        choice = choose_for(job, layer, of.relation, found)
        # partitions that send states in some layer
        owners = np.flatnonzero(choice.as_states.any(0))
        if len(owners) and not job.mapped:
            emits += _edges_to(of, owners, job, layer)
        senders = found.sources > 0
        senders[of.index] = False
        counted.append(
            {
                "sends": int(senders.sum()) * len(choice.as_states),
                "as_states": int(choice.as_states.sum()),
                "row_bytes": int(choice.row_bytes[:, senders].sum()),
                "saved_bytes": choice.saved,
            }
        )
    return tuple(emits), counted


def counts_of(reads: LayerReads, job: InferJob, layer: int) -> PairCounts:
    """Return the counts that plans of the layers follow that a need round serves."""
    differs = needs_counts(reads.num_asked, job.layers_served(layer, reads.relation), job.exchange)
    return reads.counts if differs else PairCounts.of_rows(reads.num_asked)


def _edges_to(reads: LayerReads, owners: IntArray, job: InferJob, layer: int) -> list[Emit]:
    """Return the edges from the rows of some partitions, on their way there.

    Where edges read terms of their targets, also what tells this partition later which targets' terms to send there.
    """
    # of each owner the places of its edges among the block's [E], and which of them is a target's first [E]
    groups = [reads.by_owner.of(owner) for owner in owners]
    positions = np.concatenate([each for each, _ in groups])
    destination = np.repeat(owners, [len(each) for each, _ in groups])
    block, columns = reads.whole, dict[str, pa.Array]()
    # the place of each edge's source among the rows asked of its owner, then the columns that edges have
    columns["source"] = pa.array(reads.numbers_asked(positions, destination).astype(np.int32))
    columns["first"] = pa.array(np.concatenate([first for _, first in groups]))
    if block.edges.weight is not None:
        columns["weight"] = pa.array(block.edges.weight[positions])
    if block.edges.attributes is not None and block.edges.attributes.shape[1]:
        columns["attributes"] = from_matrix(block.edges.attributes[positions])
    if block.edge_scale is not None:
        columns["scale"] = pa.array(block.edge_scale[positions])
    emits = [Emit(job.channel("edges", layer, reads.relation), pa.table(columns), destination)]
    if any(each.read for each in job.layers_served(layer, reads.relation)):
        # row of each target that edges lead to, and the owner of the edges' sources
        first = to_numpy(columns["first"])
        wanted = pa.table({"row": reads.rows[reads.targets[positions[first]]], "owner": destination[first]})
        emits.append(Emit(job.channel("targets", layer, reads.relation), wanted, np.full(len(wanted), reads.index)))
    return emits


def plans_of(index: int, inbox: Inbox, job: InferJob, layer: int) -> list[Plan]:
    """Return how a layer's rows come to this partition in each relation."""
    need, num_relations = job.need_layer(layer), job.neighbors.store.schema.num_relations
    known = inbox.read(f"counts_{need}", tasks=(index,))
    # one row per relation, one column per partition [R, P]
    table = [to_numpy(known[name]).reshape(num_relations, -1) for name in ("sources", "targets", "edges")]
    plans = []
    for relation, counts in enumerate(PairCounts(*each) for each in zip(*table, strict=True)):
        plans.append(plan_of(index, job, layer, relation, counts))
    return plans


def plan_of(index: int, job: InferJob, layer: int, relation: int, counts: PairCounts) -> Plan:
    """Return how a layer's rows come to a partition in a relation."""
    need, overlap = job.need_layer(layer), job.exchange.overlap
    as_states = choose_for(job, need, relation, counts).as_states[job.served(need).index(layer)]
    sends = job.exchange.layers[layer - 1][relation]
    by_pieces = takes_pieces(counts, sends, as_states=as_states, own=index, overlap=overlap)
    return Plan(counts.sources, as_states, by_pieces)


def sent_by(counted: Sequence[dict[str, int]]) -> Sent:
    """Return the counts and choices of the tasks of need rounds."""
    return Sent(
        **{name: sum(each[name] for each in counted) for name in ("sends", "as_states", "row_bytes", "saved_bytes")}
    )
