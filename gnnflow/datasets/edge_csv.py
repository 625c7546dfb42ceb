"""Edge lists in text: a line per edge, with or without a header, gzipped or not.

The caller gives the roles of columns, else the header does; an error asks for a role that neither gives. Ids are
integers where every id of a type is written as one, else text, taken letter by letter ("007" is not "7"). Lines that
start with `#` before the first row are skipped, as the public edge lists need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.columns import add_degree_inputs
from gnnflow.datasets.edge_headers import (
    Neo4jHeader,
    Pair,
    are_numbers,
    find_ends,
    find_time,
    find_types,
    find_weight,
    neo4j_header,
)
from gnnflow.datasets.tables import GraphTables, TypedGraphTables, edge_type_name, type_name
from gnnflow.graph.errors import ConfigError, TableError, listed
from gnnflow.graph.schema import UNTYPED
from gnnflow.storage.columns import combine
from gnnflow.storage.csv_blocks import CsvFile, open_csv
from gnnflow.storage.table_files import require_file
from gnnflow.storage.text_types import TextType, beyond_integers, convert, facts_of
from gnnflow.storage.user_tables import (
    agreed_schema,
    csv_chunks,
    holds_text,
    read_typed,
    read_whole,
    scan,
    schema_of,
    settled,
)

_RELATION = "to"  # where the file does not name it
Column = str | int
"""A column's name, or its position from 0."""

_ONE_TYPE = ("", "")
_SEPARATORS = ("\t", ";", "|", " ")
_MOST_NAMES = 30  # in a message
_PAIR = 2


@dataclass(frozen=True)
class _Choices:
    """The roles of columns that the caller gives; None and () leave them to the header.

    types: one name for nodes of one type, two for the types of sources and targets.
    """

    src: Column | None = None
    dst: Column | None = None
    weight: Column | None = None
    time: Column | None = None
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class _EdgeColumns:
    """The names of an edge list's columns by role.

    types: of sources and targets, empty where nodes have one type. time_is_chosen: the caller chose the column of
    times; else it is used only where it holds integers. kind: the column of each edge's relation. renamed: attributes
    with a new name. ignored: columns that are left out.
    """

    src: str
    dst: str
    types: Pair
    weight: str | None
    time: str | None
    time_is_chosen: bool = False
    kind: str | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """The new names of columns that are not plain attributes."""
        named = {self.weight: "weight", self.time: "timestamp"}
        kind = {} if self.kind is None else {self.kind: "type"}
        return (
            self.renamed
            | kind
            | {self.src: "src", self.dst: "dst"}
            | {name: role for name, role in named.items() if name is not None}
        )


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

    Arguments that are left out are read from the header (ends, weight, time, types) or from the first line (the
    separator, and whether it is a header). Without a header the first two columns are the ends. types: one name for
    nodes of one type, two for the types of sources and targets. Other columns stay as edge attributes. tell: is called
    with the chosen roles. nodes is a node table (Parquet, CSV or Arrow IPC) whose column node_id becomes `id`; without
    it the nodes are the ends of the edges in sorted order, with their degrees as inputs where nodes have one type.
    Nodes of two types, and relationship types of Neo4j, give typed tables. Raises TableError where the header does not
    give the ends or their types, for lines that do not parse, a missing column, an empty id, and ids of another type
    than the node table's.
    """
    require_file(path)
    file, has_header = _open_edges(path, sep=sep, header=header)
    said = _Choices(src, dst, weight, time, tuple(types))
    columns = _find_columns(file.names, said, has_header=has_header, path=path)
    given = None if nodes is None else _node_table(nodes, node_id)
    if given is not None:
        _refuse_two_types(columns, nodes, path)
    text = given is not None and not pa.types.is_integer(given.schema.field("id").type)
    chunks = settled(
        list(csv_chunks(file)), ids=(columns.src, columns.dst), text_ids=text or columns.types != _ONE_TYPE
    )
    table = read_typed(chunks, columns=[name for name in file.names if name not in columns.ignored])
    named = columns.time
    if not columns.time_is_chosen and named and not pa.types.is_integer(table.schema.field(named).type):
        columns = replace(columns, time=None)
    if has_header and header is None:
        _check_header(table, columns, path)
    edges = _edge_table(table, columns, path)
    if given is not None and not text and not pa.types.is_integer(edges.schema.field("src").type):
        raise TableError(
            f"ids are text, and the ids of {nodes} are integers", where=path, fix="Write both with the same type of id."
        )
    tables = _tables(edges, columns, given, path)
    if tell is not None:
        taken = f"{'' if has_header else 'no header; '}{_summary(columns, tables)}"
        for line in (taken, *beyond_integers(chunks[0].types), *_hint_at_time(table, named, columns)):
            tell(f"{path}: {line}")
    return tables


def _refuse_two_types(columns: _EdgeColumns, nodes: str | None, path: str) -> None:
    if columns.types != _ONE_TYPE:
        raise TableError(
            f"the ends have two types, {' and '.join(columns.types)}, and {nodes} is one node table",
            where=path,
            fix="Leave out nodes and name your node tables in the config, or give --types NAME for nodes of one type.",
        )


def _check_header(table: pa.Table, columns: _EdgeColumns, path: str) -> None:
    """Raise TableError where both ends' names are also ids of rows: the first line may be an edge."""
    ends, ids = [columns.src, columns.dst], [table[columns.src], table[columns.dst]]
    found = [pc.is_in(pa.array(ends, each.type), value_set=combine(each)) for each in ids if holds_text(each.type)]
    if found and pc.all(reduce(pc.or_, found)).as_py():
        raise TableError(
            f"the first line names {columns.src!r} and {columns.dst!r}, and other lines have both as ids",
            where=path,
            fix="Give --option header=false where it is an edge, --option header=true where it is a header.",
        )


