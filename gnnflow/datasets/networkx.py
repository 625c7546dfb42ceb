"""NetworkX graphs as tables.

NetworkX keeps a dictionary per node and edge, so this import alone visits each once in Python, and its time and memory
grow with Python objects. Use it for graphs that NetworkX itself holds comfortably.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.columns import add_degree_inputs, attribute_columns, class_column, free_name, label_column
from gnnflow.datasets.tables import GraphTables
from gnnflow.graph.errors import TableError
from gnnflow.graph.splits import SPLITS

_WHERE = "NetworkX graph"


def from_networkx(
    graph: Any,
    *,
    node_attributes: Sequence[str] | None = None,
    edge_attributes: Sequence[str] | None = None,
    label: str = "label",
    split: str = "split",
    weight: str = "weight",
) -> GraphTables:
    """Return the tables of a NetworkX graph with integer or string node ids.

    node_attributes and edge_attributes name the columns to write; None takes all. Attributes are numbers, lists of one
    length, or text; numbers and text that an element lacks are null. label, split and weight are used where any node
    or edge has them; a node may lack label and split. Labels given as text are numbered in sorted order, their names
    kept in the table's metadata. The edges of an undirected graph are written in both directions, a self-loop once.
    Raises TableError for a missing list, ragged lists, and ids of other or mixed types.
    """
    nodes, metadata = _node_columns(graph, node_attributes, label, split)
    edges = _edge_table(graph, edge_attributes, weight)
    return add_degree_inputs(GraphTables(pa.table(nodes, metadata=metadata or None), edges))


def _node_columns(
    graph: Any, names: Sequence[str] | None, label: str, split: str
) -> tuple[dict[str, pa.Array], dict[str, str]]:
    ids = list(graph.nodes)
    found = [stored for _, stored in graph.nodes(data=True)]
    elements = [f"node {node!r}" for node in ids]
    present = _names(found)
    metadata: dict[str, str] = {}
    columns = {"id": _ids(ids)}
    for name in names if names is not None else [name for name in present if name not in (label, split)]:
        columns |= _check_new(_column(name, found, elements), columns)
    if label in present:
        columns["label"], metadata = _labels([stored.get(label) for stored in found], label)
    if split in present:
        columns["split"] = _splits([stored.get(split) for stored in found], elements, split)
    return columns, metadata


def _edge_table(graph: Any, names: Sequence[str] | None, weight: str) -> pa.Table:
    listed = list(graph.edges(data=True))
    found = [stored for _, _, stored in listed]
    elements = [f"edge {source!r} - {target!r}" for source, target, _ in listed]
    present = _names(found)
    columns = {"src": _ids([edge[0] for edge in listed]), "dst": _ids([edge[1] for edge in listed])}
    for name in names if names is not None else [name for name in present if name != weight]:
        columns |= _check_new(_column(name, found, elements), columns)
    if weight in present:
        columns["weight"] = _numbers(weight, _values(weight, found, elements))["weight"].cast(pa.float32())
    edges = pa.table(columns)
    if graph.is_directed():
        return edges
    # An undirected edge is one edge in each direction; a loop is its own reverse.
    reverse = edges.filter(pc.not_equal(edges["src"], edges["dst"]))
    reverse = reverse.rename_columns(["dst", "src", *edges.column_names[2:]]).select(edges.column_names)
    return pa.concat_tables([edges, reverse]).combine_chunks()


def _names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for stored in found for name in stored))


def _ids(ids: Sequence[Any]) -> pa.Array:
    if all(isinstance(node, str) for node in ids):
        return pa.array(ids, pa.string())
    if all(isinstance(node, Integral) and not isinstance(node, bool) for node in ids):
        return pa.array(_int64(ids), pa.int64())
    kind: type = str if isinstance(ids[0], str) else Integral
    other = next(node for node in ids if isinstance(node, bool) or not isinstance(node, kind))
    raise TableError(
        f"node {other!r} is {type(other).__name__}: ids are all integers or all strings",
        where=_WHERE,
        fix="Relabel first: networkx.relabel_nodes(graph, str) or networkx.convert_node_labels_to_integers(graph).",
    )


def _int64(values: Sequence[Any]) -> Sequence[Any]:
    beyond = next((value for value in values if value is not None and not -(2**63) <= value < 2**63), None)
    if beyond is not None:
        raise TableError(f"{str(beyond)[:40]} is beyond int64", where=_WHERE, fix="Relabel first, or use strings.")
    return values


def _values(name: str, found: Sequence[Mapping[str, Any]], elements: Sequence[str]) -> list[Any]:
    values = [stored.get(name) for stored in found]
    if None in values:
        element = elements[values.index(None)]
        raise TableError(
            f"{element} has no attribute {name!r} ({values.count(None)} are without)",
            where=_WHERE,
            fix="Set it everywhere, or name only the attributes to write.",
        )
    return values


def _column(name: str, found: Sequence[Mapping[str, Any]], elements: Sequence[str]) -> dict[str, pa.Array]:
    values = [stored.get(name) for stored in found]
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, str) for value in given):
        return {free_name(name): pa.array(values, pa.string())}
    if given and len(given) < len(values) and all(isinstance(value, Real) for value in given):
        whole = all(isinstance(value, Integral) for value in given)
        numbers = [None if value is None else (int if whole else float)(value) for value in values]
        return {free_name(name): pa.array(_int64(numbers) if whole else numbers)}
    values = _values(name, found, elements)
    for value, element in zip(values, elements, strict=True):
        if _length(value) != _length(values[0]):
            raise TableError(
                f"{element}: attribute {name!r} is {value!r}, the first is {values[0]!r}",
                where=_WHERE,
                fix="Give numbers everywhere, or lists of one length.",
            )
    return _numbers(free_name(name), values)


def _check_new(column: dict[str, pa.Array], columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the columns of an attribute. Raises TableError where another attribute has a column of the same name."""
    for name in column:
        if name in columns:
            raise TableError(
                f"two columns would have the name {name!r}",
                where=_WHERE,
                fix="Rename one of the attributes, or name only those to write.",
            )
    return column


def _length(value: Any) -> int | None:
    """Return a list's length, None for a number, -1 for other values."""
    if isinstance(value, Real):
        return None
    return len(value) if isinstance(value, list | tuple | np.ndarray) else -1


def _numbers(name: str, values: Sequence[Any]) -> dict[str, pa.Array]:
    return attribute_columns(name, values, rows=len(values), where=f"{_WHERE}, attribute {name!r}")


def _labels(values: Sequence[Any], label: str) -> tuple[pa.Array, dict[str, str]]:
    given = [value for value in values if value is not None]
    if all(isinstance(value, str) for value in given):
        return class_column(values)
    if all(isinstance(value, Integral) for value in given):
        return pa.array([None if value is None else int(value) for value in _int64(values)], pa.int64()), {}
    where = f"{_WHERE}, attribute {label!r}"
    if all(isinstance(value, Real) for value in given):
        return pa.array([None if value is None else float(value) for value in values], pa.float32()), {}
    if len(given) < len(values):
        raise TableError("some nodes have several labels and some none", where=where, fix="Give every node a list.")
    return label_column(values, rows=len(values), where=where), {}


def _splits(values: Sequence[Any], elements: Sequence[str], split: str) -> pa.Array:
    for value, element in zip(values, elements, strict=True):
        if value is not None and value not in SPLITS:
            raise TableError(
                f"{element}: attribute {split!r} is {value!r}",
                where=_WHERE,
                fix=f"Use one of {', '.join(SPLITS)}, or leave it out.",
            )
    return pa.array(values, pa.string())
