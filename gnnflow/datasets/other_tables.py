"""Tables of other programs, each read by a library of its format: databases, sheets, table formats and JSON lines.

A library is imported where it is used; without it the error names the extra to install and another way. A table is
in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from gnnflow.storage.agreed_schema import agreed_schema
from gnnflow.storage.filesystem import require_file
from gnnflow.storage.inner_tables import library, library_errors, names_in, one_of, read_inner
from gnnflow.storage.json_lines import read_json_lines
from gnnflow.storage.snapshots import open_iceberg
from gnnflow.storage.table_parts import LibraryFormat
from gnnflow.storage.user_tables import read_whole, scan, schema_of


def _read_files(path: str, _: str) -> pa.Table:
    """Return a table in files of Parquet, Arrow IPC or CSV."""
    chunks = scan(path)
    agreed_schema(chunks, columns=schema_of(chunks[0]).names)
    return read_whole(chunks)


def _read_json_lines(path: str, _: str) -> pa.Table:
    require_file(path)
    return read_json_lines(path)


def _read_inner(path: str, name: str, *, kind: LibraryFormat) -> pa.Table:
    """Return a table of a database, or a sheet of a workbook."""
    fix = "Name one: --edges NAME, and --nodes NAME where one holds the nodes."
    return read_inner(kind, path, one_of(names_in(kind, path), name, path, fix=fix))


def _read_delta(path: str, _: str) -> pa.Table:
    deltalake = library("deltalake", extra="delta", instead="write its current rows as Parquet", where=path)
    return _of_library(lambda: deltalake.DeltaTable(path).to_pyarrow_table(), path, "a Delta table")


def _read_iceberg(path: str, _: str) -> pa.Table:
    library("pyiceberg.table", extra="iceberg", instead="write its current rows as Parquet", where=path)
    table = _of_library(lambda: open_iceberg(path).scan().to_arrow(), path, "an Iceberg table")
    return table.replace_schema_metadata(None)


def _read_lance(path: str, _: str) -> pa.Table:
    lance = library("lance", extra="lance", instead="write it as Parquet", where=path)
    return _of_library(lambda: lance.dataset(path).to_table(), path, "a Lance table")


def _of_library(read: Callable[[], pa.Table], path: str, kind: str) -> pa.Table:
    with library_errors(kind, where=path, fix="Check the path, or write its current rows as Parquet."):
        return pa.table(read())


READERS: dict[str, Callable[[str, str], pa.Table]] = {
    "table": _read_files,
    "jsonl": _read_json_lines,
    "sqlite": partial(_read_inner, kind="sqlite"),
    "duckdb": partial(_read_inner, kind="duckdb"),
    "excel": partial(_read_inner, kind="excel"),
    "delta": _read_delta,
    "iceberg": _read_iceberg,
    "lance": _read_lance,
}
"""Readers of a table by kind: (place, name of a table in it) -> table."""

WITH_TABLES = ("sqlite", "duckdb", "excel")
"""The kinds of which one file holds several tables."""
