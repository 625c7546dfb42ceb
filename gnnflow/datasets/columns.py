"""Arrays and tensors of other libraries as columns of the two tables, with errors that name the attribute.

No library is imported to recognise its objects: a tensor can `detach`, and a sparse matrix gives its CSR.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.tables import GraphTables
from gnnflow.graph.arrays import Array, IntArray, offsets_of
from gnnflow.graph.errors import TableError
from gnnflow.graph.splits import SPLITS
from gnnflow.storage.columns import from_matrix, from_ragged

_MATRIX = 2
_RESERVED = ("id", "label", "split", "src", "dst", "weight")
_PAIR = 2


def to_array(value: Any, *, where: str) -> Array:
    """Return a tensor, array or nested list as a NumPy array. Raises TableError for rows of different lengths."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        array: Array = value.numpy()
        return array
    try:
        return np.asarray(value)
    except ValueError as error:
        raise TableError(
            "rows have different lengths", where=where, fix="Give every row the same number of values."
        ) from error


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix of torch, SciPy or torch-sparse."""
    layout = str(getattr(value, "layout", ""))
    return (
        layout.startswith("torch.sparse")
        or callable(getattr(value, "tocsr", None))
        or callable(getattr(value, "csr", None))
    )


class _Csr(NamedTuple):
    """A sparse matrix: offsets [n + 1], columns [E], value [E] or None."""

    offsets: IntArray
    columns: Array
    value: Array | None
    shape: tuple[int, int]


def to_csr(value: Any) -> _Csr:
    """Return the CSR of a sparse matrix."""
    if callable(getattr(value, "tocsr", None)):
        matrix = value.tocsr()
        return _Csr(matrix.indptr.astype(np.int64), matrix.indices, matrix.data, matrix.shape)
    if callable(getattr(value, "csr", None)):
        offsets, index, found = value.csr()
        rows, width = value.sparse_sizes()
        return _Csr(offsets.numpy(), index.numpy(), None if found is None else found.numpy(), (rows, width))
    coo = value.detach().cpu().to_sparse_coo().coalesce()
    row, column = coo.indices().numpy()
    # nonzero columns of each row [n]
    lengths = np.bincount(row, minlength=coo.shape[0])
    return _Csr(offsets_of(lengths), column, coo.values().numpy(), (coo.shape[0], coo.shape[1]))


def attribute_columns(name: str, value: Any, *, rows: int, where: str) -> dict[str, pa.Array]:
    """Return the column of a dense attribute, or `<name>_index` and `<name>_value` of a sparse one.

    A matrix [n, w] becomes a fixed-size list of float32, a vector a scalar column; the values of a sparse matrix are
    left out where all are one. Raises TableError for a wrong number of rows, ragged rows, text, or more than two
    dimensions.
    """
    if is_sparse(value):
        return _sparse_columns(name, value, rows=rows, where=where)
    array = to_array(value, where=where)
    check_rows(array.shape, rows, where=where)
    if array.dtype.kind not in "biuf" or array.ndim > _MATRIX:
        raise TableError(
            f"is {array.dtype} with shape {list(array.shape)}, not numbers in one or two dimensions",
            where=where,
            fix="Flatten it to one row of numbers each, or drop it.",
        )
    if array.ndim == 1:
        return {name: pa.array(array)}
    return {name: from_matrix(array.astype(np.float32))}


def _sparse_columns(name: str, value: Any, *, rows: int, where: str) -> dict[str, pa.Array]:
    offsets, index, found, shape = to_csr(value)
    check_rows(shape, rows, where=where)
    columns = {f"{name}_index": from_ragged(offsets, index.astype(np.int32))}
    if found is not None and not (found == 1).all():
        columns[f"{name}_value"] = from_ragged(offsets, found.astype(np.float32))
    return columns


def check_rows(shape: Sequence[int], rows: int, *, where: str) -> None:
    """Raise TableError where an attribute does not have one row per node or edge."""
    if not shape or shape[0] != rows:
        raise TableError(f"has shape {list(shape)}, expected {rows} rows", where=where, fix="Give one row for each.")


def label_column(value: Any, *, rows: int, where: str) -> pa.Array:
    """Return labels: int64 classes, float32 targets (NaN becomes null), or a list of 0/1 for several labels at once.

    A matrix with one column is a vector. Raises TableError for several columns that are not all 0 or 1.
    """
    array = to_array(value, where=where)
    check_rows(array.shape, rows, where=where)
    array = array[:, 0] if array.ndim == _MATRIX and array.shape[1] == 1 else array
    if array.dtype.kind not in "biuf" or array.ndim > _MATRIX:
        raise TableError(
            f"is {array.dtype} with shape {list(array.shape)}, not labels",
            where=where,
            fix="Give classes as integers from 0, targets as floats, or several labels as rows of 0/1.",
        )
    if array.ndim == _MATRIX:
        if not ((array == 0) | (array == 1)).all():
            raise TableError("has several columns that are not all 0 or 1", where=where, fix="Choose one column.")
        return from_matrix(array.astype(np.int8))
    if array.dtype.kind == "f":
        return pa.array(array.astype(np.float32), mask=np.isnan(array))
    return pa.array(array.astype(np.int64))


def split_column(masks: Mapping[str, Any], *, rows: int, column: int, where: str) -> pa.Array:
    """Return train, valid, test or null for each row, from masks; `column` chooses a column of a 2-D mask.

    Raises TableError where two masks hold the same row, or a mask is not boolean.
    """
    code = np.full(rows, -1)
    for number, name in enumerate(SPLITS):
        if name not in masks:
            continue
        mask = _mask(masks[name], rows=rows, column=column, where=f"{where}, {name} mask")
        both = np.flatnonzero(mask & (code >= 0))
        if len(both):
            raise TableError(
                f"{len(both)} row(s) are in both {SPLITS[code[both[0]]]} and {name}, the first is {both[0]}",
                where=where,
                fix="Make the masks disjoint.",
            )
        code[mask] = number
    return pa.array(SPLITS).take(pa.array(code, mask=code < 0))


def _mask(value: Any, *, rows: int, column: int, where: str) -> Array:
    mask = to_array(value, where=where)
    check_rows(mask.shape, rows, where=where)
    if mask.ndim == _MATRIX:
        if not 0 <= column < mask.shape[1]:
            raise TableError(
                f"has {mask.shape[1]} columns, there is no column {column}",
                where=where,
                fix=f"Set mask_column to 0..{mask.shape[1] - 1}.",
            )
        mask = mask[:, column]
    if mask.dtype.kind not in "bu":
        raise TableError(f"is {mask.dtype}, not boolean", where=where, fix="Give True for the rows of the split.")
    return mask.astype(bool)


class ClassColumn(NamedTuple):
    """A column of labels, and its entries in the schema's metadata."""

    column: pa.Array
    metadata: dict[str, str]