def _edge_table(table: pa.Table, columns: _EdgeColumns, path: str) -> pa.Table:
    """Return the edge table: src, dst and the other columns. Raises TableError for an empty end."""
    names = [columns.roles.get(name, name) for name in table.column_names]
    _refuse_repeated(names, path)
    table = table.rename_columns(names)
    if not table.num_rows:
        raise TableError("has no edges", where=path, fix="Check the file, and --option header=false.")
    for name in ("src", "dst") if columns.kind is None else ("src", "dst", "type"):
        _check_filled(table[name], name, path)
    table = table.select(["src", "dst", *(name for name in names if name not in ("src", "dst"))])
    if columns.types != _ONE_TYPE:
        for number, end in enumerate(("src", "dst")):
            table = table.set_column(number, end, _parse_ids(table[end]))
    return table


def _parse_ids(ids: pa.ChunkedArray) -> pa.Array:
    """Return text ids as integers where all ids of the type are integers."""
    return convert(ids, TextType("integer id" if facts_of(ids).exact else "text id"))


def _tables(
    edges: pa.Table, columns: _EdgeColumns, given: pa.Table | None, path: str
) -> GraphTables | TypedGraphTables:
    relations = [_RELATION] if columns.kind is None else pc.unique(edges["type"].cast(pa.string())).to_pylist()
    if columns.types != _ONE_TYPE:
        ends = {kind: [end] for kind, end in zip(columns.types, ("src", "dst"), strict=True)}
    else:
        ends = {UNTYPED.types[0]: ["src", "dst"]}
    held = {kind: given if given is not None else _collect_nodes(edges, names) for kind, names in ends.items()}
    if columns.types == _ONE_TYPE and len(relations) == 1:
        return add_degree_inputs(GraphTables(held[UNTYPED.types[0]], edges))
    types = list(held)
    by_name = {edge_type_name(types[0], name, types[-1], where=path): name for name in relations}
    if columns.kind is None:
        return TypedGraphTables(held, dict.fromkeys(by_name, edges))
    kept = [name for name in edges.column_names if name != "type"]
    kind = edges["type"].cast(pa.string())
    return TypedGraphTables(
        held, {name: edges.filter(pc.equal(kind, value)).select(kept) for name, value in by_name.items()}
    )


def _collect_nodes(edges: pa.Table, ends: Sequence[str]) -> pa.Table:
    ids = pc.unique(pa.chunked_array([chunk for end in ends for chunk in edges[end].chunks]))
    return pa.table({"id": ids.take(pc.sort_indices(ids))})


def _summary(columns: _EdgeColumns, tables: GraphTables | TypedGraphTables) -> str:
    """Return the chosen roles as text: ends, types, relations, weight, time, and the other attributes."""
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


def _hint_at_time(table: pa.Table, named: str | None, columns: _EdgeColumns) -> list[str]:
    """Return how to use a text column as times, where the header names one and it is not used."""
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
    _refuse_repeated(names, uri)
    return table.rename_columns(names)


def _check_filled(column: pa.ChunkedArray, name: str, path: str) -> None:
    empty = pc.fill_null(pc.equal(pc.cast(column, pa.string()), ""), fill_value=True)
    row = pc.index(empty, value=True).as_py()
    if row >= 0:
        raise TableError(f"column {name!r} is empty in row {row}", where=path, fix="Give every edge a value there.")


def _open_edges(path: str, *, sep: str | None, header: bool | None) -> tuple[CsvFile, bool]:
    """Return an edge list with its first line read, and whether that line is a header.

    sep: None for the comma, or another separator where there is no comma. header: None for a header unless the first
    line holds only numbers. Raises ConfigError for a separator of several characters.
    """
    if sep is not None:
        _check_separator(sep, path)
    file = open_csv(path, separator=sep or ",", comments=True)
    if sep is None and len(file.names) == 1:
        other = next((each for each in _SEPARATORS if each in file.names[0]), ",")
        file = open_csv(path, separator=other, comments=True)
    has_header = not are_numbers(file.names) if header is None else header
    if not has_header:
        file = open_csv(path, separator=file.separator, header=False, comments=True)
    _refuse_repeated(file.names, path)
    return file, has_header


