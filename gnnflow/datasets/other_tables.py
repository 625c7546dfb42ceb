"""Tables of other programs, each read by a library of its format: databases, sheets, table formats and JSON lines.

A library is imported where it is used; without it the error names the extra to install and another way. A table is
in memory at once.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from gnnflow.datasets.text_files import refuse_repeated
from gnnflow.graph.errors import ConfigError, TableError, listed
from gnnflow.storage.filesystem import absolute, open_input
from gnnflow.storage.json_lines import read_json_lines
from gnnflow.storage.table_files import require_file
from gnnflow.storage.user_tables import agreed_schema, read_whole, scan, schema_of

_ROWS = 1 << 16
_METADATA = "*.metadata.json"


def _library(module: str, *, extra: str, instead: str) -> Any:
    """Return a module. Raises ConfigError, with another way, where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{module} is not installed",
            where="import",
            fix=f"Install it (pip install 'gnnflow[{extra}]'), or {instead}.",
        ) from error


def _read_files(path: str, _: str) -> pa.Table:
    """Return a table in files of Parquet, Arrow IPC or CSV."""
    chunks = scan(path)
    agreed_schema(chunks, columns=schema_of(chunks[0]).names)
    return read_whole(chunks)


def _read_json_lines(path: str, _: str) -> pa.Table:
    require_file(path)
    return read_json_lines(path)


def _read_sqlite(path: str, name: str) -> pa.Table:
    """Return a table or view of a SQLite file, which is opened for reading only."""
    local = _local(path)
    try:
        with closing(sqlite3.connect(f"{local.as_uri()}?mode=ro", uri=True)) as connection:
            query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
            name = _one_of([row[0] for row in connection.execute(query)], name, path, "table")
            cursor = connection.execute(f"SELECT * FROM {_quoted(name)}")  # noqa: S608
            names = [column[0] for column in cursor.description]
            return _from_rows(names, iter(lambda: cursor.fetchmany(_ROWS), []), where=f"{path}, {name}")
    except sqlite3.Error as error:
        raise TableError("cannot be read as SQLite", where=path, fix="Check that it is a whole SQLite file.") from error


def _read_duckdb(path: str, name: str) -> pa.Table:
    """Return a table or view of a DuckDB file, which is opened for reading only."""
    duckdb = _library("duckdb", extra="duckdb", instead="write it as Parquet: COPY t TO 't.parquet'")
    local = _local(path)
    try:
        with duckdb.connect(str(local), read_only=True) as connection:
            query = "SELECT table_name FROM information_schema.tables ORDER BY table_name"
            name = _one_of([row[0] for row in connection.execute(query).fetchall()], name, path, "table")
            return connection.sql(f"SELECT * FROM {_quoted(name)}").to_arrow_table()  # noqa: S608
    except duckdb.Error as error:
        raise TableError(
            "cannot be read as DuckDB", where=path, fix="Check the file, and the version of DuckDB that wrote it."
        ) from error


def _read_excel(path: str, name: str) -> pa.Table:
    """Return a sheet of an Excel file: the first row has the columns' names. Formulas give their saved values."""
    openpyxl = _library("openpyxl", extra="excel", instead="save the sheet as CSV")
    require_file(path)
    with open_input(path) as stream:
        try:
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
        except Exception as error:  # of zip, XML or openpyxl: a file of another format
            raise TableError("cannot be read as Excel (.xlsx)", where=path, fix="Save the sheet as CSV.") from error
        with closing(book):
            name = _one_of(book.sheetnames, name, path, "sheet")
            rows = (row for row in book[name].iter_rows(values_only=True) if any(value is not None for value in row))
            header = tuple(next(rows, ()))
            used = [number for number, value in enumerate(header) if value is not None]
            chosen = [tuple(row[number] if number < len(row) else None for number in used) for row in rows]
    return _from_rows([str(header[number]) for number in used], iter([chosen]), where=f"{path}, {name}")


def _read_delta(path: str, _: str) -> pa.Table:
    deltalake = _library("deltalake", extra="delta", instead="write its current rows as Parquet")
    return _of_library(lambda: deltalake.DeltaTable(path).to_pyarrow_table(), path, "a Delta table")