def class_column(values: Sequence[Any]) -> ClassColumn:
    """Return the column of labels given as text: classes are numbered in sorted order, None is null.

    The names are in the metadata under `label_classes`, a JSON list by class number.
    """
    names = sorted({value for value in values if value is not None})
    column = pa.array(values, pa.string()).dictionary_encode()
    rank = np.array([names.index(name) for name in column.dictionary.to_pylist()], np.int64)
    return ClassColumn(pa.array(rank).take(column.indices), {"label_classes": json.dumps(names)})


@dataclass(frozen=True)
class NodeAttributes:
    """A library's attributes of N nodes: inputs by column name, labels, and masks by split name."""

    num_nodes: int
    inputs: Mapping[str, Any]
    label: Any = None
    masks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EdgeAttributes:
    """A library's attributes of E edges: both ends as dense ids, weights, and attributes by column name."""

    src: Array
    dst: Array
    weight: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


def node_table(nodes: NodeAttributes, *, mask_column: int, where: str) -> pa.Table:
    """Return the node table: id 0..N-1, inputs, label, split. `feature_dim` is in the metadata of sparse features."""
    rows, columns, metadata = nodes.num_nodes, {"id": pa.array(np.arange(nodes.num_nodes))}, {}
    for name, value in nodes.inputs.items():
        columns |= attribute_columns(free_name(name), value, rows=rows, where=f"{where}, {name}")
        if name == "x" and is_sparse(value):
            metadata["feature_dim"] = str(value.shape[1] if hasattr(value, "shape") else value.sparse_sizes()[1])
    if nodes.label is not None:
        columns["label"] = label_column(nodes.label, rows=rows, where=f"{where}, label")
    if nodes.masks:
        columns["split"] = split_column(nodes.masks, rows=rows, column=mask_column, where=where)
    return pa.table(columns, metadata=metadata or None)


