"""Reads tables within a file of several: SQLite and DuckDB databases, and workbooks of Excel. A sheet is read at once.

In a config `shop.db#orders` is the table `orders` of `shop.db`. A library is imported where it is used; without it the
error names the extra to install.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from gnnflow.graph.errors import ConfigError, GnnflowError, StorageError, TableError, listed
from gnnflow.storage.columns import refuse_repeated
from gnnflow.storage.filesystem import absolute, exists, open_input, require_file
from gnnflow.storage.table_parts import LibraryFormat, LibraryPart

MARK = "#"
"""Stands between a file and the name of a table in it."""

_KINDS: dict[str, LibraryFormat] = {
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".duckdb": "duckdb",
    ".xlsx": "excel",
    ".xlsm": "excel",
}
_ROWS = 1 << 16
_SQLITE_TYPES = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "blob": pa.binary()}
_MOST_COUNTED = 1000  # figures of one query
_MOST_KEPT = 64 << 20  # bytes of a sheet
_DUCKDB = b"DUCK"
_HEAD = 12  # bytes, of which a DuckDB file has its mark in the last four


def library(module: str, *, extra: str, instead: str, where: str) -> Any:
    """Return a module. Raises ConfigError, with another way, where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{module} is not installed",
            where=where,
            fix=f"Install it (pip install 'gnnflow[{extra}]'), or {instead}.",
        ) from error


@contextmanager
def library_errors(
    kind: str, *, where: str, fix: str, error: type[TableError | StorageError] = TableError
) -> Iterator[None]:
    """Turn any error of a library, whose errors have no common class, into one that names the kind of table."""
    try:
        yield
    except GnnflowError:
        raise
    except Exception as cause:
        raise error(f"cannot be read as {kind} ({type(cause).__name__})", where=where, fix=fix) from cause


def inner_part(uri: str) -> LibraryPart | None:
    """Return the table that a place such as `shop.db#orders` names; None for another place.

    Raises TableError where the file has other tables, or several and none is named.
    """
    place, name = (uri, "") if exists(uri) else _file_and_name(uri)
    kind = _kind_of(place)
    if kind is None or not exists(place):
        return None
    return LibraryPart(kind, place, one_of(names_in(kind, place), name, place, fix=f"Name one: {place}{MARK}NAME."))


def _file_and_name(uri: str) -> tuple[str, str]:
    """Return the file of several tables and the name after it; files, folders and names may each hold the mark."""
    marks = [number for number, letter in enumerate(uri) if letter == MARK]
    found = [(uri[:mark], uri[mark + 1 :]) for mark in marks if _kind_of(uri[:mark]) is not None]
    return next((each for each in found if exists(each[0])), (found or [(uri, "")])[-1])


def tables_of(uri: str) -> list[str]:
    """Return the places of all tables in a file of several; the place itself for another, and for one sheet.

    Views hold rows of tables again, so they are none of these where there are tables.
    """
    kind = _kind_of(uri)
    if kind is None or not exists(uri):
        return [uri]
    names = names_in(kind, uri, views=False) or names_in(kind, uri)
    # a sheet's name says less than the file's: Sheet1
    return [uri] if kind == "excel" and len(names) == 1 else [f"{uri}{MARK}{name}" for name in names]


def _kind_of(place: str) -> LibraryFormat | None:
    lower = place.lower()
    kind = next((found for suffix, found in _KINDS.items() if lower.endswith(suffix)), None)
    if lower.endswith(".db") and exists(place):
        with open_input(place) as stream:
            return "duckdb" if stream.read(_HEAD)[-len(_DUCKDB) :] == _DUCKDB else kind
    return kind


def names_in(kind: LibraryFormat, path: str, *, views: bool = True) -> list[str]:
    """Return the names of a file's tables, views or sheets. views: False leaves views out."""
    if kind == "sqlite":
        query = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        with _sqlite(path) as connection:
            return [name for name, of in connection.execute(query) if views or of != "view"]
    if kind == "duckdb":
        query = (
            "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = current_schema() "
            "ORDER BY table_name"
        )
        with _duckdb(path) as connection:
            return [name for name, of in connection.execute(query).fetchall() if views or of != "VIEW"]
    with _workbook(path) as book:
        return [sheet.title for sheet in book.worksheets]  # the other sheets are charts