def _read_iceberg(path: str, _: str) -> pa.Table:
    tables = _library("pyiceberg.table", extra="iceberg", instead="write its current rows as Parquet")
    local = _local(path)
    found = [local] if local.is_file() else _newest_metadata(local)
    if not found:
        raise TableError("has no metadata of Iceberg", where=path, fix="Name the table's root, or a .metadata.json.")
    table = _of_library(
        lambda: tables.StaticTable.from_metadata(found[-1].as_uri()).scan().to_arrow(), path, "an Iceberg table"
    )
    return table.replace_schema_metadata(None)


def _newest_metadata(root: Path) -> list[Path]:
    """Return the metadata files of an Iceberg table, the current one last, by version-hint.text or by number."""
    hint = root / "metadata" / "version-hint.text"
    if hint.is_file() and (root / "metadata" / f"v{hint.read_text().strip()}.metadata.json").is_file():
        return [root / "metadata" / f"v{hint.read_text().strip()}.metadata.json"]
    names = (root / "metadata").glob(_METADATA)
    numbered = [(int("".join(filter(str.isdigit, name.name.split("-")[0].split(".")[0])) or 0), name) for name in names]
    return [name for _, name in sorted(numbered)]


def _read_lance(path: str, _: str) -> pa.Table:
    lance = _library("lance", extra="lance", instead="write it as Parquet")
    return _of_library(lambda: lance.dataset(path).to_table(), path, "a Lance table")


def _of_library(read: Callable[[], pa.Table], path: str, kind: str) -> pa.Table:
    try:
        return pa.table(read())
    except Exception as error:  # each of these libraries has errors without a common class
        raise TableError(
            f"cannot be read as {kind} ({type(error).__name__})",
            where=path,
            fix="Check the path, or write its current rows as Parquet.",
        ) from error


READERS: dict[str, Callable[[str, str], pa.Table]] = {
    "table": _read_files,
    "jsonl": _read_json_lines,
    "sqlite": _read_sqlite,
    "duckdb": _read_duckdb,
    "excel": _read_excel,
    "delta": _read_delta,
    "iceberg": _read_iceberg,
    "lance": _read_lance,
}
"""Readers of a table by kind: (place, name of a table in it) -> table."""

WITH_TABLES = ("sqlite", "duckdb", "excel")
"""The kinds of which one file holds several tables."""


def _local(path: str) -> Path:
    """Return a local path. Raises TableError for another location, which the library could not open."""
    if "://" in path and not path.startswith("file://"):
        raise TableError("is not on this machine", where=path, fix="Copy the file here first.")
    local = Path(absolute(path).removeprefix("file://"))
    if not local.exists():
        raise TableError("no such file", where=path, fix="Check the path.")
    return local


def _one_of(names: Sequence[str], name: str, path: str, kind: str) -> str:
    """Return the named table, or the only one. Raises TableError, with the tables, where that leaves it open."""
    if name in names or (not name and len(names) == 1):
        return name or names[0]
    problem = f"has no {kind} {name!r}" if name else f"has {len(names)} {kind}s"
    raise TableError(
        f"{problem}: {listed(names, at_most=30) or 'it is empty'}",
        where=path,
        fix="Name one: --edges NAME, and --nodes NAME where one holds the nodes.",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _from_rows(names: Sequence[str], pieces: Any, *, where: str) -> pa.Table:
    """Return a table of rows in pieces. Raises TableError for a column that holds values of several kinds."""
    refuse_repeated(names, where)
    if not names:
        raise TableError("has no columns", where=where, fix="Write the columns' names in the first row.")
    held: list[list[Any]] = [[] for _ in names]
    for rows in pieces:
        for column, part in zip(held, zip(*rows, strict=True), strict=False):
            column.extend(part)
    columns = {}
    for name, values in zip(names, held, strict=True):
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise TableError(
                f"column {name!r} holds values of several kinds", where=where, fix="Write one kind into the column."
            ) from error
    return pa.table(columns)
