"""Edge lists in text: a line per edge, with or without a header, gzipped or not.

The caller gives the roles of columns, else the header does; an error asks for a role that neither gives. Ids are
integers where every id of a type is written as one, else text, taken letter by letter ("007" is not "7"). Lines that
start with `#` or `%` before the first row are skipped, as the public edge lists need; below it where all begin so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.edge_building import edge_table, graph_of, parse_ids
from gnnflow.datasets.edge_roles import ONE_TYPE, Column, EdgeChoices, EdgeColumns, find_columns, summary
from gnnflow.datasets.node_files import USUAL_ID, ReadTable, lists_among, read_nodes
from gnnflow.datasets.options import Tell
from gnnflow.datasets.tables import GraphTables, TypedGraphTables
from gnnflow.datasets.text_files import TextChoices, open_text, with_decimal_commas
from gnnflow.graph.errors import TableError
from gnnflow.storage.columns import combine
from gnnflow.storage.csv_blocks import is_zipped, read_head
from gnnflow.storage.filesystem import require_file
from gnnflow.storage.text_types import beyond_integers
from gnnflow.storage.user_tables import csv_chunks, holds_numbers, holds_text, read_typed, settled

_PAIR, _TRIPLE = 2, 3
_BIPARTITE = b"% bip"  # as the first line of a list of KONECT begins


@dataclass(frozen=True)
class NodePlaces:
    """The node tables of an import: their places, and the column of ids of a single one.

    read: returns the table at a place; None where places are files.
    """

    places: tuple[str, ...] = ()
    node_id: str = USUAL_ID
    read: ReadTable | None = None


def from_edge_csv(
    path: str,
    *,
    src: Column | None = None,
    dst: Column | None = None,
    types: Sequence[str] = (),
    sep: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    decimal: str = "",
    counts: bool | None = None,
    weight: Column | None = None,
    time: Column | None = None,
    relation: Column | None = None,
    nodes: str | Sequence[str] | None = None,
    node_id: str = USUAL_ID,
    tell: Tell | None = None,
) -> GraphTables | TypedGraphTables:
    """Return the tables of an edge list; src, dst, weight, time and relation are column names or positions from 0.

    Arguments that are left out are read from the header (ends, weight, time, types, relation) or from the first lines
    (the separator, quotes, decimal commas, and whether there is a header). Without a header the first two columns are
    the ends. types: one name for nodes of one type, two for the types of sources and targets. Other columns stay as
    edge attributes. counts: without a header, True where the first line has the numbers of nodes and edges; None asks
    where it may have. relation: each of its values is a relation; "" keeps such a column as an attribute. decimal:
    comma or point. tell: is called with what was found. nodes are node tables (Parquet, CSV or Arrow IPC): for nodes of
    one type one, whose column node_id becomes `id`; for two types each has its ids in a column called as an end.
    Without them the nodes are the ends of the edges in sorted order, with their degrees as inputs where nodes have one
    type. Nodes of two types, and several relations, give typed tables. Raises TableError where the header does not give
    the ends or their types, for lines that do not parse, a missing column, an empty id, and ids of another type than
    the node table's.
    """
    require_file(path)
    form = TextChoices(sep, header, encoding, decimal)
    opened = open_text(path, form)
    said = EdgeChoices(src, dst, weight, time, relation, tuple(types))
    is_bipartite = read_head(path, zipped=is_zipped(path)).startswith(_BIPARTITE)
    columns = find_columns(opened.names, said, has_header=opened.has_header, path=path, is_bipartite=is_bipartite)
    places = (nodes,) if isinstance(nodes, str) else tuple(nodes or ())
    _refuse_one_table(columns, places, path)
    given = read_nodes(places, columns, node_id=node_id, said=replace(form, sep=None, header=None))
    text = any(not pa.types.is_integer(table.schema.field("id").type) for table in given.values())
    file = with_decimal_commas(opened, form, ids=(columns.src, columns.dst))
    chunks = settled(list(csv_chunks(file)), ids=(columns.src, columns.dst), text_ids=text or columns.types != ONE_TYPE)
    table = read_typed(chunks, columns=[name for name in file.names if name not in columns.ignored])
    if not opened.has_header and counts is None:
        _refuse_counts(table, columns, path)
    table = table.slice(1) if counts and not opened.has_header else table
    if not opened.has_header and said == EdgeChoices(weight=weight, time=time):
        _refuse_triples(table, path)
    if opened.has_header and header is None:
        _check_header(table, columns, path)
    tables, taken = _tables_of(table, columns, given, path, parses_ids=True)
    if tell is not None:
        taken[0] = f"{file.text}; {taken[0]}" if file.text else taken[0]
        for line in (*taken[:1], *beyond_integers(chunks[0].types), *taken[1:]):
            tell(f"{path}: {line}")
    return tables


def from_edge_table(
    table: pa.Table, *, path: str, said: EdgeChoices, nodes: NodePlaces, tell: Tell | None = None
) -> GraphTables | TypedGraphTables:
    """Return the tables of a graph whose edges are rows of a table with types.

    Raises TableError where the columns' names do not show the ends or their types.
    """
    columns = find_columns(table.column_names, said, has_header=True, path=path)
    _refuse_one_table(columns, nodes.places, path)
    given = read_nodes(nodes.places, columns, node_id=nodes.node_id, said=TextChoices(), read=nodes.read)
    tables, taken = _tables_of(table.drop_columns(list(columns.ignored)), columns, given, path)
    if tell is not None:
        for line in taken:
            tell(f"{path}: {line}")
    return tables


def _tables_of(
    table: pa.Table, columns: EdgeColumns, given: dict[str, pa.Table], path: str, *, parses_ids: bool = False
) -> tuple[GraphTables | TypedGraphTables, list[str]]:
    """Return the tables, and what was found. parses_ids: ends of two types are text that may be integers."""
    named = columns.time
    if not columns.time_is_chosen and named and not pa.types.is_integer(table.schema.field(named).type):
        columns = replace(columns, time=None)
    edges = edge_table(table, columns, path)
    if parses_ids and columns.types != ONE_TYPE:
        edges = parse_ids(edges, given, columns)
    tables = graph_of(edges, columns, given, path)
    lists = lists_among(list(given.values()))
    return tables, [summary(columns, tables), *([lists] if lists else []), *_hint_at_time(table, named, columns)]


def _refuse_one_table(columns: EdgeColumns, places: Sequence[str], path: str) -> None:
    """Raise TableError for several node tables of one type."""
    if columns.types == ONE_TYPE and len(places) > 1:
        raise TableError(
            f"nodes have one type, and there are {len(places)} node tables",
            where=path,
            fix="Join them, or give --types SRC,DST for nodes of two types.",
        )


def _refuse_counts(table: pa.Table, columns: EdgeColumns, path: str) -> None:
    """Raise TableError where the first line may have the numbers of nodes and edges, as some lists begin."""
    ends = [columns.src, columns.dst]
    numbers = [name for name in table.column_names if holds_numbers(table.schema.field(name).type)]
    are_whole = all(pa.types.is_integer(table.schema.field(end).type) for end in ends)
    if table.num_rows < _PAIR or numbers[:_PAIR] != ends or not are_whole:
        return
    first, rest = table.slice(0, 1).to_pylist()[0], table.slice(1)
    ids = pc.unique(pa.chunked_array([chunk for end in ends for chunk in rest[end].chunks]))
    if rest.num_rows in [first[name] for name in numbers[1:_TRIPLE]] and first[columns.src] >= len(ids):
        line = " ".join(f"{first[name]:g}" for name in numbers[:_TRIPLE])
        raise TableError(
            f"the first line, {line}, may be an edge or the numbers of nodes and edges",
            where=path,
            fix="Give --option counts=true where it has such numbers, --option counts=false where it is an edge.",
        )


def _refuse_triples(table: pa.Table, path: str) -> None:
    """Raise TableError for three columns of text without a header, whose second may be a relation."""
    if len(table.schema) == _TRIPLE and all(holds_text(field.type) for field in table.schema):
        raise TableError(
            "has three columns of text and no header: the second may be a relation or an end",
            where=path,
            fix="Give it as triples:PATH where lines are head, relation, tail; else --ends 0,1.",
        )


def _check_header(table: pa.Table, columns: EdgeColumns, path: str) -> None:
    """Raise TableError where both ends' names are also ids of rows: the first line may be an edge."""
    ends, ids = [columns.src, columns.dst], [table[columns.src], table[columns.dst]]
    found = [pc.is_in(pa.array(ends, each.type), value_set=combine(each)) for each in ids if holds_text(each.type)]
    if found and pc.all(reduce(pc.or_, found)).as_py():
        raise TableError(
            f"the first line names {columns.src!r} and {columns.dst!r}, and other lines have both as ids",
            where=path,
            fix="Give --option header=false where it is an edge, --option header=true where it is a header.",
        )


def _hint_at_time(table: pa.Table, named: str | None, columns: EdgeColumns) -> list[str]:
    """Return how to use a text column as times, where the header names one and it is not used."""
    if named is None or columns.time is not None or not holds_text(table.schema.field(named).type):
        return []
    return [f"{named} is text; --option time={named} takes text of ISO dates as times"]
