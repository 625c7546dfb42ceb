"""Partial states instead of rows: which partition needs them of which edges, and who computes and sends them.

A need round counts what each pair of partitions would send and chooses (`choice.py`). Where states are chosen, the
partition of the targets sends the edges once, in the form below; the owner of the sources then sends a state per target
with each layer that takes states, in the order in which the edges name their targets.

Edges of a pair, by target: `source`, which of the rows asked for; `first`, whether it is the first edge of the next
target; and the columns that edges have: weight, attributes, scale (of a weighted sample). Targets have no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.executions.sliced import partial_slice, term_layouts
from gnnflow.executions.sliced_states import sent_state
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.graph.facts import Sent
from gnnflow.infer.choice import LayerBytes, PairCounts, choose, may_differ, takes_pieces
from gnnflow.mapreduce.exchange import Emit
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.executions.sliced import SliceTerms
    from gnnflow.graph.arrays import Array, IntArray
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
    """How one layer's rows come to a partition. num_asked and as_states [P]; by_pieces: see `takes_pieces`."""

    num_asked: IntArray
    as_states: Array
    by_pieces: bool


def layer_bytes(model: Model, *, leaves: int, attribute_width: int, has_weight: bool) -> tuple[LayerBytes, ...]:
    """Return what each layer sends per source and per target; nothing of a model of a typed graph, which sends rows.

    Rows alone are sent, and taken all at once, where edges have leaves: an edge is then whole at its target's owner,
    and whoever owns one of its leaves has no part of it to add up.
    """
    if model.is_typed:
        return ()
    found = []
    for index in range(len(model.layers)):
        layout = sent_state(model, index, attribute_width=attribute_width, has_weight=has_weight)
        row = _FLOAT_BYTES * term_layouts(model, index).source.width
        state = None if layout is None else _FLOAT_BYTES * layout.width
        merges = model.layer(index).levels.instance.mergeable
        found.append(LayerBytes(row, state, merges=merges) if leaves == 1 else LayerBytes(row, None, merges=False))
    return tuple(found)


def edge_bytes(job: InferJob) -> float:
    """Return the bytes of an edge that is sent, by its columns."""
    facts = job.neighbors.store.facts
    columns = int(facts.has_weight) + facts.attribute_width + int(job.neighbors.sampling == "weighted")
    return _EDGE_BYTES + _FLOAT_BYTES * columns


def choose_for(job: InferJob, need_layer: int, counts: PairCounts) -> Choice:
    """Return the choice for the layers that a need round serves."""
    layers = [job.exchange.layers[layer - 1] for layer in job.served(need_layer)]
    return choose(counts, layers, edge_bytes=edge_bytes(job), sending=job.exchange.sending)


def ask_for_states(reads: LayerReads, job: InferJob, layer: int) -> tuple[tuple[Emit, ...], dict[str, int]]:
    """Choose rows or states of each partition; return what tells them and this one, and what to count of it.

    layer: of the need round.
    """
    sent = [job.exchange.layers[each - 1] for each in job.served(layer)]
    counts = reads.counts if may_differ(reads.num_asked, sent, job.exchange) else PairCounts.of_rows(reads.num_asked)
    choice = choose_for(job, layer, counts)
    known = pa.table({"sources": counts.sources, "targets": counts.targets, "edges": counts.edges})
    emits = [Emit(f"counts_{layer}", known, np.full(len(counts.sources), reads.index))]
    owners = np.flatnonzero(choice.as_states.any(0))
    if len(owners):
        emits.append(_edges_to(reads, owners, layer=layer))
    senders = counts.sources > 0
    senders[reads.index] = False
    return tuple(emits), {
        "sends": int(senders.sum()) * len(choice.as_states),
        "sends_of_states": int(choice.as_states.sum()),
        "row_bytes": int(choice.row_bytes[:, senders].sum()),
        "saved_bytes": choice.saved,
    }


def _edges_to(reads: LayerReads, owners: IntArray, *, layer: int) -> Emit:
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
    return Emit(f"edges_{layer}", pa.table(columns), destination)


def plan_of(index: int, inbox: Inbox, job: InferJob, layer: int) -> Plan:
    """Return how a layer's rows come to this partition."""
    need = job.need_layer(layer)
    known = inbox.read(f"counts_{need}", tasks=(index,))
    counts = PairCounts(*(to_numpy(known[name]) for name in ("sources", "targets", "edges")))
    as_states = choose_for(job, need, counts).as_states[job.served(need).index(layer)]
    sends, overlap = job.exchange.layers[layer - 1], job.exchange.overlap
    by_pieces = takes_pieces(counts, sends, as_states=as_states, own=index, overlap=overlap)
    return Plan(counts.sources, as_states, by_pieces)


def send_states(
    inbox: Inbox, job: InferJob, model: Model, *, layer: int, terms: SliceTerms, rows: IntArray, sends: Sends
) -> tuple[tuple[Emit, ...], Array]:
    """Compute and send layer `layer`'s states to the partitions that take them, and say which these are [P].

    terms: of the N local rows. sends: the rows that each partition asked for.
    """
    need, as_states = job.need_layer(layer), np.zeros(job.neighbors.store.num_partitions, bool)
    layout = sent_state(model, layer - 1, **job.edge_columns)
    packed, destination = [], []
    if layout is None or need not in job.exchange.askers:
        return (), as_states
    for asker in job.exchange.askers[need]:
        (edges,) = inbox.pieces(f"edges_{need}", tasks=(asker,))
        asked = sends.rows[sends.destination == asker]
        first = to_numpy(edges["first"])
        one = PairCounts(*(np.array([number]) for number in (len(asked), int(first.sum()), len(first))))
        if not choose_for(job, need, one).as_states[job.served(need).index(layer), 0]:
            continue
        as_states[asker] = True
        block = _block_of(edges, sources=np.searchsorted(rows, asked), num_sources=len(rows))
        packed.append(layout.pack(partial_slice(model, layer - 1, own={}, source=terms.source, block=block)))
        destination.append(np.full(block.num_targets, asker))
    if not packed:
        return (), as_states
    states = pa.table({"state": from_matrix(np.concatenate(packed))})
    return (Emit(f"state_{layer}", states, np.concatenate(destination)),), as_states


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


def sent_by(counts: Sequence[dict[str, int]]) -> Sent:
    """Return what the tasks of need rounds counted and chose."""
    sends, as_states, row_bytes, saved = (
        sum(each.get(name, 0) for each in counts) for name in ("sends", "sends_of_states", "row_bytes", "saved_bytes")
    )
    return Sent(sends, as_states, row_bytes, saved)
