"""Decodes protobuf bytes into neighbourhoods, one column at a time. Decoded arrays are read-only.

Every length, count and number is checked before it is used, so damaged bytes are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of
from gnnflow.graph.batch import Degrees, Features, TypedFeatures
from gnnflow.graph.edges import InEdges
from gnnflow.graph.narrow import KINDS, LEVELS, NarrowRows, row_bytes
from gnnflow.graphfeature.fields import FORMAT, LEAVES_FORMAT, NARROW, TYPED_FORMAT, join_relations, relation_lists
from gnnflow.graphfeature.neighborhood import Neighborhood, NeighborhoodRows
from gnnflow.graphfeature.wire import Messages, parse, refuse

_MOST_RELATIONS = 1 << 16


def decode_rows(column: pa.Array | pa.ChunkedArray) -> NeighborhoodRows:
    """Return a column of GraphFeatures as their disjoint union.

    Raises StorageError for nulls, truncated or foreign bytes, another format, and arrays that contradict each other.

    Shapes: n messages, N nodes of all of them.
    """
    messages = parse(column, repeated=("type_features",))
    _check_format(messages)
    # whether a message has roots but no nodes to find them in [n]
    no_nodes = (messages.lengths("node_ids") == 0) & (messages.lengths("roots") > 0)
    refuse(no_nodes, "has no nodes: it only refers to its shard's graph")
    # nodes and roots of each message [n], and the first node of each message in the union [n + 1]
    num_nodes, num_roots = _counts(messages, "node_ids", 8), _counts(messages, "roots", 4)
    nodes = offsets_of(num_nodes)
    relations = _num_relations(messages)
    features = _typed_features(messages, num_nodes) if relations else _features(messages, num_nodes)
    union = Neighborhood(
        roots=_union_rows(messages, "roots", num_roots, nodes).astype(np.int64),
        node_ids=messages.payload("node_ids", "<i8"),
        degrees=Degrees(
            _degrees(messages, "in_degree", "<u4", num_nodes, relations).astype(np.int64),
            _degrees(messages, "out_degree", "<u4", num_nodes, relations).astype(np.int64),
            _degrees(messages, "in_weight", "<f4", num_nodes, relations),
            features.types if isinstance(features, TypedFeatures) else None,
        ),
        features=features,
        edges=join_relations(_edges(messages, nodes, num_relations=max(relations, 1)), nodes),
    )
    return NeighborhoodRows(union, offsets_of(num_roots), nodes)


def _edges(messages: Messages, nodes: IntArray, *, num_relations: int) -> InEdges:
    """Return the edges of all messages in their stored order. nodes [n + 1]."""
    # sources of each message [n]
    num_sources = _counts(messages, "sources", 4)
    num_lists = np.diff(nodes) * num_relations
    if _has_leaves(messages):
        offsets = offsets_of(_checked(messages, "in_edges", "<u4", num_lists))
        num_edges = np.diff(offsets[nodes * num_relations])
        leaves = _leaf_offsets(messages, offsets[relation_lists(nodes, num_relations)], num_sources)
    else:
        offsets = _row_offsets(messages, "in_edges", num_lists, num_sources)
        num_edges, leaves = num_sources, None

    def column(field: str, dtype: str) -> Array | None:
        return _checked(messages, field, dtype, num_edges) if messages.has(field) else None

    return InEdges(
        offsets,
        _union_rows(messages, "sources", num_sources, nodes).astype(np.int32, copy=False),
        weight=column("edge_weight", "<f4"),
        attributes=_attributes(messages, num_edges),
        next_arrival=column("edge_next_arrival", "<f8"),
        time=column("edge_time", "<i8"),
        num_relations=num_relations,
        leaves=leaves,
    )


def _leaf_offsets(messages: Messages, bounds: IntArray, num_sources: IntArray) -> IntArray:
    """Return the offsets of each edge's leaves among the sources of all messages [E + 1].

    bounds [n R + 1]: the first edge of each relation of each message.
    """
    # edges of each relation of each message [n R], and the number of relations of each message [n]
    sizes = np.diff(bounds)
    relations = np.full(len(messages), len(sizes) // max(len(messages), 1))
    # leaves of an edge of each relation of each message, 0 where they are counted one by one [n R]
    same = _checked(messages, "leaves_of_relation", "<u4", relations).astype(np.int64)
    of_message = offsets_of(relations)

    def per_message(values: IntArray) -> IntArray:
        return np.diff(offsets_of(values)[of_message])

    # damaged counts may have any size, so they are checked against the stored bytes before use
    refuse(per_message(sizes * (same > 0)) > num_sources, "is damaged: in_edges does not add up")
    listed = _checked(messages, "leaves", "<u4", per_message(sizes * (same == 0)))
    # number of leaves of each edge, then their offsets [E], [E + 1]
    counts = np.repeat(same, sizes)
    counts[counts == 0] = listed
    leaves = offsets_of(counts)
    refuse(np.diff(leaves[bounds[of_message]]) != num_sources, "is damaged: leaves does not add up")
    return leaves


def _check_format(messages: Messages) -> None:
    found = messages.integers("format")
    refuse((found == 0) | (found == NARROW), "is truncated, or not a GraphFeature")
    last = LEAVES_FORMAT + NARROW
    refuse(found > last, f"has format {found.max(initial=0)}, this version reads formats up to {last}")


def _formats(messages: Messages) -> IntArray:
    """Return the format of each message, whether its features are narrow or not [n]."""
    return messages.integers("format") % NARROW


def _num_relations(messages: Messages) -> int:
    """Return the number of relations, 0 for an untyped graph. Refuses messages that mix both."""
    relations, found = _width(messages, "num_relations"), _formats(messages)
    wrong = found == (FORMAT if relations else TYPED_FORMAT)
    refuse(wrong, "is damaged: num_relations is not as its format")
    refuse(np.full(len(messages), relations > _MOST_RELATIONS), f"is damaged: num_relations is {relations:,}")
    other = ("dense", "feature_count") if relations else ("node_types", "type_features")
    for field in other:
        refuse(messages.lengths(field) > 0, f"is damaged: num_relations is {relations}, and it has {field}")
    return relations


def _has_leaves(messages: Messages) -> bool:
    """Return whether edges have leaves. Refuses messages that mix both."""
    found = _formats(messages) == LEAVES_FORMAT
    refuse(found != found[:1], "has another format than those before it")
    other = (messages.lengths("leaves_of_relation") > 0) | (messages.lengths("leaves") > 0)
    refuse(other & ~found, "is damaged: it has leaves, which is not as its format")
    return bool(found.any())


def _counts(messages: Messages, field: str, item_bytes: int) -> IntArray:
    """Return the number of items of a field in each message [n]."""
    lengths = messages.lengths(field)
    refuse(lengths % item_bytes != 0, f"is damaged: {field} ends within an item")
    return lengths // item_bytes


def _checked(
    messages: Messages, field: str, dtype: npt.DTypeLike, counts: IntArray, *, width: int = 1, aligned: bool = True
) -> Array:
    """Return a field's values [total of counts * width], refusing messages with more or fewer of them."""
    expected = counts * (width * np.dtype(dtype).itemsize)
    refuse(messages.lengths(field) != expected, f"is damaged: {field} has the wrong length")
    return messages.payload(field, dtype, aligned=aligned)


