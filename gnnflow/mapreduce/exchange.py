"""The exchange: files of rows from the tasks of one round to the partitions of a later one.

A task writes one file per channel, or several where it writes runs of rows in the background (`ExchangeWriter`): a
reader sees them as one, in the order written. A file holds one piece per destination, an Arrow IPC stream of its rows,
then an index of the pieces with their places and checksums, then the index's length and checksum. A reader opens every
task's file, reads and checks only the index and its piece. Files of one channel are read in task order, and pieces that
are fetched ahead are returned in the order of the request, so no schedule changes a result.

Integers travel in as few bytes as their differences from the piece's smallest need, which takes a tenth of the time of
compression and as little space. Only rows with text or lists are compressed. Others are read from a mapped local file
without a copy.

Each run of rows is a separate file, which appears whole or not at all, so a task that dies leaves files that no record
names: it runs again and writes the same. The task's record, with the number of files, comes after them.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.errors import StorageError
from gnnflow.mapreduce.mapped import ArrayWriter, Kept, map_arrays
from gnnflow.native import group
from gnnflow.storage.columns import are_numbers, combine, take_rows, to_numpy
from gnnflow.storage.filesystem import join, open_arrow
from gnnflow.storage.writing import open_output

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from gnnflow.graph.arrays import Array, IntArray

_COMPRESSION = {True: pa.ipc.IpcWriteOptions(compression="lz4"), False: pa.ipc.IpcWriteOptions()}
_NARROW = (np.uint8, np.uint16, np.uint32)
_LEAST = b"least"  # in a narrow column's metadata: what is added to its integers
_PIECE_FIELDS = 3
_TRAILER = struct.Struct("<QI")
_PLACE_PARTS = 4  # <stage's fingerprint>/<round>/<channel>/<task>
_AGAIN = "Run again: the stage starts anew."
_FETCHED_AT_ONCE = 4
_WRITTEN_AT_ONCE = 2  # one file is compressed while another is sent
_UNWRITTEN = 4
"""Emits that are written or wait for it, before the task stops computing: memory holds no more of them."""


class ExchangeError(StorageError):
    """A file between two rounds is gone, or is not what its task wrote."""


@dataclass(frozen=True)
class Emit:
    """Rows for a channel, each with the partition it goes to.

    picked [n]: the rows of the table to send, in order; None sends each once. They are gathered one destination at a
    time, so sending a row to many costs no memory. destination: integers [n].

    compressed: False for random text or lists, where compression only costs time.
    """

    channel: str
    rows: pa.Table
    destination: Array
    picked: Array | None = None
    compressed: bool = True


class RowOrder(NamedTuple):
    """Rows of a table, and which of them to write in which order [n]; None for each once, as they are."""

    rows: pa.Table
    picked: Array | None


def exchange_file(work: str, round_name: str, channel: str, task: int, number: int = 0) -> str:
    """Return the file of a task's rows for a channel, the first one or a later one."""
    name = f"{task:05d}.{number}.arrow" if number else f"{task:05d}.arrow"
    return join(channel_folder(work, round_name, channel), name)


def channel_folder(work: str, round_name: str, channel: str) -> str:
    """Return the folder of all tasks' rows for a channel."""
    return join(work, round_name, channel)


def write_exchange(uri: str, emit: Emit, num_destinations: int) -> int:
    """Write one task's rows, grouped by destination in their given order. Returns the bytes written."""
    # rows for each destination [D], and where they begin among the grouped rows [D + 1]
    counts = np.bincount(emit.destination, minlength=num_destinations)
    assert len(counts) == num_destinations, "a row was sent to a partition that does not exist"
    bounds = offsets_of(counts)
    # the rows of the table, and in which order they are written [n]; None where that is their order
    rows, picked = _grouped(emit, bounds)
    # place, length and checksum of each destination's piece, an empty one by default [num_destinations, 3]
    index = np.zeros((num_destinations, _PIECE_FIELDS), np.int64)
    with open_output(uri) as sink:
        index[:] = _write_piece(sink, rows.slice(0, 0), compressed=emit.compressed)
        for destination in np.flatnonzero(counts):
            own = slice(bounds[destination], bounds[destination + 1])
            piece = rows.slice(own.start, counts[destination]) if picked is None else take_rows(rows, picked[own])
            index[destination] = _write_piece(sink, piece, compressed=emit.compressed)
        listed = index.tobytes()
        sink.write(listed)
        sink.write(_TRAILER.pack(len(listed), _checksum(_place(uri), listed)))
        return int(sink.tell())


def _write_piece(sink: pa.NativeFile, piece: pa.Table, *, compressed: bool) -> tuple[int, int, int]:
    """Append a piece and return its place, length and checksum."""
    batch, begin, counted = _narrow(piece), int(sink.tell()), _Checked(sink)
    compressed &= any(map(_varies_in_length, piece.schema.types))
    with pa.ipc.new_stream(pa.PythonFile(counted), batch.schema, options=_COMPRESSION[compressed]) as writer:
        if piece.num_rows:
            writer.write_batch(batch)
    return begin, int(sink.tell()) - begin, counted.checksum


