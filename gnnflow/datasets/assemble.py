"""From checked columns to the two tables, the same way whatever library they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.columns import attribute_columns, check_rows, is_sparse, label_column, split_column, to_array
from gnnflow.datasets.tables import GraphTables
from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import TableError

_RESERVED = ("id", "label", "split", "src", "dst", "weight")
_PAIR = 2


@dataclass(frozen=True)
class NodeAttributes:
    """What a library knows of its N nodes: inputs by column name, labels, and masks by split name."""

    num_nodes: int
    inputs: Mapping[str, Any]
    label: Any = None
    masks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EdgeAttributes:
    """What a library knows of its E edges: both ends as dense ids, weights, and attributes by column name."""

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
    """Return the column of an attribute: its name, or another where that is a column of the contract."""
    return f"attribute_{name}" if name in _RESERVED else name


def with_inputs(tables: GraphTables) -> GraphTables:
    """Return the tables; nodes without inputs get `log_in_degree` and `log_out_degree` (log of 1 + degree)."""
    if set(tables.nodes.column_names) - {"id", "label", "split"}:
        return tables
    nodes, ids = tables.nodes, tables.nodes["id"].combine_chunks()
    for name, end in (("log_in_degree", "dst"), ("log_out_degree", "src")):
        row = pc.drop_null(pc.index_in(tables.edges[end], ids)).to_numpy()
        degree = np.bincount(row, minlength=len(ids))
        nodes = nodes.append_column(name, pa.array(np.log1p(degree).astype(np.float32)))
    return GraphTables(nodes, tables.edges)


class Ends(NamedTuple):
    """Sources and targets of edges [E]."""

    source: Array
    target: Array


def pair_of(index: Any, *, where: str) -> Ends:
    """Return (source, target) of an index [2, E]. Raises TableError for another shape."""
    array = to_array(index, where=where)
    if array.ndim != _PAIR or array.shape[0] != _PAIR or array.dtype.kind not in "iu":
        raise TableError(f"is {array.dtype} with shape {list(array.shape)}", where=where, fix="Give integers [2, E].")
    return Ends(array[0], array[1])