def _find_columns(names: Sequence[str], said: _Choices, *, has_header: bool, path: str) -> _EdgeColumns:
    """Return the roles of columns. Raises TableError where a role is not evident and not given, or is given twice."""
    asked = {role: getattr(said, role) for role in ("src", "dst", "weight", "time")}
    found = {role: _column_name(names, column, path) for role, column in asked.items() if column is not None}
    neo4j = neo4j_header(names) if has_header else None
    src, dst = _ends(names, found, neo4j, has_header=has_header, path=path)
    others = [name for name in names if name not in (src, dst, *found.values())] if has_header else []
    weight, time = found.get("weight", find_weight(others)), found.get("time", find_time(others))
    taken = [name for name in (src, dst, weight, time) if name is not None]
    if len({*taken}) < len(taken):
        raise TableError(
            f"src, dst, weight and time are not different columns: {', '.join(taken)}",
            where=path,
            fix="Name another column for each.",
        )
    types = _types(src, dst, said.types, neo4j, has_header=has_header, path=path)
    columns = _EdgeColumns(src, dst, types, weight, time, time_is_chosen=said.time is not None)
    if neo4j is None:
        return columns
    renamed = {name: called for name, called in neo4j.names.items() if name not in taken}
    return replace(columns, kind=neo4j.kind, renamed=renamed, ignored=neo4j.ignored)


def _ends(
    names: Sequence[str], said: dict[str, str], neo4j: Neo4jHeader | None, *, has_header: bool, path: str
) -> Pair:
    if len(names) < _PAIR:
        raise TableError(
            f"has one column, {names[0]!r}",
            where=path,
            fix="Give every edge two ends; check the separator (--option sep).",
        )
    first, second = names[0], names[1]
    evident: Pair | None = (said.get("src", first), said.get("dst", second))
    if has_header and not {"src", "dst"} <= {*said}:
        evident = neo4j.ends if neo4j else find_ends(names)
    if evident is None or any(
        end in said and said[end] != name for end, name in zip(("src", "dst"), evident, strict=True)
    ):
        raise TableError(
            f"the names of the columns do not show which two are the ends of an edge: "
            f"{listed(names, at_most=_MOST_NAMES)}",
            where=path,
            fix="Give --ends SRC,DST (in Python src and dst), or --option header=false where there is no header.",
        )
    return evident


def _types(
    src: str, dst: str, said: tuple[str, ...], neo4j: Neo4jHeader | None, *, has_header: bool, path: str
) -> Pair:
    if len(said) > _PAIR or "" in said:
        raise ConfigError(f"types are {said}", where=path, fix="Give one name, or two: of sources and targets.")
    types = (said[0], said[-1]) if said else _types_by_names(src, dst, neo4j) if has_header else _ONE_TYPE
    if types is None:
        raise TableError(
            f"columns {src!r} and {dst!r} may hold nodes of one type or of two",
            where=path,
            fix="Give --types NAME for one type, --types SRC,DST for two (in Python types).",
        )
    return _ONE_TYPE if types[0] == types[1] else (type_name(types[0], where=path), type_name(types[1], where=path))


def _types_by_names(src: str, dst: str, neo4j: Neo4jHeader | None) -> Pair | None:
    if neo4j is None or (src, dst) != neo4j.ends:
        return find_types(src, dst)
    # without groups Neo4j has one space of ids for all nodes
    return neo4j.groups if all(neo4j.groups) or not any(neo4j.groups) else None


def _check_separator(sep: str, path: str) -> None:
    if len(sep) != 1 or not sep.isascii() or sep in '"\r\n\0':
        raise ConfigError(
            f"{sep!r} is not a separator",
            where=path,
            fix="Give one character, or tab, space, comma, semicolon or pipe.",
        )


def _refuse_repeated(names: Sequence[str], path: str) -> None:
    """Raise TableError where two columns have one name."""
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise TableError(f"two columns would have the name {repeated[0]!r}", where=path, fix="Rename one in the file.")


def _column_name(names: Sequence[str], column: Column, path: str) -> str:
    """Return the name of a column, given by name or position from 0. Raises TableError where there is none."""
    if isinstance(column, int) and 0 <= column < len(names):
        return names[column]
    if column in names:
        return str(column)
    raise TableError(
        f"has no column {column!r}; it has {', '.join(names)}",
        where=path,
        fix="Name columns as in the header, or by position from 0; check the separator.",
    )
