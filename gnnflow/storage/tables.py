"""Tables in storage: our own Parquet files, and the tables users bring (Parquet, CSV, Arrow IPC).

A user's table is read as chunks, one per row group or file, so that no task needs more than a chunk in memory and an
error can say where the bad row stands.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gnnflow.graph.arrays import ragged_ranges
from gnnflow.graph.errors import StorageError, TableError
from gnnflow.storage.columns import combine
from gnnflow.storage.filesystem import FileEntry, expand, join, open_arrow, open_input, write_atomic
from gnnflow.storage.verified import open_verified

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.graph.arrays import IntArray

Format = Literal["parquet", "csv", "arrow"]
_FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_SAMPLES, _SAMPLE_ROWS, _SAMPLE_BYTES = 16, 1024, 4096
_WORTHWHILE = 0.8
_DAMAGED = "The file is truncated or damaged: delete the folder it lies in and run again."


@dataclass(frozen=True)
class Chunk:
    """A piece of a user's table: one row group, record batch or CSV file. first_row counts within the file."""

    uri: str
    format: Format
    part: int
    first_row: int
    num_rows: int | None

    @property
    def place(self) -> str:
        """What an error calls this piece."""
        return f"{self.uri}, row group {self.part}" if self.format == "parquet" else self.uri


def write_table(uri: str, table: pa.Table, *, row_group_size: int | None = None) -> FileEntry:
    """Write a Parquet file atomically. The same table gives the same bytes.

    Columns that zstd would hardly shrink (float features, hashes) are left as they are: a mapped file's uncompressed
    columns are read without a copy.
    """
    sink = pa.BufferOutputStream()
    options: dict[str, Any] = {
        "compression": {_leaf(field): _codec(table[field.name]) for field in table.schema},
        # Dictionaries pay for repeated strings; for floats, ids and blobs they cost time and memory, then are given up.
        "use_dictionary": [
            field.name
            for field in table.schema
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        ],
        # The smallest and largest blob says nothing and takes longer to find than the file to write.
        "write_statistics": [
            field.name
            for field in table.schema
            if not (pa.types.is_nested(field.type) or pa.types.is_large_binary(field.type))
        ],
    }
    pq.write_table(table, sink, row_group_size=row_group_size or max(1, table.num_rows), store_schema=True, **options)
    return write_atomic(uri, memoryview(sink.getvalue()))


def commit_table(artifact: str, name: str, table: pa.Table, *, row_group_size: int | None = None) -> FileEntry:
    """Write a Parquet file of an artifact and return its entry, named as the manifest lists it."""
    return replace(write_table(join(artifact, name), table, row_group_size=row_group_size), name=name)


def _leaf(field: pa.Field) -> str:
    return f"{field.name}.list.element" if pa.types.is_nested(field.type) else str(field.name)


def _codec(column: pa.ChunkedArray) -> str:
    """Return the compression of a column: zstd where a sample of it shrinks by a fifth, else none.

    The sample is a function of the rows, never of how they lie in memory, so that equal tables give equal files.
    """
    values = combine(column.take(pa.array(_spread(len(column), _SAMPLE_ROWS)))).buffers()[-1]
    sample = b"" if values is None else np.frombuffer(values, np.uint8)[_spread(values.size, _SAMPLE_BYTES)].tobytes()
    shrunk = pa.Codec("zstd").compress(sample, asbytes=True)
    return "zstd" if len(shrunk) <= _WORTHWHILE * len(sample) else "none"


def _spread(length: int, run: int) -> IntArray:
    """Return the positions of _SAMPLES runs spread over 0 .. length - 1; all of them where the runs would overlap."""
    if length <= _SAMPLES * run:
        return np.arange(length)
    starts = np.linspace(0, length - run, _SAMPLES).astype(np.int64)
    return ragged_ranges(starts, np.full(_SAMPLES, run))