def _row_offsets(messages: Messages, field: str, num_rows: IntArray, num_items: IntArray) -> IntArray:
    """Return the union's CSR offsets from stored counts per node, which must add up to the items of each message."""
    offsets = offsets_of(_checked(messages, field, "<u4", num_rows))
    # items that each message's own counts add up to [n]
    stored = np.diff(offsets[offsets_of(num_rows)])
    refuse(stored != num_items, f"is damaged: {field} does not add up")
    return offsets


def _bounded(messages: Messages, field: str, counts: IntArray, limits: IntArray) -> Array:
    """Return a field of int32 numbers, refusing messages in which one is not in 0 .. limit - 1. limits: [n]."""
    values = messages.payload(field, "<i4")
    # the bound of each number [total of counts]; of a single message, as shards have, it is the same for all
    limit: Any = int(limits[0]) if len(counts) == 1 else np.repeat(limits, counts)
    outside = (values < 0) | (values >= limit)
    if outside.any():
        # the message of each number, and whether a message has one that is out of its bounds [n]
        message = np.repeat(np.arange(len(counts)), counts)
        beyond = np.bincount(message[outside], minlength=len(counts)) > 0
        refuse(beyond, f"is damaged: {field} points outside")
    return values


def _union_rows(messages: Messages, field: str, counts: IntArray, nodes: IntArray) -> Array:
    """Return rows of the union from rows counted within each message."""
    rows = _bounded(messages, field, counts, np.diff(nodes))
    # The union of a single message is that message.
    return rows if len(counts) == 1 else rows + np.repeat(nodes[:-1], counts)


