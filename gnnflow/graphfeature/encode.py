"""Encodes neighbourhoods as protobuf bytes, one column at a time. `decode.py` reads them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import Array, IntArray, offsets_of
from gnnflow.graph.batch import Features, TypedFeatures
from gnnflow.graph.edges import InEdges
from gnnflow.graph.errors import StorageError
from gnnflow.graphfeature.fields import FORMAT, LEAVES_FORMAT, NARROW, TYPED_FORMAT, by_message, relation_lists
from gnnflow.graphfeature.neighborhood import NeighborhoodRows
from gnnflow.graphfeature.wire import binary_column, bytes_field, integer_field, join_fields, message_field


def encode_rows(rows: NeighborhoodRows) -> pa.LargeBinaryArray:
    """Return one GraphFeature message per neighbourhood.

    Raises StorageError for a message above 2 GiB and for degrees that do not fit 32 bits.
    """
    # the union's nodes and edges that each of the n messages owns, offsets [n + 1]
    graph, nodes, edges = rows.neighborhood, rows.node_offsets, rows.edge_offsets
    degrees, held = graph.degrees, by_message(rows)
    # and the sources of these edges [n + 1]
    sources = edges if held.leaves is None else held.leaves[edges]
    # a column of headers and one of payloads per field, n entries each
    fields = [
        *_packed("roots", _local(graph.roots, nodes, rows.root_offsets), "<i4", rows.root_offsets),
        *_packed("node_ids", graph.node_ids, "<i8", nodes),
        *_packed("in_degree", degrees.in_degree, "<u4", nodes),
        *_packed("out_degree", degrees.out_degree, "<u4", nodes),
        *_packed("in_weight", degrees.in_weight, "<f4", nodes),
        *_packed("in_edges", held.lengths, "<u4", nodes * held.num_relations),
        *_packed("sources", _local(held.sources, nodes, sources), "<i4", sources),
    ]
    fields += _columns_of_edges(held, edges)
    if isinstance(graph.features, TypedFeatures):
        fields += [
            integer_field("num_relations", held.num_relations),
            *_packed("node_types", graph.features.types, "<u2", nodes),
            *_typed_fields(graph.features, nodes),
        ]
        written = TYPED_FORMAT
    else:
        fields += _feature_fields(graph.features, nodes)
        written = FORMAT
    if held.leaves is not None:
        fields += _leaf_fields(held, nodes)
        written = LEAVES_FORMAT
    parts = graph.features.parts if isinstance(graph.features, TypedFeatures) else (graph.features,)
    written += NARROW * any(part is not None and part.narrow is not None for part in parts)
    return join_fields([*fields, integer_field("format", written)])


def _columns_of_edges(held: InEdges, edges: IntArray) -> list[pa.Array]:
    """Return the optional columns of edges. edges: each message's offsets [n + 1]."""
    fields: list[pa.Array] = []
    if held.weight is not None:
        fields += _packed("edge_weight", held.weight, "<f4", edges)
    if held.attributes is not None:
        fields.append(integer_field("edge_attribute_width", held.attributes.shape[1]))
        fields += _packed("edge_attributes", held.attributes, "<f4", edges)
    if held.next_arrival is not None:
        fields += _packed("edge_next_arrival", held.next_arrival, "<f8", edges)
    if held.time is not None:
        fields += _packed("edge_time", held.time, "<i8", edges)
    return fields


def _leaf_fields(held: InEdges, nodes: IntArray) -> list[pa.Array]:
    """Return the numbers of leaves: one for each relation of a message, or one for each of its edges.

    held: edges message by message, each message's relation by relation. nodes [n + 1].
    """
    counts, relations = held.leaf_counts, held.num_relations
    # first edge of each relation of each message [n R + 1], and the number of its edges
    bounds = held.offsets[relation_lists(nodes, relations)]
    sizes = np.diff(bounds)
    # leaves of the first edge of each, 0 without edges, and whether the numbers of leaves differ
    firsts = np.append(counts, 0)[bounds[:-1]] * (sizes > 0)
    differ = np.diff(offsets_of(counts != np.repeat(firsts, sizes))[bounds]) > 0
    same = np.where(differ, 0, firsts)
    # edges that are counted one by one, and the first of each message among them [n + 1]
    listed = np.repeat(same == 0, sizes)
    ends = offsets_of(listed)[bounds[::relations]]
    of_messages = np.arange(len(nodes)) * relations
    return [
        *_packed("leaves_of_relation", same, "<u4", of_messages),
        *_packed("leaves", counts[listed], "<u4", ends),
    ]


def encode_references(roots: IntArray) -> pa.LargeBinaryArray:
    """Return one message per target, with its row in the shard's GraphFeature."""
    offsets = np.arange(len(roots) + 1, dtype=np.int64)
    return join_fields([*_packed("roots", roots, "<i4", offsets), integer_field("format", FORMAT)])


def _typed_fields(features: TypedFeatures, nodes: IntArray) -> list[pa.Array]:
    """Return a field per type, which holds the features of each message's nodes of the type."""
    fields: list[pa.Array] = []
    for number, part in enumerate(features.parts):
        # which of the type's nodes each message owns [n + 1]
        own = offsets_of(features.types == number)[nodes]
        empty = binary_column(b"", np.zeros(len(nodes), np.int64))
        fields += message_field("type_features", empty if part is None else join_fields(_feature_fields(part, own)))
    return fields


def _feature_fields(features: Features, nodes: IntArray) -> list[pa.Array | pa.Scalar]:
    fields = [integer_field("feature_width", features.width)]
    if features.dense is not None and features.narrow is None:
        return [*fields, *_packed("dense", features.dense, "<f4", nodes)]
    if features.dense is not None and features.narrow is not None:
        fields += [*_packed("dense", features.stored, "u1", nodes), integer_field("dense_kind", features.narrow.number)]
        # every message has its own, so that it can be read alone
        each = np.arange(len(nodes))
        for name, column in (("dense_low", features.narrow.low), ("dense_step", features.narrow.step)):
            fields += [] if column is None else _packed(name, np.tile(column, (len(each) - 1, 1)), "<f4", each)
        return fields
    assert features.offsets is not None
    assert features.index is not None
    # which (index, value) pairs each message owns: offsets [n + 1]
    pairs = features.offsets[nodes]
    fields += _packed("feature_count", np.diff(features.offsets), "<u4", nodes)
    fields += _packed("feature_index", features.index, "<i4", pairs)
    if features.value is not None:
        fields += _packed("feature_value", features.value, "<f4", pairs)
    return fields


def _packed(field: str, values: Array, dtype: str, offsets: IntArray) -> tuple[pa.Array, pa.Array]:
    stored = np.dtype(dtype)
    if stored.kind in "iu" and values.dtype != stored and len(values):
        limits = np.iinfo(stored)
        if values.min() < limits.min or values.max() > limits.max:
            raise StorageError(
                f"{field} reaches {values.max():,}, a GraphFeature stores up to {limits.max:,}",
                fix="Sample with a fan-out, or split the graph.",
            )
    return bytes_field(field, np.ascontiguousarray(values, stored), offsets)


def _local(union_rows: Array, nodes: IntArray, offsets: IntArray) -> Array:
    """Return rows counted from the first node of each neighbourhood."""
    return union_rows - np.repeat(nodes[:-1], np.diff(offsets))
