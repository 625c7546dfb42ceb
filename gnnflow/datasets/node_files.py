"""Reads the node tables that an import of edges names.

A table belongs to the end of edges whose column it has: `movieId` of movies.csv is the end `movieId` of ratings.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.edge_roles import ONE_TYPE, EdgeColumns
from gnnflow.datasets.text_files import TextChoices, open_text, with_decimal_commas
from gnnflow.graph.errors import TableError, listed
from gnnflow.storage.agreed_schema import agreed_schema
from gnnflow.storage.columns import combine, refuse_repeated
from gnnflow.storage.user_tables import (
    csv_chunks,
    holds_text,
    read_typed,
    read_whole,
    scan,
    schema_of,
    settled,
)

USUAL_ID = "id"
_LISTS = "|"
_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".tab", ".csv.gz", ".tsv.gz", ".txt.gz", ".dat.gz")
ReadTable = Callable[[str], pa.Table]
"""Returns the table at a place."""


def read_nodes(
    places: Sequence[str], columns: EdgeColumns, *, node_id: str, said: TextChoices, read: ReadTable | None = None
) -> dict[str, pa.Table]:
    """Return node tables by type, "" for the only type.

    read: reads a table that has types; by default the place names files. Raises TableError for a table without a column
    of ids, and for two tables of one type.
    """
    held: dict[str, pa.Table] = {}
    for place in places:
        table, name = _read(place, columns, node_id, said, read)
        kind = _type_of(name, columns, place)
        if kind in held:
            raise TableError(
                f"is a second node table of {kind or 'one type'}", where=place, fix="Join the node tables of a type."
            )
        names = ["id" if each == name else each for each in table.column_names]
        refuse_repeated(names, place)
        held[kind] = table.rename_columns(names)
    return held


def is_text_file(place: str) -> bool:
    """Return whether a place names one file of text."""
    return place.lower().endswith(_TEXT_SUFFIXES)


def _read(
    place: str, columns: EdgeColumns, node_id: str, said: TextChoices, read: ReadTable | None
) -> tuple[pa.Table, str]:
    """Return a table, and its column of ids."""
    if read is not None:
        table = read(place)
        return table, _id_of(table.column_names, columns, node_id, place)
    if not is_text_file(place):
        chunks = scan(place)
        agreed_schema(chunks, columns=schema_of(chunks[0]).names)
        table = read_whole(chunks, ids=(name := _id_of(schema_of(chunks[0]).names, columns, node_id, place),))
        return table, name
    opened = open_text(place, said)
    name = _id_of(opened.names, columns, node_id, place) if opened.has_header else opened.names[0]
    file = with_decimal_commas(opened, said, ids=[name])
    return split_lists(read_typed(settled(list(csv_chunks(file)), ids=[name]))), name


def _id_of(names: Sequence[str], columns: EdgeColumns, node_id: str, place: str) -> str:
    """Return the column of ids: named by the caller, called as an end, or called id."""
    ends = (columns.src, columns.dst)
    is_typed = columns.types != ONE_TYPE
    wanted = ends if is_typed else (node_id,) if node_id != USUAL_ID else (USUAL_ID, *ends)
    found = next((name for name in wanted if name in names), None)
    if found is None:
        raise TableError(
            f"has no column {' or '.join(map(repr, wanted))}; it has {', '.join(names)}",
            where=place,
            fix="Call its id column as the end that it belongs to." if is_typed else "Give --option node_id=NAME.",
        )
    return found


def _type_of(name: str, columns: EdgeColumns, place: str) -> str:
    if columns.types == ONE_TYPE:
        return ""
    by_end = dict(zip((columns.src, columns.dst), columns.types, strict=True))
    if name not in by_end:
        raise TableError(
            f"its first column is not called {columns.src!r} or {columns.dst!r}",
            where=place,
            fix="Write a header, in which its ids are called as the end of edges that it belongs to.",
        )
    return by_end[name]


def split_lists(table: pa.Table) -> pa.Table:
    """Return a table whose text such as `Drama|Comedy` is lists of text.

    A column is split at `|` where no part is empty or has spaces around it, and a part is found several times.
    """
    for number, name in enumerate(table.column_names):
        column = combine(table[name])
        if not holds_text(column.type) or not pc.any(pc.match_substring(column, _LISTS)).as_py():
            continue
        lists = pc.split_pattern(column, _LISTS)
        parts = pc.list_flatten(lists)
        filled = pc.and_(pc.equal(pc.utf8_trim_whitespace(parts), parts), pc.not_equal(parts, ""))
        if pc.all(filled).as_py() and pc.count_distinct(parts).as_py() < len(parts):
            table = table.set_column(number, name, lists)
    return table


def lists_among(tables: Sequence[pa.Table]) -> str:
    """Return the columns of lists of text, in words for the user."""
    names = [field.name for table in tables for field in table.schema if pa.types.is_list(field.type)]
    return f"lists in {listed(names)}" if names else ""
