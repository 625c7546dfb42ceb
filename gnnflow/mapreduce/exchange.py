"""The exchange: rows on their way from the tasks of one round to the partitions of a later one.

A task writes one Arrow IPC file per channel, its rows grouped by destination, one record batch per destination, and the
groups' bounds in the schema's metadata. A reader opens every task's file and fetches its own batch alone. Files of one
channel are read in task order, so what a reader sees depends on no schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.errors import StorageError
from gnnflow.storage.columns import combine, take_rows
from gnnflow.storage.filesystem import join, open_arrow, open_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.graph.arrays import Array

_BOUNDS = b"gnnflow.bounds"


@dataclass(frozen=True)
class Emit:
    """Rows for a channel, each with the partition it goes to.

    picked [n] says which rows of the table are sent, in which order; None sends each once. They are gathered one
    destination at a time, so sending a row to many costs no memory. destination: integers [n].
    """

    channel: str
    rows: pa.Table
    destination: Array
    picked: Array | None = None


def exchange_file(work: str, round_name: str, channel: str, task: int) -> str:
    """Return where a task's rows for a channel lie."""
    return join(work, round_name, channel, f"{task:05d}.arrow")


def write_exchange(uri: str, emit: Emit, num_destinations: int) -> int:
    """Write one task's rows, grouped by destination in their given order. Returns the bytes written."""
    # rows for each destination [D], and where they begin among the grouped rows [D + 1]
    counts = np.bincount(emit.destination, minlength=num_destinations)
    assert len(counts) == num_destinations, "a row was sent to a partition that does not exist"
    bounds = offsets_of(counts)
    schema = emit.rows.schema.with_metadata({_BOUNDS: bounds.tobytes()})
    # rows of the table in the order they are written [n]; None where that is the table's own order
    picked, rows = _grouped(emit), emit.rows.combine_chunks()
    with open_output(uri) as sink:
        with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            for destination in np.flatnonzero(counts):
                own = slice(bounds[destination], bounds[destination + 1])
                piece = rows.slice(own.start, counts[destination]) if picked is None else take_rows(rows, picked[own])
                writer.write_batch(pa.RecordBatch.from_arrays([combine(c) for c in piece.columns], schema=schema))
        return int(sink.tell())


def _grouped(emit: Emit) -> Array | None:
    """Return the rows to send, grouped by destination; None where the table is already in that order."""
    if not np.any(emit.destination[1:] < emit.destination[:-1]):
        return emit.picked
    order = np.argsort(emit.destination, kind="stable")
    return order if emit.picked is None else emit.picked[order]


def read_exchange(uri: str, destination: int) -> pa.Table:
    """Return the rows one task sent to a destination."""
    with open_arrow(uri) as source:
        try:
            reader = pa.ipc.open_file(source)
            schema = reader.schema
            # which destinations have a batch in the file [D]; batches lie in the order of destinations
            sent = np.diff(np.frombuffer(schema.metadata[_BOUNDS], np.int64)) > 0
            batches = [reader.get_batch(int(sent[:destination].sum()))] if sent[destination] else []
        except (pa.ArrowInvalid, OSError) as error:
            raise StorageError(
                f"an exchange file cannot be read ({error})",
                where=uri,
                fix="Delete the workspace's work/ folder and run again.",
            ) from error
    return pa.Table.from_batches(batches, schema=schema.remove_metadata())


@dataclass(frozen=True)
class Inbox:
    """What earlier rounds sent to one partition.

    channels maps a channel's name to the round that emitted it and that round's number of tasks.
    """

    work: str
    partition: int
    channels: dict[str, tuple[str, int]]

    def pieces(self, channel: str) -> Iterator[pa.Table]:
        """Yield the rows of each task in task order, so that one piece at a time is in memory."""
        round_name, num_tasks = self.channels[channel]
        for task in range(num_tasks):
            yield read_exchange(exchange_file(self.work, round_name, channel, task), self.partition)

    def read(self, channel: str) -> pa.Table:
        """Return every task's rows, concatenated in task order."""
        return pa.concat_tables(list(self.pieces(channel)))