class _Checked(io.RawIOBase):
    """Passes what is written on to a sink, and holds its checksum."""

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink, self.checksum = sink, _checksum(b"", b"")

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.checksum = zlib.crc32(content, self.checksum)
        self._sink.write(content)
        return len(content)


def _varies_in_length(found: pa.DataType) -> bool:
    return not (pa.types.is_primitive(found) or pa.types.is_fixed_size_list(found))


def _narrow(piece: pa.Table) -> pa.RecordBatch:
    """Return rows with their int64 columns in fewer bytes where possible."""
    columns, fields = list(map(combine, piece.columns)), list(piece.schema)
    for number, (column, field) in enumerate(zip(columns, fields, strict=True)):
        if not pa.types.is_int64(field.type) or column.null_count or not len(column):
            continue
        values = column.to_numpy()
        least, most = int(values.min()), int(values.max())
        kind = next((each for each in _NARROW if most - least <= np.iinfo(each).max), None)
        if kind is not None:
            # in NumPy's small pieces, without an array of wide differences
            columns[number] = pa.array(np.subtract(values, least, out=np.empty(len(values), kind), casting="unsafe"))
            fields[number] = pa.field(field.name, columns[number].type, metadata={_LEAST: str(least)})
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=piece.schema.metadata))


def _widened(piece: pa.Table) -> pa.Table:
    """Return the rows that `_narrow` was given."""
    for number, field in enumerate(piece.schema):
        if field.metadata and _LEAST in field.metadata:
            values = np.add(piece.column(number).to_numpy(), int(field.metadata[_LEAST]), dtype=np.int64)
            piece = piece.set_column(number, field.name, pa.array(values))
    return piece


def _grouped(emit: Emit, bounds: IntArray) -> RowOrder:
    """Group an emit's rows by destination. bounds: where each destination's rows begin and end then."""
    rows = emit.rows.combine_chunks()
    if not np.any(emit.destination[1:] < emit.destination[:-1]):
        return RowOrder(rows, emit.picked)
    if emit.picked is None and all(map(are_numbers, rows.columns)):
        columns = group([to_numpy(column) for column in rows.columns], emit.destination, bounds)
        if columns is not None:
            return RowOrder(pa.table(dict(zip(rows.column_names, columns, strict=True)), schema=rows.schema), None)
    # NumPy sorts small integers by counting, ten times as fast as others
    small = np.min_scalar_type(int(emit.destination.max()))
    order = np.argsort(emit.destination.astype(small), kind="stable")
    return RowOrder(rows, order if emit.picked is None else emit.picked[order])


def read_exchange(uri: str, destination: int) -> pa.Table:
    """Return the rows one task sent to a destination. Raises ExchangeError for a file gone or not as written."""
    try:
        with open_arrow(uri) as source:
            begin, length, expected = _read_index(source, uri)[destination].tolist()
            content = source.read_at(length, begin)
    except (StorageError, pa.ArrowException, OSError, struct.error, ValueError, IndexError) as error:
        problem = error.problem if isinstance(error, StorageError) else f"is damaged ({error})"
        raise ExchangeError(problem, where=uri, fix=_AGAIN) from error
    if (found := _checksum(b"", content)) != expected:
        raise _changed(uri, "a piece of it", found, expected)
    return _widened(pa.ipc.open_stream(content).read_all())


def _read_index(source: pa.NativeFile, uri: str) -> Array:
    """Return place, length and checksum of each destination's piece [num_destinations, 3]."""
    size = source.size()
    end = size - _TRAILER.size
    if end < 0:
        raise ExchangeError(f"is damaged: it has {size} bytes", where=uri, fix=_AGAIN)
    length, expected = _TRAILER.unpack(source.read_at(_TRAILER.size, end))
    listed = source.read_at(min(length, end), max(end - length, 0))
    if (found := _checksum(_place(uri), listed)) != expected:
        raise _changed(uri, "its index", found, expected)
    return np.frombuffer(listed, np.int64).reshape(-1, _PIECE_FIELDS)


def _changed(uri: str, what: str, found: int, expected: int) -> ExchangeError:
    return ExchangeError(f"is damaged: {what} has the checksum {found:08x}, not {expected:08x}", where=uri, fix=_AGAIN)


def _place(uri: str) -> bytes:
    """Return the stage, round, channel and task of a file, which its index's checksum covers."""
    return "/".join(uri.split("/")[-_PLACE_PARTS:]).encode()


def _checksum(place: bytes, content: bytes | pa.Buffer) -> int:
    # no cryptography for files that live for minutes: CRC-32 is several times as fast as SHA-256
    return zlib.crc32(content, zlib.crc32(place))


