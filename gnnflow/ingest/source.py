"""User rows into our columns: ids as int64 or string, features as a matrix or sparse rows, labels and splits as codes.

Everything here sees one chunk of one table and knows nothing of partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.labels import UNLABELLED
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.checks import (
    Fault,
    label_faults,
    null_fault,
    number_faults,
    sparse_faults,
    split_faults,
    weight_fault,
)
from gnnflow.storage.columns import combine, from_matrix, from_ragged, to_numpy, to_ragged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import Array, FloatArray
    from gnnflow.ingest.schema import ColumnPart, SourceSchema


def node_column_names(schema: SourceSchema, config: GraphConfig) -> list[str]:
    """Return the columns of the node table that are read."""
    names = [config.id, *(part.name for part in schema.features)]
    if schema.sparse:
        names += [f"{schema.sparse}_index"] + ([f"{schema.sparse}_value"] if schema.sparse_has_value else [])
    if schema.label_kind != "none":
        names.append(config.label)
    return names + ([config.split] if schema.has_split else [])


def edge_column_names(schema: SourceSchema, config: GraphConfig) -> list[str]:
    """Return the columns of the edge table that are read."""
    names = [config.src, config.dst] + ([config.weight] if schema.has_weight else [])
    return list(dict.fromkeys([*names, *(part.name for part in schema.attributes)]))


def node_faults(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> list[Fault]:
    """Return every fault of a chunk of nodes."""
    faults = [null_fault(table, config.id)]
    if schema.sparse:
        faults += sparse_faults(table, schema.sparse, schema.feature_width, has_value=schema.sparse_has_value)
    else:
        faults += number_faults(table, schema.features, "feature")
    if schema.label_kind != "none":
        faults += label_faults(
            single_labels(table, schema, config), schema.label_kind, config.label, config.num_classes
        )
        faults += _multi_faults(table, schema, config)
    if schema.has_split:
        faults += split_faults(table, config.split, is_labelled(table, schema, config))
    return faults


def edge_faults(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> list[Fault]:
    """Return every fault of a chunk of edges that can be seen without the nodes."""
    faults = [null_fault(table, config.src), null_fault(table, config.dst)]
    if schema.has_weight:
        faults.append(weight_fault(table, config.weight))
    return faults + number_faults(table, schema.attributes, "edge attribute")


def _multi_faults(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> list[Fault]:
    if schema.label_kind != "multi":
        return []
    column = combine(table.column(config.label))
    lengths = np.nan_to_num(to_numpy(pc.list_value_length(column)).astype(np.float64), nan=schema.label_width)
    values = to_numpy(pc.list_flatten(column).cast(pa.float64()))
    parents = to_numpy(pc.list_parent_indices(column))
    outside = np.unique(parents[(values != 0) & (values != 1)]).astype(np.int64)
    ragged = np.flatnonzero(lengths != schema.label_width)
    return [
        Fault(f"label list is not {schema.label_width} long", config.label, ragged, "Write lists of one length."),
        Fault("label out of range: several labels are a list of 0 and 1", config.label, outside, "Write 0 or 1."),
    ]


def single_labels(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> Array:
    """Return integer labels [rows], -1 where null; zeros for other tasks."""
    if schema.label_kind != "single":
        return np.zeros(table.num_rows, np.int64)
    return to_numpy(combine(table.column(config.label)).cast(pa.int64()).fill_null(UNLABELLED))


def is_labelled(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> Array:
    """Return which rows have a label."""
    if schema.label_kind == "none":
        return np.zeros(table.num_rows, bool)
    if schema.label_kind == "single":
        return np.asarray(single_labels(table, schema, config) != UNLABELLED)
    column = combine(table.column(config.label))
    valid = to_numpy(pc.is_valid(column))
    if schema.label_kind == "regression":
        return np.asarray(valid & ~np.isnan(to_numpy(column.fill_null(np.nan).cast(pa.float64()))))
    return valid


def node_columns(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> dict[str, pa.Array]:
    """Return our columns of faultless node rows: id, label, labelled, split, and x or x_index/x_value."""
    columns = {"id": _ids(table.column(config.id), schema)}
    columns["labelled"] = pa.array(is_labelled(table, schema, config))
    if schema.label_kind != "none":
        columns["label"] = _labels(table, schema, config)
    columns["split"] = pa.array(_split_codes(table, schema, config))
    if not schema.sparse:
        dense = dense_matrix(table, schema.features)
        columns["x"] = from_matrix(_row_normalized(dense) if config.normalize == "row" else dense)
        return columns
    offsets, index = to_ragged(table.column(f"{schema.sparse}_index"))
    columns["x_index"] = from_ragged(offsets, index.astype(np.int32))
    value = _sparse_values(table, schema, config, offsets)
    if value is not None:
        columns["x_value"] = from_ragged(offsets, value)
    return columns


def edge_columns(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> dict[str, pa.Array]:
    """Return our columns of faultless edge rows: src_id, dst_id, weight, attributes."""
    columns = {"src_id": _ids(table.column(config.src), schema), "dst_id": _ids(table.column(config.dst), schema)}
    if schema.has_weight:
        columns["weight"] = combine(table.column(config.weight)).cast(pa.float32())
    if schema.attributes:
        columns["attributes"] = from_matrix(dense_matrix(table, schema.attributes))
    return columns


def dense_matrix(table: pa.Table, parts: Sequence[ColumnPart]) -> FloatArray:
    """Return the concatenation of list and scalar columns as float32 [rows, width]."""
    matrix = np.empty((table.num_rows, sum(part.width for part in parts)), np.float32)
    start = 0
    for part in parts:
        column = combine(table.column(part.name))
        values = pc.list_flatten(column) if part.is_list else column
        matrix[:, start : start + part.width] = to_numpy(values.cast(pa.float32())).reshape(-1, part.width)
        start += part.width
    return matrix


def _ids(column: pa.ChunkedArray, schema: SourceSchema) -> pa.Array:
    return combine(column).cast(pa.int64() if schema.id_type == "int64" else pa.large_string())


def _labels(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> pa.Array:
    if schema.label_kind == "single":
        return pa.array(single_labels(table, schema, config))
    column = combine(table.column(config.label))
    if schema.label_kind == "regression":
        return column.cast(pa.float32()).fill_null(np.nan)
    matrix = np.zeros((len(column), schema.label_width), np.float32)
    matrix[to_numpy(pc.is_valid(column))] = to_numpy(pc.list_flatten(column).cast(pa.float32())).reshape(
        -1, schema.label_width
    )
    return from_matrix(matrix)


def _split_codes(table: pa.Table, schema: SourceSchema, config: GraphConfig) -> Array:
    if not schema.has_split:
        return np.full(table.num_rows, -1, np.int8)
    text = combine(table.column(config.split)).cast(pa.string())
    return to_numpy(pc.index_in(text, value_set=pa.array(SPLITS)).fill_null(-1).cast(pa.int8()))


def _row_normalized(matrix: FloatArray) -> FloatArray:
    total = np.abs(matrix).sum(1, keepdims=True)
    return np.asarray(matrix / np.where(total > 0, total, 1), np.float32)


def _sparse_values(table: pa.Table, schema: SourceSchema, config: GraphConfig, offsets: Array) -> FloatArray | None:
    lengths = np.diff(offsets)
    value = None
    if schema.sparse_has_value:
        value = to_ragged(table.column(f"{schema.sparse}_value"))[1].astype(np.float32)
    if config.normalize != "row":
        return value
    ones = np.ones(offsets[-1], np.float32) if value is None else value
    rows = np.repeat(np.arange(len(lengths)), lengths)
    total = np.bincount(rows, np.abs(ones), minlength=len(lengths))
    return (ones / np.where(total > 0, total, 1)[rows]).astype(np.float32)
