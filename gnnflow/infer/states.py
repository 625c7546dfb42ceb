"""Partial states instead of rows: which partition needs them of which edges, and who computes and sends them.

A need round counts what each pair of partitions would send and chooses (`choice.py`). Where states are chosen, the
partition of the targets sends the edges once, in the form below; the owner of the sources then sends a state per target
with each layer that takes states, in the order in which the edges name their targets.

Edges of a pair, by target: `source`, which of the rows asked for; `first`, whether it is the first edge of the next
target; and the columns that edges have: weight, attributes, scale (of a weighted sample). Targets have no numbers. All
of this is said of one relation; a typed graph chooses and sends relation by relation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.executions.sliced import partial_slice, source_layout
from gnnflow.executions.sliced_states import sent_state
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.graph.facts import Sent
from gnnflow.infer.choice import LayerBytes, PairCounts, choose, may_differ, takes_pieces
from gnnflow.mapreduce.exchange import Emit
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.infer.choice import Choice
    from gnnflow.infer.job import InferJob
    from gnnflow.infer.need import Sends
    from gnnflow.infer.reads import LayerReads
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox

_FLOAT_BYTES = 4
_EDGE_BYTES = 4.125
"""A source as int32, and one bit."""


@dataclass(frozen=True)
class Plan:
    """How one layer's rows come to a partition in a relation.

    num_asked and as_states [P]; by_pieces: see `takes_pieces`.
    """

    num_asked: IntArray
    as_states: Array
    by_pieces: bool


def layer_bytes(
    model: Model, *, leaves: Sequence[int], attribute_width: int, has_weight: bool
) -> tuple[tuple[LayerBytes, ...], ...]:
    """Return what each layer sends per source and per target in each relation. leaves: of the edges of each relation.

    Rows alone are sent, and taken all at once, where edges have leaves: an edge is then whole at its target's owner,
    and whoever owns one of its leaves has no part of it to add up.
    """

    def of(index: int, relation: int) -> LayerBytes:
        row = _FLOAT_BYTES * source_layout(model, index, relation).width
        if leaves[relation] != 1:
            return LayerBytes(row, None, merges=False)
        layout = sent_state(model, index, relation, attribute_width=attribute_width, has_weight=has_weight)
        merges = model.layers_at(index)[relation].levels.instance.mergeable
        return LayerBytes(row, None if layout is None else _FLOAT_BYTES * layout.width, merges=merges)

    return tuple(tuple(of(index, relation) for relation in range(len(leaves))) for index in range(model.num_layers))


def edge_bytes(job: InferJob) -> float:
    """Return the bytes of an edge that is sent, by its columns."""
    facts = job.neighbors.store.facts
    columns = int(facts.has_weight) + facts.attribute_width + int(job.neighbors.sampling == "weighted")
    return _EDGE_BYTES + _FLOAT_BYTES * columns


def choose_for(job: InferJob, need_layer: int, relation: int, counts: PairCounts) -> Choice:
    """Return the choice in a relation for the layers that a need round serves."""
    return choose(
        counts, job.layers_served(need_layer, relation), edge_bytes=edge_bytes(job), sending=job.exchange.sending
    )


def ask_for_states(
    reads: Sequence[LayerReads], job: InferJob, layer: int
) -> tuple[tuple[Emit, ...], list[dict[str, int]]]:
    """Choose rows or states of each partition, relation by relation.

    Return what tells them and this one, and what to count of each relation. layer: of the need round.
    """
    counts = [_counts(each, job, layer) for each in reads]
    known = {name: np.concatenate([getattr(each, name) for each in counts]) for name in ("sources", "targets", "edges")}
    emits = [Emit(f"counts_{layer}", pa.table(known), np.full(len(known["sources"]), reads[0].index))]
    counted = []
    for of, found in zip(reads, counts, strict=True):
        choice = choose_for(job, layer, of.relation, found)
        owners = np.flatnonzero(choice.as_states.any(0))
        if len(owners):
            emits.append(_edges_to(of, owners, channel=job.channel("edges", layer, of.relation)))
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


def _counts(reads: LayerReads, job: InferJob, layer: int) -> PairCounts:
    differs = may_differ(reads.num_asked, job.layers_served(layer, reads.relation), job.exchange)
    return reads.counts if differs else PairCounts.of_rows(reads.num_asked)


def _edges_to(reads: LayerReads, owners: IntArray, *, channel: str) -> Emit:
    """Return the edges from the rows of some partitions, on their way there."""
    groups = [reads.by_owner.of(owner) for owner in owners]
    positions = np.concatenate([each for each, _ in groups])
    destination = np.repeat(owners, [len(each) for each, _ in groups])
    block, columns = reads.whole, dict[str, pa.Array]()
    columns["source"] = pa.array(reads.numbers_asked(positions, destination).astype(np.int32))
    columns["first"] = pa.array(np.concatenate([first for _, first in groups]))
    if block.edges.weight is not None:
        columns["weight"] = pa.array(block.edges.weight[positions])
    if block.edges.attributes is not None and block.edges.attributes.shape[1]:
        columns["attributes"] = from_matrix(block.edges.attributes[positions])
    if block.edge_scale is not None:
        columns["scale"] = pa.array(block.edge_scale[positions])
    return Emit(channel, pa.table(columns), destination)


def plans_of(index: int, inbox: Inbox, job: InferJob, layer: int) -> list[Plan]:
    """Return how a layer's rows come to this partition in each relation."""
    need, num_relations = job.need_layer(layer), job.neighbors.store.schema.num_relations
    known = inbox.read(f"counts_{need}", tasks=(index,))
    # one row per relation, one column per partition [R, P]
    table = [to_numpy(known[name]).reshape(num_relations, -1) for name in ("sources", "targets", "edges")]
    plans = []
    for relation, counts in enumerate(PairCounts(*each) for each in zip(*table, strict=True)):
        as_states = choose_for(job, need, relation, counts).as_states[job.served(need).index(layer)]
        sends, overlap = job.exchange.layers[layer - 1][relation], job.exchange.overlap
        by_pieces = takes_pieces(counts, sends, as_states=as_states, own=index, overlap=overlap)
        plans.append(Plan(counts.sources, as_states, by_pieces))
    return plans