def _width(messages: Messages, field: str) -> int:
    widths = messages.integers(field)
    refuse(widths != widths[:1], f"has another {field} than those before it")
    return int(widths[0]) if len(widths) else 0


def _attributes(messages: Messages, num_edges: IntArray) -> FloatArray | None:
    if not messages.has("edge_attributes"):
        return None
    width = _width(messages, "edge_attribute_width")
    values = _checked(messages, "edge_attributes", "<f4", num_edges, width=width)
    return values.reshape(int(num_edges.sum()), width)


def _degrees(messages: Messages, field: str, dtype: str, num_nodes: IntArray, relations: int) -> Array:
    """Return degrees [N], or [N, R] of a typed graph."""
    values = _checked(messages, field, dtype, num_nodes, width=max(relations, 1))
    return values.reshape(-1, relations) if relations else values


def _typed_features(messages: Messages, num_nodes: IntArray) -> TypedFeatures:
    """Return node features by type, and the types. num_nodes [n]."""
    types = _checked(messages, "node_types", "<u2", num_nodes).astype(np.int64)
    held, nodes = messages.nested("type_features"), offsets_of(num_nodes)
    # number of nodes of unknown types in each message [n]
    unknown = np.diff(offsets_of(types >= len(held))[nodes])
    refuse(unknown > 0, f"is damaged: node_types names a type, and there are features of {len(held)}")
    # nodes of a type in each message [n]
    counts = (np.diff(offsets_of(types == number)[nodes]) for number in range(len(held)))
    return TypedFeatures(types, tuple(_type_features(part, own) for part, own in zip(held, counts, strict=True)))


def _type_features(messages: Messages, num_nodes: IntArray) -> Features | None:
    if messages.has("dense") or messages.has("feature_count"):
        return _features(messages, num_nodes)
    refuse(messages.integers("feature_width") > 0, "is damaged: features of a type have a width and no columns")
    return None


def _features(messages: Messages, num_nodes: IntArray) -> Features:
    width = _width(messages, "feature_width")
    if not messages.has("feature_count"):
        if (kind := _width(messages, "dense_kind")) > 0:
            return _narrow_features(messages, num_nodes, width, kind)
        # by far the largest field, read only row by row by `Features.take`
        dense = _checked(messages, "dense", "<f4", num_nodes, width=width, aligned=False)
        return Features(width, dense=dense.reshape(int(num_nodes.sum()), width))
    # (index, value) pairs of each message [n], and the offsets of each node's pairs in the union [N + 1]
    num_pairs = _counts(messages, "feature_index", 4)
    offsets = _row_offsets(messages, "feature_count", num_nodes, num_pairs)
    index = _bounded(messages, "feature_index", num_pairs, np.full(len(messages), width)).astype(np.int64)
    value = _checked(messages, "feature_value", "<f4", num_pairs) if messages.has("feature_value") else None
    return Features(width, offsets=offsets, index=index, value=value)


def _narrow_features(messages: Messages, num_nodes: IntArray, width: int, number: int) -> Features:
    """Return dense features of a narrow kind as they are stored."""
    refuse(np.full(len(messages), number >= len(KINDS)), f"has dense features of kind {number}, which is not known")
    kind = KINDS[number]
    low = step = None
    if kind in LEVELS:
        low, step = _column_numbers(messages, "dense_low", width), _column_numbers(messages, "dense_step", width)
    size = row_bytes(kind, width)
    dense = _checked(messages, "dense", "u1", num_nodes, width=size, aligned=False)
    return Features(width, dense=dense.reshape(int(num_nodes.sum()), size), narrow=NarrowRows(kind, width, low, step))


def _column_numbers(messages: Messages, field: str, width: int) -> FloatArray:
    """Return a number per column of features [F], which all messages have alike."""
    every = _checked(messages, field, "<f4", np.ones(len(messages), np.int64), width=width).reshape(-1, width)
    refuse((every != every[:1]).any(axis=1), f"has another {field} than those before it")
    found: FloatArray = every[0] if len(every) else np.zeros(width, np.float32)
    return found


def decode_references(column: pa.Array | pa.ChunkedArray) -> IntArray:
    """Return the row that each message refers to. Raises StorageError where one is not a reference."""
    messages = parse(column)
    _check_format(messages)
    refuse(messages.lengths("node_ids") > 0, "is a whole neighbourhood, not a reference")
    one_each = np.ones(len(messages), np.int64)
    return _checked(messages, "roots", "<i4", one_each).astype(np.int64)