@dataclass(frozen=True)
class Inbox:
    """The rows that earlier rounds sent to one partition.

    channels maps a channel's name to the round that emitted it and the number of files of each of its tasks.
    """

    work: str
    partition: int
    channels: dict[str, tuple[str, tuple[int, ...]]]

    def pieces(
        self, channel: str, *, tasks: Sequence[int] | None = None, partition: int | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of each task in task order, so that one piece at a time is in memory.

        tasks: to read, where others sent nothing or other columns. partition: whose rows to read, by default this
        partition's.
        """
        for task in range(len(self.channels[channel][1])) if tasks is None else tasks:
            yield pa.concat_tables(list(self.files(channel, tasks=[task], partition=partition)))

    def files(self, channel: str, *, tasks: Sequence[int], partition: int | None = None) -> Iterator[pa.Table]:
        """Yield the rows of each file of some tasks, in order: what `pieces` yields, in smaller pieces."""
        round_name, files = self.channels[channel]
        place = self.partition if partition is None else partition
        for task in tasks:
            if not files[task]:  # an earlier attempt sent its rows another way
                where = channel_folder(self.work, round_name, channel)
                raise ExchangeError(f"has nothing of task {task}", where=where, fix=_AGAIN)
            for number in range(files[task]):
                yield read_exchange(exchange_file(self.work, round_name, channel, task, number), place)

    def read(self, channel: str, *, tasks: Sequence[int] | None = None, partition: int | None = None) -> pa.Table:
        """Return the rows that `pieces` yields, one after another."""
        return pa.concat_tables(list(self.pieces(channel, tasks=tasks, partition=partition)))

    def map(self, channel: str, task: int | None, names: Sequence[str] | None = None) -> dict[str, Array]:
        """Return arrays that a task kept in a channel, where they lie; with None those that all tasks wrote to.

        names: None for all that a task kept. Raises ExchangeError where one is gone or damaged.
        """
        round_name, files = self.channels[channel]
        try:
            arrays = map_arrays(channel_folder(self.work, round_name, channel), task, names)
        except StorageError as error:
            raise ExchangeError(error.problem, where=error.where, fix=_AGAIN) from error
        if names is None and task is not None and len(arrays) != files[task]:
            problem = f"has {len(arrays)} of {files[task]} arrays of task {task}"
            raise ExchangeError(problem, where=channel_folder(self.work, round_name, channel), fix=_AGAIN)
        return arrays


class ExchangeWriter:
    """Writes the rows that one task sends or keeps. files: their number for each channel; num_bytes: of these.

    Rows that are kept are written to `kept`, which the caller ends.
    """

    def __init__(self, work: str, round_name: str, task: int, num_destinations: int, *, kept: ArrayWriter) -> None:
        self._work, self._round, self._task = work, round_name, task
        self._num_destinations, self._kept = num_destinations, kept
        self.files: Counter[str] = Counter()
        self.num_bytes: Counter[str] = Counter()

    def write(self, emit: Emit | Kept) -> None:
        """Write one emit."""
        if isinstance(emit, Kept):
            self._kept.write(emit)
        else:
            uri = self._next_file(emit.channel)
            self.num_bytes[emit.channel] += write_exchange(uri, emit, self._num_destinations)

    def write_behind(self, emits: Generator[Emit | Kept]) -> None:
        """Write emits while the next ones are computed; the first error of either is raised.

        All writing has ended when this returns or raises. What is kept is written at once: it costs a copy.
        """
        unwritten: deque[tuple[str, Future[int]]] = deque()

        def end_first() -> None:
            channel, writing = unwritten.popleft()
            self.num_bytes[channel] += writing.result()

        # at the exit the pool waits for the writers, then the generator is closed
        with closing(emits), ThreadPoolExecutor(_WRITTEN_AT_ONCE, thread_name_prefix="gnnflow-write") as threads:
            try:
                for emit in emits:
                    if isinstance(emit, Kept):
                        self._kept.write(emit)
                        continue
                    if len(unwritten) == _UNWRITTEN:
                        end_first()
                    uri = self._next_file(emit.channel)
                    writing = threads.submit(write_exchange, uri, emit, self._num_destinations)
                    unwritten.append((emit.channel, writing))
                while unwritten:
                    end_first()
            finally:
                threads.shutdown(cancel_futures=True)

    def _next_file(self, channel: str) -> str:
        number = self.files[channel]
        self.files[channel] += 1
        return exchange_file(self._work, self._round, channel, self._task, number)


@contextmanager
def fetching(inbox: Inbox, wanted: Sequence[tuple[str, int]], *, ahead: int) -> Iterator[Iterator[pa.Table]]:
    """Fetch the pieces that tasks sent here in the background, and yield an iterator over them in order.

    wanted: a channel and the number of the sending task, per piece. ahead: number of pieces that are fetched before the
    iterator returns them; with 0 a piece is fetched when it is taken. An error of reading a piece is raised where it is
    taken. Leaving the block drops the rest.
    """
    if not ahead:
        yield (inbox.read(channel, tasks=(task,)) for channel, task in wanted)
        return
    with ThreadPoolExecutor(_FETCHED_AT_ONCE, thread_name_prefix="gnnflow-fetch") as threads:
        coming = iter(wanted)
        fetched: deque[Future[pa.Table]] = deque()

        def begin() -> None:
            for channel, task in coming:
                fetched.append(threads.submit(inbox.read, channel, tasks=(task,)))
                return

        def taken() -> Iterator[pa.Table]:
            while fetched:
                piece = fetched.popleft().result()
                begin()
                yield piece

        for _ in range(ahead):
            begin()
        try:
            yield taken()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
