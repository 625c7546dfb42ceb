"""The faultless rows of a chunk of a table as given: what the first round of nodes, and of edges, begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.ingest.checks import Fault, input_positions, separate
from gnnflow.ingest.labels import rounding
from gnnflow.ingest.numbers import count_rounded
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.storage.columns import take_rows
from gnnflow.storage.user_tables import read_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gnnflow.graph.arrays import IntArray
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.numbers import FloatType
    from gnnflow.ingest.tables import EdgeTable, NodeTable


class FaultlessRows(NamedTuple):
    """Rows of a chunk, where each came from [n], and what was set aside and counted."""

    rows: pa.Table
    place: IntArray
    done: TaskOutput


def read_rows(
    source: NodeTable | EdgeTable,
    number: int,
    job: IngestJob,
    *,
    names: Sequence[str],
    numbers: Mapping[str, FloatType],
    faults: Callable[[pa.Table], list[Fault]],
) -> FaultlessRows:
    """Return the faultless rows of a table's chunk, where each came from, and what was set aside and counted.

    names: the columns to read. numbers: those of numbers, with the type that each is rounded to first.
    """
    table = read_chunk(source.chunks[number], names)
    # an integer per row that says which chunk and row it came from [n]
    place = input_positions(number, np.arange(table.num_rows))
    found = separate(table, faults(table), chunks=source.chunks, place=place, policy=job.config.on_bad_rows)
    rows = take_kept(table, found.kept)
    lost = {**rounding(rows, source.schema, job.config), **count_rounded(rows, numbers)}
    done = TaskOutput(
        files=job.set_aside(f"{source.stem}-read-{number:05d}", found.bad),
        counts={"rows_in": table.num_rows, **found.counts, **lost},
    )
    return FaultlessRows(rows, place[found.kept], done)


def take_kept(table: pa.Table, kept: IntArray) -> pa.Table:
    """Return the kept rows; the table itself where all are."""
    return table if len(kept) == table.num_rows else take_rows(table.combine_chunks(), kept)
