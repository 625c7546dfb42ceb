"""Edge lists in text: a line per edge, with or without a header, gzipped or not.

`edge_columns.py` says what each column is. Ids are integers where every id of a type is written as one, else text,
taken letter by letter ("007" is not "7"). Lines that start with `#` before the first row are skipped, as the public
edge lists need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.assemble import with_inputs
from gnnflow.datasets.edge_columns import (
    ONE_TYPE,
    Column,
    EdgeColumns,
    Said,
    open_edges,
    refuse_repeated,
    understood,
)
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, edge_type_name
from gnnflow.graph.errors import TableError, listed
from gnnflow.graph.schema import UNTYPED
from gnnflow.storage.agreed_schema import agreed_schema, holds_text
from gnnflow.storage.columns import combine
from gnnflow.storage.table_files import require_file
from gnnflow.storage.text_types import TextType, beyond_integers, convert, facts_of
from gnnflow.storage.user_tables import csv_chunks, read_typed, read_whole, scan, schema_of, settled

_RELATION = "to"  # where the file has no name for it


def from_edge_csv(
    path: str,
    *,
    src: Column | None = None,
    dst: Column | None = None,
    types: Sequence[str] = (),
    sep: str | None = None,
    header: bool | None = None,
    weight: Column | None = None,
    time: Column | None = None,
    nodes: str | None = None,
    node_id: str = "id",
    tell: Callable[[str], None] | None = None,
) -> GraphTables | TypedGraphTables:
    """Return the tables of an edge list; src, dst, weight and time are column names or positions from 0.

    What is left out is read from the header: ends, weight, time, types, and from the first line the separator and
    whether it is a header. Without a header the first two columns are the ends. types: one name for nodes of one type,
    two for those of sources and of targets. Other columns stay as edge attributes. tell: hears what was taken for what.
    nodes is a node table (Parquet, CSV or Arrow IPC) whose column node_id becomes `id`; without it the nodes are the
    ends of the edges in sorted order, with their degrees as inputs where nodes are of one type. Nodes of two types, and
    relationship types of Neo4j, give typed tables. Raises TableError where the header leaves open which columns are the
    ends or whether these are of one type, for lines that do not parse, a missing column, an empty id, and ids of
    another type than the node table's.
    """
    require_file(path)
    file, has_header = open_edges(path, sep=sep, header=header)
    said = Said(src, dst, weight, time, tuple(types))
    columns = understood(file.names, said, has_header=has_header, path=path)
    given = None if nodes is None else _node_table(nodes, node_id)
    if given is not None:
        _refuse_two_types(columns, nodes, path)
    text = given is not None and not pa.types.is_integer(given.schema.field("id").type)
    chunks = settled(list(csv_chunks(file)), ids=(columns.src, columns.dst), text_ids=text or columns.types != ONE_TYPE)
    table = read_typed(chunks, columns=[name for name in file.names if name not in columns.ignored])
    named = columns.time
    if not columns.time_is_said and named and not pa.types.is_integer(table.schema.field(named).type):
        columns = replace(columns, time=None)
    if has_header and header is None:
        _check_header(table, columns, path)
    edges = _edge_table(table, columns, path)
    if given is not None and not text and not pa.types.is_integer(edges.schema.field("src").type):
        raise TableError(
            f"ids are text, those of {nodes} integers", where=path, fix="Write both with the same type of id."
        )
    tables = _tables(edges, columns, given, path)
    if tell is not None:
        taken = f"{'' if has_header else 'no header; '}{_summary(columns, tables)}"
        for line in (taken, *beyond_integers(chunks[0].types), *_unread_time(table, named, columns)):
            tell(f"{path}: {line}")
    return tables


def _refuse_two_types(columns: EdgeColumns, nodes: str | None, path: str) -> None:
    if columns.types != ONE_TYPE:
        raise TableError(
            f"the ends are of two types, {' and '.join(columns.types)}, and {nodes} is one node table",
            where=path,
            fix="Leave out nodes and name your node tables in the config, or give --types NAME for nodes of one type.",
        )


def _check_header(table: pa.Table, columns: EdgeColumns, path: str) -> None:
    """Raise TableError where the names of both ends are ids of the rows too: the first line may be an edge."""
    ends, ids = [columns.src, columns.dst], [table[columns.src], table[columns.dst]]
    found = [pc.is_in(pa.array(ends, each.type), value_set=combine(each)) for each in ids if holds_text(each.type)]
    if found and pc.all(reduce(pc.or_, found)).as_py():
        raise TableError(
            f"the first line names {columns.src!r} and {columns.dst!r}, and other lines have both as ids",
            where=path,
            fix="Give --option header=false where it is an edge, --option header=true where it is a header.",
        )


def _edge_table(table: pa.Table, columns: EdgeColumns, path: str) -> pa.Table:
    """Return src, dst and the other columns by their names. Raises TableError for an end that is empty."""
    names = [columns.roles.get(name, name) for name in table.column_names]
    refuse_repeated(names, path)
    table = table.rename_columns(names)
    if not table.num_rows:
        raise TableError("has no edges", where=path, fix="Check the file, and --option header=false.")
    for name in ("src", "dst") if columns.kind is None else ("src", "dst", "type"):
        _check_given(table[name], name, path)
    table = table.select(["src", "dst", *(name for name in names if name not in ("src", "dst"))])
    if columns.types != ONE_TYPE:
        for number, end in enumerate(("src", "dst")):
            table = table.set_column(number, end, _told(table[end]))
    return table


def _told(ids: pa.ChunkedArray) -> pa.Array:
    """Return ids in text as integers, where all of one type of nodes are."""
    return convert(ids, TextType("integer id" if facts_of(ids).exact else "text id"))


def _tables(edges: pa.Table, columns: EdgeColumns, given: pa.Table | None, path: str) -> GraphTables | TypedGraphTables:
    relations = [_RELATION] if columns.kind is None else pc.unique(edges["type"].cast(pa.string())).to_pylist()
    if columns.types != ONE_TYPE:
        ends = {kind: [end] for kind, end in zip(columns.types, ("src", "dst"), strict=True)}
    else:
        ends = {UNTYPED.types[0]: ["src", "dst"]}
    held = {kind: given if given is not None else _nodes_at(edges, names) for kind, names in ends.items()}
    if columns.types == ONE_TYPE and len(relations) == 1:
        return with_inputs(GraphTables(held[UNTYPED.types[0]], edges))
    types = list(held)
    by_name = {edge_type_name(types[0], name, types[-1], where=path): name for name in relations}
    if columns.kind is None:
        return TypedGraphTables(held, dict.fromkeys(by_name, edges))
    kept = [name for name in edges.column_names if name != "type"]
    kind = edges["type"].cast(pa.string())
    return TypedGraphTables(
        held, {name: edges.filter(pc.equal(kind, value)).select(kept) for name, value in by_name.items()}
    )


def _nodes_at(edges: pa.Table, ends: Sequence[str]) -> pa.Table:
    ids = pc.unique(pa.chunked_array([chunk for end in ends for chunk in edges[end].chunks]))
    return pa.table({"id": ids.take(pc.sort_indices(ids))})


def _summary(columns: EdgeColumns, tables: GraphTables | TypedGraphTables) -> str:
    """Return what was taken for what: ends, types, relations, weight, time, and the attributes that are left."""
    parts = [f"ends {columns.src} -> {columns.dst}"]
    if isinstance(tables, GraphTables):
        edges = tables.edges
        parts += ["nodes of one type"]
    else:
        edges = next(iter(tables.edges.values()))
        parts += [f"types {listed(list(tables.nodes))}", f"relations {listed(list(tables.edges))}"]
    taken = {"weight": columns.weight, "timestamp": columns.time}
    parts += [f"weight {columns.weight or 'none'}", f"time {columns.time or 'none'}"]
    left = [name for name in edges.column_names if name not in ("src", "dst") and not taken.get(name)]
    return "; ".join([*parts, f"attributes {listed(left) or 'none'}"])


def _unread_time(table: pa.Table, named: str | None, columns: EdgeColumns) -> list[str]:
    """Return how a column of text becomes the time, where the header names one and it is not taken for it."""
    if named is None or columns.time is not None or not holds_text(table.schema.field(named).type):
        return []
    return [f"{named} is text; --option time={named} takes text of ISO dates as times"]


def _node_table(uri: str, node_id: str) -> pa.Table:
    chunks = scan(uri)
    agreed_schema(chunks, columns=schema_of(chunks[0]).names)
    table = read_whole(chunks, ids=[node_id])
    if node_id not in table.column_names:
        raise TableError(
            f"has no column {node_id!r}; it has {', '.join(table.column_names)}", where=uri, fix="Name its id column."
        )
    names = ["id" if name == node_id else name for name in table.column_names]
    refuse_repeated(names, uri)
    return table.rename_columns(names)


def _check_given(column: pa.ChunkedArray, name: str, path: str) -> None:
    empty = pc.fill_null(pc.equal(pc.cast(column, pa.string()), ""), fill_value=True)
    row = pc.index(empty, value=True).as_py()
    if row >= 0:
        raise TableError(f"column {name!r} is empty in row {row}", where=path, fix="Give every edge a value there.")
