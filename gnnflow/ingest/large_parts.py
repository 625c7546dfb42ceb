"""Sorts a partition's edges that do not fit the memory: in runs on the disk, of which ranges of pairs are read again.

A run is sorted as a whole, so the edges of a range lie together in each. Runs come in input order and a pair is never
divided between ranges, so ranges sorted one after another give the order of one sort. Files are temporary, on the disk
of the worker, and mapped only while rows are copied out of them. One run stays in memory.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.native import stable_sort
from gnnflow.storage.columns import take_rows, to_numpy
from gnnflow.storage.tables import unnamed_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gnnflow.graph.arrays import IntArray

_PAIR = "pair"
_STEP = 1 << 10
"""Rows between two samples of a run, from which the ranges follow."""


def runs_of(pieces: Iterable[pa.Table], most_bytes: int) -> Iterator[pa.Table]:
    """Yield rows joined to runs of about `most_bytes`, at least one; a piece is never divided."""
    held, held_bytes = list[pa.Table](), 0
    for piece in pieces:
        if held and held_bytes + piece.nbytes > most_bytes:
            yield pa.concat_tables(held).combine_chunks()
            held, held_bytes = [], 0
        # the schema of the first piece serves where no piece has rows
        if piece.num_rows or not held:
            held.append(piece)
            held_bytes += piece.nbytes
    yield pa.concat_tables(held).combine_chunks()


class EdgeRuns(ExitStack):
    """The runs of a partition's edges; their files end with its `with` block.

    pairs: returns both ends of edges as one integer [E].
    """

    def __init__(self, pairs: Callable[[pa.Table], IntArray]) -> None:
        super().__init__()
        self._pairs = pairs
        self._files: list[str] = []
        self._held: list[pa.Table] = []
        self._samples: list[IntArray] = []
        self._sizes: list[int] = []

    def add(self, rows: pa.Table) -> None:
        """Add a run."""
        self._held.append(rows)
        while len(self._held) + len(self._sizes) > 1 and self._held:
            self._write(self._held.pop(0))

    def _write(self, rows: pa.Table) -> None:
        ordered = stable_sort(self._pairs(rows))
        table = take_rows(rows, ordered.order).append_column(_PAIR, pa.array(ordered.values))
        self._files.append(self.enter_context(unnamed_file()))
        with pa.OSFile(self._files[-1], "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=max(1, table.num_rows))
        self._samples.append(ordered.values[::_STEP].copy())
        self._sizes.append(table.num_rows)

    def ranges(self) -> Iterator[pa.Table]:
        """Yield the edges of one range of pairs after another, in input order within it."""
        if self._held:
            yield self._held.pop()
            return
        samples = np.sort(np.concatenate(self._samples))
        # a range has about as many rows as the largest run
        step = max(1, max(self._sizes) // _STEP)
        bounds = np.unique(samples[step::step])
        for first, last in zip([None, *bounds.tolist()], [*bounds.tolist(), None], strict=True):
            parts = [self._part(number, first, last) for number in range(len(self._sizes))]
            yield pa.concat_tables(parts).combine_chunks()

    def _part(self, number: int, first: int | None, last: int | None) -> pa.Table:
        """Return a copy of the rows of a run from one pair up to another."""
        with pa.memory_map(self._files[number]) as source:
            table = pa.ipc.open_file(source).read_all()
            pairs = to_numpy(table[_PAIR])
            begin = 0 if first is None else int(np.searchsorted(pairs, first))
            end = len(pairs) if last is None else int(np.searchsorted(pairs, last))
            return take_rows(table.drop_columns([_PAIR]).combine_chunks(), np.arange(begin, end))