def inner_schema(kind: LibraryFormat, path: str, name: str) -> tuple[pa.Schema, int]:
    """Return the schema of a table or a sheet, and its number of rows. Only a sheet is read for it.

    Raises TableError where the file is not of the kind.
    """
    if kind == "sqlite":
        return _sqlite_schema(path, name)
    if kind == "duckdb":
        with _duckdb(path) as connection:
            schema: pa.Schema = connection.sql(f"SELECT * FROM {_quoted(name)} LIMIT 0").to_arrow_table().schema  # noqa: S608
            ((rows,),) = connection.execute(f"SELECT count(*) FROM {_quoted(name)}").fetchall()  # noqa: S608
            return schema, int(rows)
    sheet = _sheet(path, name)
    return sheet.schema, sheet.num_rows


def read_inner(
    kind: LibraryFormat, path: str, name: str, *, columns: Sequence[str] | None = None, rows: int | None = None
) -> pa.Table:
    """Return a table of a database, opened for reading only, or a sheet, whose first row has the columns' names.

    columns: those to read, None for all; rows: the first ones to read, None for all. Formulas give their saved values.
    Raises TableError where the file is not of the kind.
    """
    if kind == "excel":
        sheet = _sheet(path, name)
        return (sheet if columns is None else sheet.select(list(columns))).slice(0, rows)
    asked = "*" if columns is None else ", ".join(map(_quoted, columns)) or "NULL"
    query = f"SELECT {asked} FROM {_quoted(name)}" + ("" if rows is None else f" LIMIT {rows:d}")  # noqa: S608
    if kind == "duckdb":
        with _duckdb(path) as connection:
            found: pa.Table = connection.sql(query).to_arrow_table()
        return found.select(found.column_names if columns is None else list(columns))
    types = _sqlite_schema(path, name)[0]
    with _sqlite(path) as connection:
        cursor = connection.execute(query)
        names = [column[0] for column in cursor.description]
        pieces = iter(lambda: cursor.fetchmany(_ROWS), [])
        return _from_rows(names, pieces, where=f"{path}, {name}", types=types).select(
            columns if columns is not None else names
        )


def _sqlite_schema(path: str, name: str) -> tuple[pa.Schema, int]:
    """Return the types that the values of a SQLite table have, whatever is declared, and the number of its rows."""
    where = f"{path}, {name}"
    with _sqlite(path) as connection:
        names = [column[0] for column in connection.execute(f"SELECT * FROM {_quoted(name)} LIMIT 0").description]  # noqa: S608
        refuse_repeated(names, where)
        # of each column the number of values of each kind
        kinds = [f"sum(typeof({_quoted(column)}) = '{kind}')" for column in names for kind in _SQLITE_TYPES]
        counts = []
        for first in range(0, len(kinds), _MOST_COUNTED):
            asked = ", ".join(["count(*)", *kinds[first : first + _MOST_COUNTED]])
            ((rows, *some),) = connection.execute(f"SELECT {asked} FROM {_quoted(name)}").fetchall()  # noqa: S608
            counts += some
    fields = []
    for number, column in enumerate(names):
        held = dict(zip(_SQLITE_TYPES, counts[len(_SQLITE_TYPES) * number :], strict=False))
        found = [kind for kind, count in held.items() if count]
        if len(found) > 1 and {*found} != {"integer", "real"}:
            raise _several_kinds(column, where)
        fields.append(pa.field(column, _SQLITE_TYPES[found[-1]] if found else pa.null()))
    return pa.schema(fields), rows


_last: dict[tuple[str, str, int, int], pa.Table] = {}


def _sheet(path: str, name: str) -> pa.Table:
    """Return a sheet of a workbook. The last small one is kept, since its schema and its rows are asked for apart."""
    local = Path(path)
    status = local.stat() if local.exists() else None
    key = None if status is None else (str(local.absolute()), name, status.st_mtime_ns, status.st_size)
    if key is None or (found := _last.get(key)) is None:
        found = _read_sheet(path, name)
        _last.clear()
        if key is not None and found.nbytes <= _MOST_KEPT:
            _last[key] = found
    return found