def edge_table(edges: EdgeAttributes, *, num_sources: int, num_targets: int, where: str) -> pa.Table:
    """Return the edge table: src, dst, weight, attributes. Raises TableError for an end outside its node table."""
    for end, ids, limit in (("source", edges.src, num_sources), ("target", edges.dst, num_targets)):
        outside = np.flatnonzero((ids < 0) | (ids >= limit))
        if len(outside):
            raise TableError(
                f"edge {outside[0]} has the {end} {ids[outside[0]]}, nodes are 0..{limit - 1}",
                where=where,
                fix="Drop such edges, or state the number of nodes.",
            )
    rows = len(edges.src)
    columns = {"src": pa.array(edges.src.astype(np.int64)), "dst": pa.array(edges.dst.astype(np.int64))}
    if edges.weight is not None:
        columns["weight"] = _weight(edges.weight, rows=rows, where=f"{where}, weight")
    for name, value in edges.inputs.items():
        columns |= attribute_columns(free_name(name), value, rows=rows, where=f"{where}, {name}")
    return pa.table(columns)


def _weight(value: Any, *, rows: int, where: str) -> pa.Array:
    array = to_array(value, where=where)
    check_rows(array.shape, rows, where=where)
    if array.size != rows or array.dtype.kind not in "biuf":
        raise TableError(
            f"is {array.dtype} with shape {list(array.shape)}", where=where, fix="Give one number per edge."
        )
    return pa.array(array.reshape(-1).astype(np.float32))


def free_name(name: str) -> str:
    """Return the column name of an attribute; prefixed where the name is a column of the tables' contract."""
    return f"attribute_{name}" if name in _RESERVED else name


def add_degree_inputs(tables: GraphTables) -> GraphTables:
    """Return the tables; nodes without inputs get `log_in_degree` and `log_out_degree` (log of 1 + degree)."""
    if set(tables.nodes.column_names) - {"id", "label", "split"}:
        return tables
    nodes, ids = tables.nodes, tables.nodes["id"].combine_chunks()
    for name, end in (("log_in_degree", "dst"), ("log_out_degree", "src")):
        # each edge's end as a row of the node table [E], then degrees [N]
        row = pc.drop_null(pc.index_in(tables.edges[end], ids)).to_numpy()
        degree = np.bincount(row, minlength=len(ids))
        nodes = nodes.append_column(name, pa.array(np.log1p(degree).astype(np.float32)))
    return GraphTables(nodes, tables.edges)


class Ends(NamedTuple):
    """Sources and targets of edges [E]."""

    source: Array
    target: Array


def parse_ends(index: Any, *, where: str) -> Ends:
    """Return the ends of an index [2, E]. Raises TableError for another shape."""
    array = to_array(index, where=where)
    if array.ndim != _PAIR or array.shape[0] != _PAIR or array.dtype.kind not in "iu":
        raise TableError(f"is {array.dtype} with shape {list(array.shape)}", where=where, fix="Give integers [2, E].")
    return Ends(array[0], array[1])