def send_sources(
    inbox: Inbox,
    job: InferJob,
    model: Model,
    *,
    layer: int,
    relation: int,
    packed: FloatArray,
    rows: IntArray,
    sends: Sends,
) -> tuple[Emit, ...]:
    """Return layer `layer`'s source terms in a relation, and states over them, on their way to who asked for them.

    packed: terms of the N local rows `rows`, which hold all that were asked for. sends: these, partition by partition.
    """
    need, layout = job.need_layer(layer), sent_state(model, layer - 1, relation, **job.edge_columns)
    as_states = np.zeros(job.neighbors.store.num_partitions, bool)
    source = source_layout(model, layer - 1, relation).unpack(packed)
    states, destination = [], []
    for asker in job.exchange.askers.get(need, {}).get(relation, ()):
        (edges,) = inbox.pieces(job.channel("edges", need, relation), tasks=(asker,))
        asked = sends.rows[sends.destination == asker]
        first = to_numpy(edges["first"])
        one = PairCounts(*(np.array([number]) for number in (len(asked), int(first.sum()), len(first))))
        if not choose_for(job, need, relation, one).as_states[job.served(need).index(layer), 0]:
            continue
        assert layout is not None, "states were chosen in a layer that has none"
        as_states[asker] = True
        block = _block_of(edges, sources=np.searchsorted(rows, asked), num_sources=len(rows))
        state = partial_slice(model, layer - 1, own={}, source=source, block=block, relation=relation)
        states.append(layout.pack(state))
        destination.append(np.full(block.num_targets, asker))
    by_rows = ~as_states[sends.destination]
    # the rows asked for, partition by partition; each is copied for one partition at a time
    picked = np.searchsorted(rows, sends.rows[by_rows])
    table = pa.table({"row": from_matrix(packed)})
    sent = Emit(job.channel("source", layer, relation), table, sends.destination[by_rows], picked=picked)
    if not states:
        return (sent,)
    table = pa.table({"state": from_matrix(np.concatenate(states))})
    return sent, Emit(job.channel("state", layer, relation), table, np.concatenate(destination))


def _block_of(edges: pa.Table, *, sources: IntArray, num_sources: int) -> Block:
    """Return received edges as a block. sources: the row of each source that was asked for."""
    first, names = to_numpy(edges["first"]), edges.column_names
    columns = InEdges(
        offsets=np.append(np.flatnonzero(first), len(first)),
        sources=sources[to_numpy(edges["source"])],
        weight=to_numpy(edges["weight"]) if "weight" in names else None,
        attributes=to_matrix(edges["attributes"]) if "attributes" in names else None,
    )
    return Block(columns, num_sources, edge_scale=to_numpy(edges["scale"]) if "scale" in names else None)


def sent_by(counted: Sequence[dict[str, int]]) -> Sent:
    """Return what the tasks of need rounds counted and chose."""
    return Sent(
        **{name: sum(each[name] for each in counted) for name in ("sends", "as_states", "row_bytes", "saved_bytes")}
    )