def read_table(uri: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file of ours. Raises StorageError where it is missing, truncated or damaged."""
    with open_arrow(uri) as stream:
        return _decode(stream, columns, where=uri)


def read_artifact_table(artifact: str, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file of an artifact. Raises StorageError where it is missing or not as the manifest lists it."""
    with open_verified(artifact, name) as stream:
        return _decode(stream, columns, where=join(artifact, name))


def iter_artifact_table(
    artifact: str, name: str, columns: Sequence[str] | None = None, *, batch_rows: int = 1 << 20
) -> Iterator[pa.Table]:
    """Yield a Parquet file of an artifact in pieces of at most batch_rows rows."""
    with open_verified(artifact, name) as stream, _readable(join(artifact, name)):
        for batch in pq.ParquetFile(stream).iter_batches(
            batch_rows, columns=None if columns is None else list(columns)
        ):
            yield pa.Table.from_batches([batch])


def _decode(stream: pa.NativeFile, columns: Sequence[str] | None, *, where: str) -> pa.Table:
    with _readable(where):
        # A mapped file's uncompressed columns are then views of it, not copies.
        return pq.ParquetFile(stream, pre_buffer=False).read(None if columns is None else list(columns))


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Turn what Arrow raises for bytes that are no Parquet into an error that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as error:
        raise StorageError(f"cannot be read as Parquet ({_first_line(error)})", where=where, fix=_DAMAGED) from error


def table_files(uri: str) -> list[str]:
    """Return the files a user's table consists of, in order, unread. Raises StorageError where there are none."""
    return expand(uri, tuple(_FORMATS))


def scan(uri: str) -> list[Chunk]:
    """Return the chunks of a user's table, in file and row order. Raises TableError for a file that cannot be read."""
    chunks: list[Chunk] = []
    for file in table_files(uri):
        found = _format_of(file)
        try:
            chunks += list(_chunks_of(file, found))
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(
                f"cannot be read as {found} ({_first_line(error)})",
                where=file,
                fix="Write the table again; it may be truncated.",
            ) from error
    return chunks


def schema_of(chunk: Chunk) -> pa.Schema:
    """Return a chunk's schema, its metadata included."""
    with open_input(chunk.uri) as stream:
        if chunk.format == "parquet":
            return pq.read_schema(stream)
        if chunk.format == "arrow":
            return pa.ipc.open_file(stream).schema
        return pa_csv.open_csv(_csv_stream(stream, chunk.uri), convert_options=_csv_options()).schema


def read_chunk(chunk: Chunk, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of one chunk. Raises TableError where its bytes do not decode."""
    wanted = None if columns is None else list(columns)
    with open_input(chunk.uri) as stream:
        try:
            if chunk.format == "parquet":
                return pq.ParquetFile(stream).read_row_group(chunk.part, columns=wanted)
            if chunk.format == "arrow":
                table = pa.Table.from_batches([pa.ipc.open_file(stream).get_batch(chunk.part)])
            else:
                table = pa_csv.read_csv(_csv_stream(stream, chunk.uri), convert_options=_csv_options())
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(
                f"cannot be read ({_first_line(error)})",
                where=chunk.place,
                fix="Write the table again; it may be truncated.",
            ) from error
    return table if wanted is None else table.select(wanted)


def _csv_stream(stream: IO[bytes], uri: str) -> Any:
    return pa.CompressedInputStream(stream, "gzip") if uri.endswith(".gz") else stream


def _csv_options() -> pa_csv.ConvertOptions:
    # CSV has no null: an empty field is one. Arrow's longer list would turn an id such as "NA" into nothing.
    return pa_csv.ConvertOptions(strings_can_be_null=True, null_values=["", "null", "NULL"])


def _format_of(file: str) -> Format:
    for suffix, found in _FORMATS.items():
        if file.endswith(suffix):
            return found
    raise TableError("unknown table format", where=file, fix=f"Use one of {', '.join(_FORMATS)}.")


def _chunks_of(file: str, found: Format) -> Iterator[Chunk]:
    with open_input(file) as stream:
        if found == "csv":
            yield Chunk(file, found, 0, 0, None)
            return
        if found == "arrow":
            reader = pa.ipc.open_file(stream)
            sizes = [reader.get_batch(part).num_rows for part in range(reader.num_record_batches)]
        else:
            metadata = pq.ParquetFile(stream).metadata
            sizes = [metadata.row_group(part).num_rows for part in range(metadata.num_row_groups)]
    first = 0
    for part, rows in enumerate(sizes):
        yield Chunk(file, found, part, first, rows)
        first += rows


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
