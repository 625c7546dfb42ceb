"""Reads users' tables (Parquet, CSV, Arrow IPC, JSON lines) as chunks: row groups, batches, blocks or whole files.

No task needs more than a chunk in memory, and an error can say where the bad row stands. Columns of text, in CSV files
and in folder names, have no type until `survey` has seen all their blocks and `with_types` has given the agreed types
to all chunks. An error never quotes a library's message about a file, which may hold a line of it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.graph.errors import TableError
from gnnflow.storage.csv_blocks import WHOLE_FILE, CsvFile, Span, read_text
from gnnflow.storage.csv_forms import open_table
from gnnflow.storage.filesystem import is_local, open_input
from gnnflow.storage.json_lines import read_json_lines
from gnnflow.storage.library_parts import read_part, schema_and_rows
from gnnflow.storage.table_files import find_table_files, format_of
from gnnflow.storage.table_parts import Format, Keys, LibraryPart, TableFile, TableFiles
from gnnflow.storage.text_types import TextFacts, TextType, agreed, convert, facts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_TEXT = TextType("text")
_RUN_BYTES, _BUFFER_BYTES = 1 << 24, 1 << 20  # of decoded columns, and of what is read at once
_HEAD_BYTES = 1 << 16  # of a CSV file, whose columns have types by their first rows


@dataclass(frozen=True)
class Chunk:
    """A piece of a user's table: one row group, record batch or block of a CSV file. first_row counts within the file.

    num_rows: None where it is unknown before the piece is read. keys: columns in folder names. types: of columns of
    text; columns without one stay text. is_head: only the piece's first `num_rows` rows are read. schema: of a file of
    JSON lines, which has to be read for it, and of what a library reads. library: the latter.
    """

    uri: str
    format: Format
    part: int
    first_row: int
    num_rows: int | None
    csv: CsvFile | None = None
    span: Span = WHOLE_FILE
    keys: Keys = ()
    types: Mapping[str, TextType] = field(default_factory=dict)
    is_head: bool = False
    schema: pa.Schema | None = None
    library: LibraryPart | None = None

    @property
    def place(self) -> str:
        """The name of this piece in an error."""
        return f"{self.uri}, row group {self.part}" if self.format == "parquet" else self.uri

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of text, whose types have to be agreed."""
        return (*(self.csv.names if self.csv else ()), *(key for key, _ in self.keys))


@dataclass(frozen=True)
class Survey:
    """The facts of a chunk's text columns, and its number of rows, None where that needs a full read."""

    rows: int | None
    columns: dict[str, TextFacts]


def scan(table: str | TableFiles) -> list[Chunk]:
    """Return the chunks of a user's table, in file and row order. Raises TableError for a file that cannot be read."""
    found = find_table_files(table) if isinstance(table, str) else table
    chunks = _with_commas([chunk for file in found.files for chunk in chunks_of(file)])
    return chunks or [empty_chunk(file) for file in found.files]


def first_schema(table: TableFiles) -> pa.Schema:
    """Return the schema of a table's first file, with the types of text by its first rows.

    Reads the head of the file, or all of it where it is JSON.
    """
    if not table.files or kind_of(table.files[0]) is None:
        return pa.schema([])
    chunk = empty_chunk(table.files[0])
    if chunk.library is not None or chunk.format == "json":  # whose types are known from the rows alone
        return schema_of(next(chunks_of(table.files[0])))
    if chunk.format != "csv":
        return schema_of(chunk)
    csv = open_table(chunk.uri, table.files[0].form)
    chunk = replace(chunk, csv=csv, span=Span(csv.start, csv.start + _HEAD_BYTES))
    # a zipped file has no part that can be read alone
    return schema_of(chunk if csv.size is None else with_types([chunk], [survey(chunk, chunk.text_columns)], {})[0])


def _with_commas(chunks: list[Chunk]) -> list[Chunk]:
    """Return a table's chunks, in all of which the same columns of numbers have a decimal comma."""
    found = tuple(dict.fromkeys(name for chunk in chunks if chunk.csv for name in chunk.csv.commas))
    return [replace(each, csv=replace(each.csv, commas=found)) if found and each.csv else each for each in chunks]


def schema_of(chunk: Chunk) -> pa.Schema:
    """Return a chunk's schema. A text field's metadata has the first value that is no number or 64-bit integer."""
    if chunk.csv:
        own = pa.schema([_text_field(name, chunk) for name in chunk.csv.names])
    elif chunk.schema is not None:
        own = chunk.schema
    else:
        with _decoding(chunk.uri, chunk.format), open_input(chunk.uri) as stream:
            own = _parquet(stream).schema_arrow if chunk.format == "parquet" else pa.ipc.open_file(stream).schema
    keys = [_text_field(key, chunk) for key, _ in chunk.keys]
    return reduce(lambda schema, each: schema.append(each), keys, own)


