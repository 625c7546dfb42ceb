"""Edge lists in text: a line per edge, with or without a header, gzipped or not.

Ids are integers where every id of both columns is written as one, else text, taken letter by letter ("007" is not "7").
Lines that start with `#` before the first row are skipped, as the public edge lists need.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.assemble import with_inputs
from gnnflow.datasets.tables import GraphTables
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.storage.agreed_schema import agreed_schema
from gnnflow.storage.csv_blocks import open_csv
from gnnflow.storage.table_files import require_file
from gnnflow.storage.user_tables import csv_chunks, read_whole, scan, schema_of


def from_edge_csv(
    path: str,
    *,
    src: str | int = 0,
    dst: str | int = 1,
    sep: str = ",",
    header: bool = True,
    weight: str | int | None = None,
    nodes: str | None = None,
    node_id: str = "id",
) -> GraphTables:
    """Return the tables of an edge list; src, dst and weight are column names or positions from 0.

    Other columns stay as edge attributes. nodes is a node table (Parquet, CSV or Arrow IPC) whose column node_id
    becomes `id`; without it the nodes are the ends of the edges in sorted order, with their degrees as inputs. Raises
    TableError for lines that do not parse, a missing column, an empty id, and ids of another type than the node
    table's.
    """
    given = None if nodes is None else _node_table(nodes, node_id)
    text = given is not None and not pa.types.is_integer(given.schema.field("id").type)
    edges = _edge_table(path, src=src, dst=dst, sep=sep, header=header, weight=weight, text=text)
    if given is None:
        ids = pc.unique(pa.chunked_array([*edges["src"].chunks, *edges["dst"].chunks]))
        return with_inputs(GraphTables(pa.table({"id": ids.take(pc.sort_indices(ids))}), edges))
    if not text and not pa.types.is_integer(edges.schema.field("src").type):
        raise TableError(
            f"ids are text, those of {nodes} integers", where=path, fix="Write both with the same type of id."
        )
    return with_inputs(GraphTables(given, edges))


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


def _edge_table(
    path: str,
    *,
    src: str | int,
    dst: str | int,
    sep: str,
    header: bool,
    weight: str | int | None,
    text: bool,
) -> pa.Table:
    require_file(path)
    file = open_csv(path, separator=_separator(sep, path), header=header, comments=True)
    _refuse_repeated(list(file.names), path)
    roles = _roles(file.names, {"src": src, "dst": dst} | ({} if weight is None else {"weight": weight}), path)
    ends = [name for name, role in roles.items() if role != "weight"]
    table = read_whole(list(csv_chunks(file)), ids=ends, text_ids=text)
    names = [roles.get(name, name) for name in table.column_names]
    _refuse_repeated(names, path)
    table = table.rename_columns(names)
    if not table.num_rows:
        raise TableError("has no edges", where=path, fix="Check the file, and --option header=false.")
    for end in ("src", "dst"):
        _check_ids(table[end], end, path)
    others = [name for name in names if name not in ("src", "dst")]
    return table.select(["src", "dst", *others])


def _roles(names: Sequence[str], asked: dict[str, str | int], path: str) -> dict[str, str]:
    """Return what each of the columns that were asked for is."""
    roles = {_column_name(names, column, path): role for role, column in asked.items()}
    if len(roles) < len(asked):
        raise TableError(
            f"src, dst and weight are not columns of their own: {', '.join(map(str, asked.values()))}",
            where=path,
            fix="Name another column for each.",
        )
    return roles


def _separator(sep: str, path: str) -> str:
    if len(sep) != 1 or not sep.isascii() or sep in '"\r\n\0':
        raise ConfigError(
            f"{sep!r} is no separator", where=path, fix="Give one character, or tab, space, comma, semicolon or pipe."
        )
    return sep


def _refuse_repeated(names: list[str], path: str) -> None:
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise TableError(f"two columns would be called {repeated[0]!r}", where=path, fix="Rename one in the file.")


def _column_name(names: Sequence[str], column: str | int, path: str) -> str:
    if isinstance(column, int) and 0 <= column < len(names):
        return names[column]
    if column in names:
        return str(column)
    raise TableError(
        f"has no column {column!r}; it has {', '.join(names)}",
        where=path,
        fix="Name columns as in the header, or by position from 0; check the separator.",
    )


def _check_ids(column: pa.ChunkedArray, end: str, path: str) -> None:
    empty = pc.fill_null(pc.equal(pc.cast(column, pa.string()), ""), fill_value=True)
    row = pc.index(empty, value=True).as_py()
    if row >= 0:
        raise TableError(f"column {end!r} is empty in row {row}", where=path, fix="Give every edge both ends.")
