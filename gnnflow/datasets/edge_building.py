"""Builds the tables of a graph from a table of edges whose columns have roles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.columns import add_degree_inputs
from gnnflow.datasets.edge_roles import ONE_TYPE, EdgeColumns
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, edge_type_name
from gnnflow.graph.errors import TableError
from gnnflow.graph.schema import NAME, UNTYPED
from gnnflow.storage.columns import refuse_repeated
from gnnflow.storage.text_types import TextType, convert, facts_of
from gnnflow.storage.user_tables import holds_text

_RELATION = "to"  # where the file does not name it
_MOST_RELATIONS = 100  # that a column's name alone makes


def edge_table(table: pa.Table, columns: EdgeColumns, path: str) -> pa.Table:
    """Return the edge table: src, dst and the other columns. Raises TableError for an empty end."""
    names = [columns.roles.get(name, name) for name in table.column_names]
    refuse_repeated(names, path)
    table = table.rename_columns(names)
    if not table.num_rows:
        raise TableError("has no edges", where=path, fix="Check the file, and --option header=false.")
    for name in ("src", "dst") if columns.kind is None else ("src", "dst", "type"):
        _check_filled(table[name], name, path)
    return table.select(["src", "dst", *(name for name in names if name not in ("src", "dst"))])


def parse_ids(edges: pa.Table, given: Mapping[str, pa.Table], columns: EdgeColumns) -> pa.Table:
    """Return edges whose ends, read as text, are integers where all ids of the type are. given: node tables by type."""
    for number, (end, kind) in enumerate(zip(("src", "dst"), columns.types, strict=True)):
        ids, nodes = edges[end], given.get(kind)
        as_text = nodes is not None and not pa.types.is_integer(nodes.schema.field("id").type)
        exact = not as_text and facts_of(ids).exact
        edges = edges.set_column(number, end, convert(ids, TextType("integer id" if exact else "text id")))
    return edges


def graph_of(
    edges: pa.Table, columns: EdgeColumns, given: Mapping[str, pa.Table], path: str
) -> GraphTables | TypedGraphTables:
    """Return the tables of a graph; nodes without a given table are the ends of edges.

    given: node tables by type, with "" for the only type. Raises TableError where ids of an end and of its nodes have
    two types.
    """
    if columns.types != ONE_TYPE:
        ends = {kind: [end] for kind, end in zip(columns.types, ("src", "dst"), strict=True)}
    else:
        ends = {UNTYPED.types[0]: ["src", "dst"]}
        given = {UNTYPED.types[0]: given[""]} if given else {}
    for kind, names in ends.items():
        _check_ids(edges, names, given.get(kind), path)
    held = {kind: given[kind] if kind in given else _collect_nodes(edges, names) for kind, names in ends.items()}
    relations = {_RELATION: _RELATION} if columns.kind is None else relation_names(edges["type"], path)
    if columns.kind is not None and len(relations) > _MOST_RELATIONS and not columns.kind_is_chosen:
        raise TableError(
            f"column {columns.kind!r} has {len(relations)} values, each of which would be a relation with a table",
            where=path,
            fix=f"Give --option relation={columns.kind} for that, or --option relation= to keep it as an attribute.",
        )
    if columns.types == ONE_TYPE and len(relations) == 1:
        return add_degree_inputs(GraphTables(held[UNTYPED.types[0]], edges))
    types = list(held)
    by_name = {edge_type_name(types[0], name, types[-1], where=path): value for value, name in relations.items()}
    if columns.kind is None:
        return TypedGraphTables(held, dict.fromkeys(by_name, edges))
    return TypedGraphTables(held, split_by(edges, "type", by_name))


def split_by(edges: pa.Table, column: str, values: Mapping[str, str]) -> dict[str, pa.Table]:
    """Return the rows of each value, without the column. values: by the name of their table."""
    kept = [name for name in edges.column_names if name != column]
    kind = edges[column].cast(pa.string())
    return {name: edges.filter(pc.equal(kind, value)).select(kept) for name, value in values.items()}


def relation_names(column: pa.ChunkedArray, path: str) -> dict[str, str]:
    """Return the names of relations by the values of a column: values that cannot be part of a file name are changed.

    Raises TableError where two values would have one name.
    """
    values = pc.unique(column.cast(pa.string())).to_pylist()
    named = {value: value if NAME.fullmatch(value) else _plain_name(value) for value in values}
    before: dict[str, str] = {}
    for value, name in named.items():
        if not name or name in before:
            raise TableError(
                f"relation {value!r} cannot be part of a file name" + (f", nor can {before[name]!r}" if name else ""),
                where=path,
                fix="Rename it: letters, digits, '.', '-' and single '_' between them.",
            )
        before[name] = value
    return named


def _plain_name(value: str) -> str:
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9.-]", "_", value)).strip("_.-")


def _check_ids(edges: pa.Table, ends: Sequence[str], nodes: pa.Table | None, path: str) -> None:
    """Raise TableError for ids that are no integers or text, or of another type than the nodes'."""
    found = {end: edges.schema.field(end).type for end in ends}
    for end, kind in found.items():
        if not (pa.types.is_integer(kind) or holds_text(kind)):
            raise TableError(f"column {end!r} holds {kind}, not ids", where=path, fix="Write ids as integers or text.")
    if len({holds_text(kind) for kind in found.values()}) > 1:
        raise TableError(
            "the ids of sources and targets are text and integers",
            where=path,
            fix="Write both with the same type of id, or give --types SRC,DST for nodes of two types.",
        )
    ids = None if nodes is None else nodes.schema.field("id").type
    if ids is None:
        return
    is_text = holds_text(found[ends[0]])
    if is_text != holds_text(ids):
        ours, theirs = ("text", "integers") if is_text else ("integers", "text")
        raise TableError(
            f"ids are {ours}, and the ids of its nodes are {theirs}",
            where=path,
            fix="Write both with the same type of id.",
        )


def _collect_nodes(edges: pa.Table, ends: Sequence[str]) -> pa.Table:
    ids = pc.unique(pa.chunked_array([chunk for end in ends for chunk in edges[end].chunks]))
    return pa.table({"id": ids.take(pc.sort_indices(ids))})


def _check_filled(column: pa.ChunkedArray, name: str, path: str) -> None:
    empty = pc.fill_null(pc.equal(pc.cast(column, pa.string()), ""), fill_value=True)
    row = pc.index(empty, value=True).as_py()
    if row >= 0:
        raise TableError(f"column {name!r} is empty in row {row}", where=path, fix="Give every edge a value there.")
