"""Edge lists in text: a line per edge, with or without a header, gzipped or not.

Ids are integers where every id of both columns is one, else text, taken letter by letter ("007" is not "7"). Lines that
start with `#` before the first row are skipped, as the public edge lists need.
"""

from __future__ import annotations

from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from gnnflow.datasets.assemble import with_inputs
from gnnflow.datasets.tables import GraphTables
from gnnflow.graph.errors import TableError
from gnnflow.storage.filesystem import open_input
from gnnflow.storage.tables import read_chunk, scan


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
    table = pa.concat_tables([read_chunk(chunk) for chunk in scan(uri)]).combine_chunks()
    if node_id not in table.column_names:
        raise TableError(
            f"has no column {node_id!r}; it has {', '.join(table.column_names)}", where=uri, fix="Name its id column."
        )
    return table.rename_columns({node_id: "id"})


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
    table = _read(path, sep=sep, header=header, text=())
    ends = [_column_name(table, column, path) for column in (src, dst)]
    roles = dict(zip(ends, ("src", "dst"), strict=True))
    if weight is not None:
        roles[_column_name(table, weight, path)] = "weight"
    if text or not all(pa.types.is_integer(table.schema.field(name).type) for name in ends):
        table = _read(path, sep=sep, header=header, text=tuple(ends))
    names = [roles.get(name, name) for name in table.column_names]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise TableError(f"two columns would be called {repeated[0]!r}", where=path, fix="Rename one in the file.")
    table = table.rename_columns(names).combine_chunks()
    for end in ("src", "dst"):
        _check_ids(table[end], end, path)
    others = [name for name in names if name not in ("src", "dst")]
    return table.select(["src", "dst", *others])


def _column_name(table: pa.Table, column: str | int, path: str) -> str:
    if isinstance(column, int) and 0 <= column < table.num_columns:
        return str(table.column_names[column])
    if column in table.column_names:
        return str(column)
    raise TableError(
        f"has no column {column!r}; it has {', '.join(table.column_names)}",
        where=path,
        fix="Name columns as in the header, or by position from 0; check the separator.",
    )


def _check_ids(column: pa.ChunkedArray, end: str, path: str) -> None:
    empty = pc.fill_null(pc.equal(pc.cast(column, pa.string()), ""), fill_value=True)
    row = pc.index(empty, value=True).as_py()
    if row >= 0:
        raise TableError(f"column {end!r} is empty in row {row}", where=path, fix="Give every edge both ends.")


def _read(path: str, *, sep: str, header: bool, text: tuple[str, ...]) -> pa.Table:
    with _open(path) as stream:
        # The head is enough: comments come before the first row, and their lines are short.
        lines = stream.read(1 << 16).split(b"\n")
    comments = next((number for number, line in enumerate(lines) if not line.startswith(b"#")), len(lines))
    reading = pa_csv.ReadOptions(skip_rows=comments, autogenerate_column_names=not header)
    parsing = pa_csv.ParseOptions(delimiter=sep)
    converting = pa_csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()))
    with _open(path) as stream:
        try:
            return pa_csv.read_csv(stream, read_options=reading, parse_options=parsing, convert_options=converting)
        except pa.ArrowInvalid as error:
            first = str(error).splitlines()[0]
            raise TableError(
                f"cannot be read as text with the separator {sep!r} ({first})", where=path, fix="Check the separator."
            ) from error


def _open(path: str) -> Any:
    stream: IO[bytes] = open_input(path)
    return pa.CompressedInputStream(stream, "gzip") if path.endswith(".gz") else stream
