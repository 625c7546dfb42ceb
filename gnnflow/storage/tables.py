"""Writes and reads the store's Parquet files: equal tables give equal bytes; reads columns or pieces."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.graph.arrays import ragged_ranges
from gnnflow.graph.errors import StorageError
from gnnflow.storage.columns import combine
from gnnflow.storage.filesystem import join, open_arrow
from gnnflow.storage.verified import note_written, open_verified
from gnnflow.storage.writing import FileEntry, write_in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.graph.arrays import IntArray

_SAMPLES, _SAMPLE_ROWS, _SAMPLE_BYTES = 16, 1024, 4096
_WORTHWHILE = 0.8
_DAMAGED = "The file is truncated or damaged: delete the folder it lies in and run again."


def write_table(
    uri: str,
    table: pa.Table,
    *,
    row_group_size: int | None = None,
    level: int | None = None,
    ascending: Sequence[str] = (),
) -> FileEntry:
    """Write a Parquet file atomically. The same table gives the same bytes.

    Columns that zstd would hardly shrink (float features, hashes) stay uncompressed: in a mapped file they are read
    without a copy. level: of zstd; None is its default. ascending: columns of integers that mostly ascend, written as
    differences.
    """
    options = _options(table, level=level, ascending=ascending)
    size = row_group_size or max(1, table.num_rows)
    return write_in_pieces(uri, lambda sink: pq.write_table(table, sink, row_group_size=size, **options))


def _options(table: pa.Table, *, level: int | None, ascending: Sequence[str]) -> dict[str, Any]:
    """Return the options of the Parquet writer for a table."""
    codecs = {_leaf(field): "none" if field.name in ascending else _codec(table[field.name]) for field in table.schema}
    return {
        "store_schema": True,
        "compression": codecs,
        "compression_level": None
        if level is None
        else {leaf: level for leaf, codec in codecs.items() if codec == "zstd"},
        # dictionaries pay for repeated strings; for floats, ids and blobs they only cost time and memory
        "use_dictionary": [
            field.name
            for field in table.schema
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        ],
        # the smallest and largest blob are useless, and slower to find than the file is to write
        "write_statistics": [
            field.name for field in table.schema if not (pa.types.is_nested(field.type) or _is_bytes(field.type))
        ],
        "column_encoding": dict.fromkeys(ascending, "DELTA_BINARY_PACKED") or None,
    }


def commit_table(
    artifact: str,
    name: str,
    table: pa.Table,
    *,
    row_group_size: int | None = None,
    level: int | None = None,
    ascending: Sequence[str] = (),
) -> FileEntry:
    """Write a Parquet file of an artifact and return its entry, named as the manifest lists it."""
    uri = join(artifact, name)
    written = write_table(uri, table, row_group_size=row_group_size, level=level, ascending=ascending)
    return _noted(artifact, replace(written, name=name))


def _noted(artifact: str, entry: FileEntry) -> FileEntry:
    note_written(artifact, entry)
    return entry


@contextmanager
def unnamed_file() -> Iterator[str]:
    """Yield the path of a temporary file that ends with the block, and with the process however that is ended.

    The path is for this process alone. Where the system has no /proc, a killed process leaves the file.
    """
    descriptors = Path("/proc/self/fd")
    if descriptors.is_dir():
        with TemporaryFile() as file:
            yield str(descriptors / str(file.fileno()))
    else:
        with NamedTemporaryFile(prefix="gnnflow-") as file:
            yield file.name


class TablePieces(ExitStack):
    """The pieces of a table that is written as one file, with the bytes that the whole table would give.

    The only piece stays in memory; several lie in a temporary file until the end of the `with` block.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: pa.Table | None = None
        self._spool: pa.ipc.RecordBatchFileWriter | None = None
        self._file = ""

    def add(self, piece: pa.Table) -> None:
        """Append rows."""
        if self._first is None:
            self._first = piece
            return
        if self._spool is None:
            self._file = self.enter_context(unnamed_file())
            sink = self.enter_context(pa.OSFile(self._file, "wb"))
            self._spool = pa.ipc.new_file(sink, piece.schema)
            self._spool.write_table(self._first)
            self._first = self._first.schema.empty_table()  # no slice, which keeps the rows
        self._spool.write_table(piece)

    def commit(self, artifact: str, name: str, *, row_group_size: int, ascending: Sequence[str] = ()) -> FileEntry:
        """Write all rows as a file of an artifact, as `commit_table` does, and return its entry."""
        assert self._first is not None, "a table has at least one piece"
        if self._spool is None:
            return commit_table(artifact, name, self._first, row_group_size=row_group_size, ascending=ascending)
        self._spool.close()
        with pa.memory_map(self._file) as source:
            rows = pa.ipc.open_file(source).read_all()
            schema, size = rows.schema, rows.num_rows
            options = _options(_sample(rows), level=None, ascending=ascending)
            del rows

        def write(sink: pa.NativeFile) -> None:
            with pq.ParquetWriter(sink, schema, **options) as writer:
                for start in range(0, size, row_group_size):
                    # mapped anew, so that pages of earlier rows do not count as memory of this process
                    with pa.memory_map(self._file) as source:
                        run = pa.ipc.open_file(source).read_all().slice(start, row_group_size)
                        writer.write_table(run.combine_chunks(), row_group_size=row_group_size)

        return _noted(artifact, replace(write_in_pieces(join(artifact, name), write), name=name))


