"""What the slices do on a typed graph: features and encoders by type, source terms by relation.

A node's source terms differ from relation to relation, so each relation has a channel of its own; a node is sent in
those alone that read it. A target keeps its input row, from which its own terms for every relation into its type are
computed where it lives.

Shapes: N rows computed before, T targets, S distinct sources of all relations, R relations, W width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.executions.sliced_relations import relation_layout, relation_terms, relations_slice
from gnnflow.graph.arrays import distinct
from gnnflow.graph.batch import Features, TypedFeatures, sampled_block
from gnnflow.infer.need import asked_nodes, sends_of
from gnnflow.mapreduce.ahead import fetching
from gnnflow.mapreduce.exchange import Emit
from gnnflow.storage.columns import from_matrix, take_rows, to_matrix
from gnnflow.storage.graph_store import features_of

if TYPE_CHECKING:
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.graph.batch import Block, Degrees
    from gnnflow.graph.facts import FeatureFacts
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox
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
) -> tuple[Emit, ...]:
    """Return layer `layer`'s source terms on their way to where they were asked for, one emit per relation.

    h and nodes: input rows and degrees of the N local rows that were computed here.
    """
    emits = []
    every = zip(job.source_channels(layer), sends_of(index, inbox, job, layer), strict=True)
    for relation, (channel, sends) in enumerate(every):
        # local rows that some partition asked for in the relation, and their places among the N
        asked = distinct(sends.rows)
        places = np.searchsorted(rows, asked)
        terms = relation_terms(model, layer - 1, relation, h=h[places], nodes=nodes.take(places))
        table = pa.table({"row": from_matrix(relation_layout(model, layer - 1, relation).pack(terms))})
        emits.append(Emit(channel, table, sends.destination, picked=np.searchsorted(asked, sends.rows)))
    return tuple(emits)


def compute_layer(
    index: int, inbox: Inbox, job: InferJob, model: Model, *, layer: int, rows: IntArray
) -> tuple[FloatArray, pa.Table]:
    """Return layer `layer`'s output [T, W] of local rows [T], and what was kept of them for it."""
    channels, parts = job.source_channels(layer), range(job.neighbors.store.num_partitions)
    wanted = [(f"own_{layer}", index), *((channel, task) for channel in channels for task in parts)]
    with fetching(inbox, wanted, ahead=job.exchange.ahead(len(wanted))) as pieces:
        block, types = _block(index, job, rows, layer)
        own = next(pieces)
        terms = []
        for relation in range(len(channels)):
            sent = pa.concat_tables([next(pieces) for _ in parts])
            terms.append(relation_layout(model, layer - 1, relation).unpack(to_matrix(sent["row"])))
    nodes = job.neighbors.store.degrees(index).take(rows)
    h = to_matrix(own["h"])
    return relations_slice(model, layer - 1, h=h, nodes=nodes, block=block, types=types, received=terms), own


def _block(index: int, job: InferJob, rows: IntArray, layer: int) -> tuple[Block, IntArray]:
    """Return the in-edges of local rows [T] in all relations, and the types of its sources: the T, then those asked."""
    store = job.neighbors.store
    targets = store.book.start(index) + rows
    # the in-edges the layer takes of them [E], and the dense ids of their sources
    edges = job.neighbors.in_edges(index)
    picked = edges.prefix(rows, limit=job.fanout(layer))
    sources = edges.sources_of(picked.positions)
    # dense ids of the rows received in any relation, ascending [S]
    received = distinct(np.concatenate(asked_nodes(edges, picked, nodes=targets)))
    # the row of each source: received rows lie behind the T targets, a source that is the target itself has its own
    own = edges.per_leaf(picked.positions, picked.each(np.arange(len(rows))))
    read = np.where(sources == targets[own], own, len(rows) + np.searchsorted(received, sources))
    block = sampled_block(
        edges.take(picked.positions, offsets=picked.offsets, sources=read),
        num_sources=len(rows) + len(received),
        in_degree=store.degrees(index).take(rows).in_degree,
        sampling=job.neighbors.sampling,
    )
    return block, store.book.type_of(np.concatenate([targets, received]))