def _text_field(name: str, chunk: Chunk) -> pa.Field:
    found = chunk.types.get(name, _TEXT)
    return pa.field(name, found.type, metadata={found.kind: found.place} if found.place else None)


def read_chunk(chunk: Chunk, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of one chunk. Raises TableError where its bytes do not decode."""
    wanted = None if columns is None else [name for name in columns if name not in dict(chunk.keys)]
    if chunk.csv:
        table = read_text(chunk.csv, chunk.span, chunk.csv.names if wanted is None else wanted, check=False)
        converted = [convert(table.column(name), chunk.types.get(name, _TEXT)) for name in table.column_names]
        table = pa.table(converted, names=table.column_names)
        table = table if wanted is None else table.select(wanted)
    else:
        table = _read_typed(chunk, wanted)
    return _with_keys(table, chunk, columns)


def _with_keys(table: pa.Table, chunk: Chunk, columns: Sequence[str] | None) -> pa.Table:
    """Return a chunk's rows with the columns in folder names, in the given order."""
    for key, value in chunk.keys:
        if columns is None or key in columns:
            text = pa.array([value], pa.large_string())
            table = table.append_column(key, pa.repeat(convert(text, chunk.types.get(key, _TEXT))[0], table.num_rows))
    return table if columns is None else table.select(list(columns))


def iter_chunk(chunk: Chunk, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows that `read_chunk` returns, a row group in runs, so that one run is in memory."""
    wanted = [name for name in columns if name not in dict(chunk.keys)]
    if chunk.format != "parquet" or chunk.is_head or not chunk.num_rows or not wanted:
        yield read_chunk(chunk, columns)
        return
    with _decoding(chunk.place, chunk.format), open_input(chunk.uri) as stream:
        # with a buffer, pages are read one by one; an object store is rather asked for whole columns
        file = _parquet(stream, buffer_bytes=_BUFFER_BYTES if is_local(chunk.uri) else 0)
        group = file.metadata.row_group(chunk.part)
        held = [each for each in map(group.column, range(group.num_columns)) if _name_of(each) in wanted]
        size = sum(each.total_uncompressed_size for each in held)
        for run in file.iter_batches(max(1, chunk.num_rows * _RUN_BYTES // max(size, 1)), [chunk.part], wanted):
            table = pa.Table.from_batches([run])
            _refuse_broken_values(table, chunk.place)
            yield _with_keys(table, chunk, columns)


def _name_of(column: pq.ColumnChunkMetaData) -> str:
    return str(column.path_in_schema).split(".", maxsplit=1)[0]


def _parquet(stream: IO[bytes], *, buffer_bytes: int = 0) -> pq.ParquetFile:
    """Open a Parquet file. INT96 becomes microseconds: nanoseconds would wrap outside of the years 1677 to 2262."""
    return pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", buffer_size=buffer_bytes)


def _read_typed(chunk: Chunk, columns: Sequence[str] | None) -> pa.Table:
    if chunk.num_rows == 0:
        own = schema_of(replace(chunk, keys=()))
        return own.empty_table() if not columns else own.empty_table().select(list(columns))
    if chunk.library is not None:
        assert chunk.num_rows is not None, "a library counts its rows"
        own = schema_of(replace(chunk, keys=())).names
        table = read_part(chunk.library, own if columns is None else columns or own[:1], chunk.num_rows)
        _refuse_broken_values(table, chunk.place)
        return table
    if chunk.format == "json":
        return read_json_lines(chunk.uri).select(list(columns or schema_of(replace(chunk, keys=())).names))
    with _decoding(chunk.place, chunk.format), open_input(chunk.uri) as stream:
        if chunk.format == "parquet":
            file = _parquet(stream)
            # without any column Arrow would lose the number of rows
            names = file.schema_arrow.names[:1] if columns is not None and not columns else columns
            asked = None if names is None else list(names)
            if chunk.is_head:
                table = pa.Table.from_batches([next(file.iter_batches(chunk.num_rows, [chunk.part], asked))])
            else:
                table = file.read_row_group(chunk.part, columns=asked)
        else:
            table = pa.Table.from_batches([pa.ipc.open_file(stream).get_batch(chunk.part)])
            table = table.slice(0, chunk.num_rows) if chunk.is_head else table
            table = table if not columns else table.select(list(columns))
    _refuse_broken_values(table, chunk.place)
    return table


def _refuse_broken_values(table: pa.Table, where: str) -> None:
    """Raise TableError where values do not fit their type, which Arrow does not check while reading.

    These are text that is not UTF-8, lists that reach beyond their values, and decimals with too many digits.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                raise TableError(
                    f"column {name!r} is not UTF-8", where=where, fix="Write the column as text in UTF-8."
                ) from error
            raise TableError(
                f"column {name!r} holds values that are not {column.type}",
                where=where,
                fix="Write the table again; it may be damaged.",
            ) from error


def survey(chunk: Chunk, columns: Collection[str]) -> Survey:
    """Return the facts of a chunk's text columns among `columns`, after checking its bytes as in `read_text`."""
    keys = [(key, value) for key, value in chunk.keys if key in columns]
    facts = {key: facts_of(pa.array([value or ""], pa.large_string())) for key, value in keys}
    if not chunk.csv:
        return Survey(chunk.num_rows, facts)
    names = [name for name in dict.fromkeys(chunk.csv.names) if name in columns]
    table = read_text(chunk.csv, chunk.span, names, check=True)
    return Survey(table.num_rows, {name: facts_of(table.column(name)) for name in names} | facts)


def with_types(chunks: Sequence[Chunk], surveys: Sequence[Survey], ids: Mapping[str, bool]) -> list[Chunk]:
    """Return a table's chunks with their numbers of rows and the types of their text.

    ids: the table's columns of ids, and whether all ids of the type are written as integers.
    """
    first, file, placed = 0, "", []
    for chunk, found in zip(chunks, surveys, strict=True):
        first = first if chunk.uri == file else 0
        placed.append(replace(chunk, first_row=first, num_rows=found.rows))
        first, file = first + (found.rows or 0), chunk.uri
    types: dict[str, TextType] = {}
    for name in dict.fromkeys(name for found in surveys for name in found.columns):
        pairs = zip(placed, surveys, strict=True)
        held = [(chunk, found.columns[name]) for chunk, found in pairs if name in found.columns]
        if name in ids:
            types[name] = TextType("integer id" if ids[name] else "text id")
        else:
            types[name] = agreed([(chunk.uri, chunk.first_row, facts) for chunk, facts in held])
    return [replace(chunk, types=types) for chunk in placed]


def read_whole(
    chunks: Sequence[Chunk],
    *,
    columns: Sequence[str] | None = None,
    ids: Sequence[str] = (),
    text_ids: bool = False,
) -> pa.Table:
    """Return a whole table whose files agree on their schema (`agreed_schema`), read in this process.

    columns: to read, or all. Text columns of ids are integers where all their ids are; text_ids: they stay text in any
    case. A column with different numbers of bits gets the larger. Raises TableError for a chunk that does not decode,
    and for types of two files without a common type.
    """
    return read_typed(settled(chunks, ids=ids, text_ids=text_ids), columns=columns)


def survey_all(chunks: Sequence[Chunk]) -> list[Survey]:
    """Return the facts of the text columns of each chunk."""
    return [survey(chunk, chunk.text_columns) for chunk in chunks]


def settled(chunks: Sequence[Chunk], *, ids: Sequence[str] = (), text_ids: bool = False) -> list[Chunk]:
    """Return a table's chunks with the types of their text, as `read_whole` agrees them first."""
    surveys = survey_all(chunks)
    exact = all(found.columns[name].exact for found in surveys for name in ids if name in found.columns)
    return with_types(chunks, surveys, dict.fromkeys(ids, exact and not text_ids))


def read_typed(chunks: Sequence[Chunk], *, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a whole table whose text has types, as `read_whole` does."""
    parts = [read_chunk(chunk, columns) for chunk in chunks]
    if any(part.schema != parts[0].schema for part in parts):
        parts = [_with_plain_types(part) for part in parts]
    try:
        return pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:  # integers beyond int64 in one of them, or kinds of lists
        raise TableError(
            "a column has values in one of the table's files that its type in another cannot hold",
            where=chunks[0].uri,
            fix="Write the column with one type in all files.",
        ) from error


def _with_plain_types(table: pa.Table) -> pa.Table:
    """Return a table without types that Arrow cannot join: dictionaries, views of text, time zones."""
    fields = [field.with_type(_joinable(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))


def _joinable(found: pa.DataType) -> pa.DataType:
    found = plain(found)
    if pa.types.is_timestamp(found) and found.tz:
        return pa.timestamp(found.unit, "UTC")  # the same moments
    return pa.large_string() if pa.types.is_string_view(found) else found


def plain(found: pa.DataType) -> pa.DataType:
    """Return the type of values, also of a dictionary's."""
    return found.value_type if pa.types.is_dictionary(found) else found


def csv_chunks(file: CsvFile, keys: Keys = ()) -> Iterator[Chunk]:
    """Yield the blocks of a CSV file."""
    for part, span in enumerate(file.spans):
        yield Chunk(file.uri, "csv", part, 0, None, file, span, keys)


def empty_chunk(file: TableFile) -> Chunk:
    """Return the one chunk of a file without row groups or batches, whose columns are known all the same."""
    found = kind_of(file)
    assert found is not None, "`scan` refuses unknown formats first"
    return Chunk(file.uri, found, 0, 0, 0, keys=file.keys, library=file.part)


def kind_of(file: TableFile) -> Format | None:
    """Return the format of a file: a library's, CSV where its form is said, or its suffix's."""
    if file.part is not None:
        return file.part.kind
    found = format_of(file.name)
    return "csv" if found is None and file.form is not None else found


def chunks_of(file: TableFile) -> Iterator[Chunk]:
    """Yield the chunks of one file. Raises TableError for a file that cannot be read."""
    found = kind_of(file)
    if found is None:
        fix = (
            "Use .parquet, .pq, .csv, .csv.gz, .tsv, .arrow, .feather, .ipc or .jsonl, a database or a workbook; where "
            "it is CSV with another name, say so in graph.formats: {nodes: {kind: csv}}."
        )
        raise TableError("unknown table format", where=file.uri, fix=fix)
    if file.form is not None and found != "csv":
        raise TableError(f"is {found}, and graph.formats is for CSV", where=file.uri, fix="Take its form out there.")
    if file.part is not None:
        schema, rows = schema_and_rows(file.part)
        yield Chunk(file.uri, found, file.part.fragment, 0, rows, keys=file.keys, schema=schema, library=file.part)
        return
    if found == "csv":
        yield from csv_chunks(open_table(file.uri, file.form), file.keys)
        return
    if found == "json":
        table = read_json_lines(file.uri)
        yield Chunk(file.uri, found, 0, 0, table.num_rows, keys=file.keys, schema=table.schema)
        return
    with _decoding(file.uri, found), open_input(file.uri) as stream:
        if found == "arrow":
            reader = pa.ipc.open_file(stream)
            sizes = [reader.get_batch(part).num_rows for part in range(reader.num_record_batches)]
        else:
            metadata = _parquet(stream).metadata
            sizes = [metadata.row_group(part).num_rows for part in range(metadata.num_row_groups)]
    first = 0
    for part, rows in enumerate(sizes):
        yield Chunk(file.uri, found, part, first, rows, keys=file.keys)
        first += rows


def form_of(chunks: Sequence[Chunk]) -> str:
    """Return the form of a table's files of CSV in a few words; empty for the usual one."""
    return ", or ".join(dict.fromkeys(chunk.csv.text for chunk in files_of(chunks) if chunk.csv and chunk.csv.text))


def null_counts(chunk: Chunk) -> dict[str, int] | None:
    """Return the nulls of each flat column of a chunk, as a Parquet file's footer counts them; None without counts."""
    if chunk.format != "parquet" or not chunk.num_rows:
        return None
    with _decoding(chunk.uri, chunk.format), open_input(chunk.uri) as stream:
        group = _parquet(stream).metadata.row_group(chunk.part)
        columns = list(map(group.column, range(group.num_columns)))
    held = [(each.path_in_schema, each.statistics) for each in columns if "." not in each.path_in_schema]
    return {name: found.null_count for name, found in held if found is not None and found.has_null_count}


def parquet_columns(uri: str) -> list[pq.ColumnChunkMetaData]:
    """Return what a Parquet file's footer says of each column of each row group. Raises TableError without one."""
    with _decoding(uri, "parquet"), open_input(uri) as stream:
        metadata = _parquet(stream).metadata
        groups = list(map(metadata.row_group, range(metadata.num_row_groups)))
        return [group.column(place) for group in groups for place in range(group.num_columns)]


@contextmanager
def _decoding(where: str, kind: str) -> Iterator[None]:
    """Turn Arrow's errors over a file into a TableError without the file's content."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, RuntimeError) as error:
        # Arrow's message may quote content; the system's does not
        system = error.strerror if isinstance(error, OSError) and error.errno and error.strerror else ""
        raise TableError(
            f"cannot be read as {kind} ({system or 'its bytes do not decode'})",
            where=where,
            fix="Check the rights of the file." if system else "Write the table again; it may be truncated.",
        ) from error


def files_of(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return one chunk of each file."""
    return list({chunk.uri: chunk for chunk in chunks}.values())


def holds_text(found: pa.DataType) -> bool:
    """Return whether values are text, also in a dictionary."""
    found = plain(found)
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def holds_numbers(found: pa.DataType) -> bool:
    """Return whether values are numbers or booleans."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(is_one(found) for is_one in kinds)


def holds_times(found: pa.DataType) -> bool:
    """Return whether values are dates or timestamps."""
    return bool(pa.types.is_date(found) or pa.types.is_timestamp(found))


def holds_lists(found: pa.DataType) -> bool:
    """Return whether values are lists."""
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found))