def _is_bytes(held: pa.DataType) -> bool:
    """Return whether a column holds bytes that are no text, of one length or of several."""
    return bool(pa.types.is_large_binary(held) or pa.types.is_fixed_size_binary(held))


def _leaf(field: pa.Field) -> str:
    return f"{field.name}.list.element" if pa.types.is_nested(field.type) else str(field.name)


def _codec(column: pa.ChunkedArray) -> str:
    """Return the compression of a column: zstd where a sample of it shrinks by a fifth, else none.

    The sample depends on the rows, not on their layout in memory, so that equal tables give equal files.
    """
    values = combine(column.take(pa.array(_spread(len(column), _SAMPLE_ROWS)))).buffers()[-1]
    sample = b"" if values is None else np.frombuffer(values, np.uint8)[_spread(values.size, _SAMPLE_BYTES)].tobytes()
    shrunk = pa.Codec("zstd").compress(sample, asbytes=True)
    return "zstd" if len(shrunk) <= _WORTHWHILE * len(sample) else "none"


def _sample(table: pa.Table) -> pa.Table:
    """Return the rows that `_codec` looks at, of which alone a mapped table is read."""
    if table.num_rows <= _SAMPLES * _SAMPLE_ROWS:
        return table.combine_chunks()
    starts = np.linspace(0, table.num_rows - _SAMPLE_ROWS, _SAMPLES).astype(np.int64)
    return pa.concat_tables([table.slice(start, _SAMPLE_ROWS) for start in starts.tolist()]).combine_chunks()


def _spread(length: int, run: int) -> IntArray:
    """Return the positions of _SAMPLES runs spread over 0 .. length - 1; all positions where runs would overlap."""
    if length <= _SAMPLES * run:
        return np.arange(length)
    starts = np.linspace(0, length - run, _SAMPLES).astype(np.int64)
    return ragged_ranges(starts, np.full(_SAMPLES, run))


def read_table(uri: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file of the store. Raises StorageError where it is missing, truncated or damaged."""
    with open_arrow(uri) as stream:
        return _decode(stream, columns, where=uri)


def read_artifact_table(artifact: str, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file of an artifact. Raises StorageError where it is missing or not as the manifest lists it."""
    with open_verified(artifact, name) as stream:
        return _decode(stream, columns, where=join(artifact, name))


def count_values(artifact: str, name: str, column: str) -> int:
    """Return the number of values in a column of lists, from the file's footer; an empty list counts as one."""
    with open_verified(artifact, name) as stream, _readable(join(artifact, name)):
        held = pq.ParquetFile(stream).metadata
        groups = [held.row_group(number) for number in range(held.num_row_groups)]
        columns = [group.column(number) for group in groups for number in range(group.num_columns)]
        return sum(each.num_values for each in columns if each.path_in_schema.split(".")[0] == column)


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
        # without pre-buffering, uncompressed columns of a mapped file are views, not copies
        return pq.ParquetFile(stream, pre_buffer=False).read(None if columns is None else list(columns))


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Turn Arrow's errors for invalid Parquet into an error that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, KeyError) as error:
        raise StorageError(f"cannot be read as Parquet ({_first_line(error)})", where=where, fix=_DAMAGED) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