def _read_sheet(path: str, name: str) -> pa.Table:
    with _workbook(path) as book:
        sheet = book[name]
        sheet.reset_dimensions()  # rows then end at their last cell: one far away would make all of them as wide
        rows = [row for each in sheet.iter_rows(values_only=True) if (row := _without_tail(each))]
    used = sorted({number for row in rows for number, value in enumerate(row) if value is not None})
    header, *values = [tuple(row[number] if number < len(row) else None for number in used) for row in rows] or [()]
    # a column of values without a name, such as the index that pandas writes, is called as pandas calls it
    names = [f"Unnamed: {number}" if title is None else str(title) for number, title in zip(used, header, strict=True)]
    return _from_rows(names, [values], where=f"{path}, {name}")


def _without_tail(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row up to its last value."""
    size = len(row)
    while size and row[size - 1] is None:
        size -= 1
    return row[:size]


def one_of(names: Sequence[str], name: str, path: str, *, fix: str) -> str:
    """Return the named table, or the only one. Raises TableError, with the tables, where that leaves it open."""
    if (name and name in names) or (not name and len(names) == 1):
        return name or names[0]
    what = "sheet" if _kind_of(path) == "excel" else "table"
    problem = f"has no {what} {name!r}" if name else f"has {len(names)} {what}s"
    raise TableError(f"{problem}: {listed(names, at_most=30) or 'it is empty'}", where=path, fix=fix)


@contextmanager
def _sqlite(path: str) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(f"{_local(path).as_uri()}?mode=ro", uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise TableError(
            f"cannot be read as SQLite ({str(error)[:100]})", where=path, fix="Check that it is a whole SQLite file."
        ) from error


@contextmanager
def _duckdb(path: str) -> Iterator[Any]:
    duckdb = library("duckdb", extra="duckdb", instead="write it as Parquet: COPY t TO 't.parquet'", where=path)
    try:
        # a view may name any file or URL, which the database must not read
        settings = {"enable_external_access": "false"}
        with duckdb.connect(str(_local(path)), read_only=True, config=settings) as connection:
            yield connection
    except duckdb.Error as error:
        raise TableError(
            "cannot be read as DuckDB", where=path, fix="Check the file, and the version of DuckDB that wrote it."
        ) from error


@contextmanager
def _workbook(path: str) -> Iterator[Any]:
    openpyxl = library("openpyxl", extra="excel", instead="save the sheet as CSV", where=path)
    require_file(path)
    with open_input(path) as stream:
        try:
            with closing(openpyxl.load_workbook(stream, read_only=True, data_only=True)) as book:
                yield book
        except GnnflowError:
            raise
        except Exception as error:  # of zip, XML or openpyxl: a file of another format
            raise TableError("cannot be read as Excel (.xlsx)", where=path, fix="Save the sheet as CSV.") from error


def _local(path: str) -> Path:
    """Return a local path. Raises TableError for another location, which the library could not open."""
    if "://" in path and not path.startswith("file://"):
        raise TableError("is not on this machine", where=path, fix="Copy the file here first.")
    local = Path(absolute(path))
    if not local.exists():
        raise TableError("no such file", where=path, fix="Check the path.")
    return local


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _from_rows(
    names: Sequence[str],
    pieces: Iterable[Sequence[tuple[Any, ...]]],
    *,
    where: str,
    types: pa.Schema | None = None,
) -> pa.Table:
    """Return a table of rows in pieces. Raises TableError for a column that holds values of several kinds.

    types: of the columns, None where the values show them.
    """
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
            columns[name] = pa.array(
                values, None if types is None or name not in types.names else types.field(name).type
            )
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise _several_kinds(name, where) from error
    return pa.table(columns)


def _several_kinds(column: str, where: str) -> TableError:
    return TableError(
        f"column {column!r} holds values of several kinds", where=where, fix="Write one kind into the column."
    )
