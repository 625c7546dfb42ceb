"""What the slices do on a typed graph: features and encoders by type, source terms by relation.

A node's source terms differ from relation to relation, so each relation has a channel of its own; a node is sent in
those alone that read it. A target keeps its input row, from which its own terms for every relation into its type are
computed where it lives.

Shapes: N rows computed before, T targets, W width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnflow.executions.sliced import relation_order, relation_terms, relations_slice
from gnnflow.graph.arrays import distinct
from gnnflow.graph.batch import Features, TypedFeatures
from gnnflow.infer.need import sends_of
from gnnflow.infer.parts import Arrival, pieces_ahead
from gnnflow.infer.reads import layer_reads
from gnnflow.infer.relation_task import PackedRows, RelationTask
from gnnflow.infer.states import plans_of
from gnnflow.infer.target_states import send_targets
from gnnflow.mapreduce.exchange import fetching
from gnnflow.storage.columns import take_rows, to_matrix
from gnnflow.storage.graph_store import features_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from gnnflow.executions.sliced import Gathered, SliceTerms
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.graph.batch import Degrees
    from gnnflow.graph.facts import FeatureFacts
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Emit, Inbox
    from gnnflow.storage.graph_store import GraphStore


def features_by_type(store: GraphStore, partition: int, rows: IntArray) -> TypedFeatures:
    """Return the features of local rows of a partition, ascending [N]."""
    of_types = [store.book.rows(partition, number) for number in range(store.schema.num_types)]
    # rows ascend, and so do the types in a partition: where each type's begin and end among them
    places = np.searchsorted(rows, [0, *(own.stop for own in of_types)])
    parts: list[Features | None] = []
    for number, (own, facts) in enumerate(zip(of_types, store.facts.features_of_types, strict=True)):
        if facts is None:
            parts.append(None)
            continue
        held = rows[places[number] : places[number + 1]] - own.start
        if not len(held):  # nothing reads this type here, so its file stays closed
            parts.append(_no_rows(facts))
            continue
        table = store.nodes(partition, store.feature_columns_of(number), node_type=number).combine_chunks()
        parts.append(features_of(take_rows(table, held), facts.width))
    return TypedFeatures(np.repeat(np.arange(len(parts)), np.diff(places)), tuple(parts))


def _no_rows(facts: FeatureFacts) -> Features:
    """Return features as they are stored, of no node."""
    if facts.kind == "dense":
        return Features(facts.width, dense=np.zeros((0, facts.width), np.float32))
    value = np.zeros(0, np.float32) if facts.has_value else None
    return Features(facts.width, offsets=np.zeros(1, np.int64), index=np.zeros(0, np.int64), value=value)


def send_terms(
    index: int, inbox: Inbox, job: InferJob, model: Model, *, layer: int, h: FloatArray, rows: IntArray, nodes: Degrees
) -> Iterator[Emit]:
    """Yield layer `layer`'s source terms on their way to where they were asked for, relation by relation.

    h and nodes: input rows and degrees of the N local rows that were computed here.
    """
    for relation, sends in enumerate(sends_of(index, inbox, job, layer)):

        def terms_of(wanted: IntArray, relation: int = relation) -> SliceTerms:
            places = np.searchsorted(rows, wanted)
            return relation_terms(model, layer - 1, relation, h=h[places], nodes=nodes.take(places))

        asked, task = distinct(sends.rows), RelationTask(index, inbox, job, model, layer, relation)
        packed = task.plan.source.pack(terms_of(asked).source)
        yield from task.send_sources(PackedRows(asked, packed), sends)
        yield from send_targets(task, terms_of)


def compute_layer(
    index: int, inbox: Inbox, job: InferJob, model: Model, *, layer: int, rows: IntArray, runs: Sequence[slice]
) -> tuple[Iterator[FloatArray], pa.Table]:
    """Return layer `layer`'s output [T, W] of local rows [T], run by run, and what was kept of them for it."""
    plans = plans_of(index, inbox, job, layer)
    arrivals = [Arrival.of(index, job, plan, layer=layer, relation=number) for number, plan in enumerate(plans)]
    wanted = [(f"own_{layer}", index)]
    wanted += [piece for relation in relation_order(model) for piece in arrivals[relation].wanted]
    with fetching(inbox, wanted, ahead=pieces_ahead(job, plans, wanted)) as pieces:
        reads = layer_reads(index, job, layer=layer, rows=rows)
        own = next(pieces)

        def gather(relation: int, kept: SliceTerms) -> Gathered:
            arrival, of = arrivals[relation], reads[relation]
            return arrival.gathered(pieces, of, arrival.first(of), model, kept=kept)

        nodes = job.neighbors.store.degrees(index).take(rows)
        h = relations_slice(model, layer - 1, h=to_matrix(own["h"]), nodes=nodes, gather=gather)
        return (h[run] for run in runs), own
