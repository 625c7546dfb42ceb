"""Input features of nodes in files, by interval.

Shapes: n rows of an interval, F features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray, offsets_of
from gnnflow.graph.batch import Features
from gnnflow.kernels import empty_rows
from gnnflow.train.streamed.files import NodeFile, Scratch, bytes_of
from gnnflow.train.streamed.numbering import Run
from gnnflow.train.streamed.widths import NUMBER


class FeatureFile:
    """Input features by interval, dense or sparse, as they are stored. dense: where they lie if they are."""

    def __init__(
        self, scratch: Scratch, sizes: Sequence[int], width: int, *, sparse: bool, own: range | None = None
    ) -> None:
        self._width = width
        self.dense = None if sparse or not width else NodeFile(scratch, tuple(sizes), width, own)
        self._sparse = scratch.file()
        # of each interval: its rows from which one on, where they lie, how many they and their entries are, and whether
        # these have values
        self._segments: list[list[tuple[int, int, int, int, bool]]] = [[] for _ in sizes]

    def add(self, run: Run, features: Features, places: IntArray) -> None:
        """Write the features of a run's nodes, given those of the nodes at hand. places: which of these they are."""
        if self.dense is not None:
            assert features.dense is not None
            self.dense.fill(run.interval, run.within, features.dense[places])
            return
        self._segments[run.interval].append((run.within, *self._append(features.take(places))))

    def _append(self, features: Features) -> tuple[int, int, int, bool]:
        assert features.offsets is not None
        assert features.index is not None
        at, value = self._sparse.size, features.value
        columns: list[Array] = [np.diff(features.offsets).astype(np.int32), features.index.astype(np.int32)]
        for column in [*columns, *([] if value is None else [np.ascontiguousarray(value, np.float32)])]:
            self._sparse.append(bytes_of(column))
        return at, len(features), len(features.index), value is not None

    def read(self, interval: int, num_rows: int) -> Features:
        """Return the features of an interval's first rows."""
        if self.dense is not None:
            return Features(self._width, dense=self.dense.read(interval, num_rows).view(-1, self._width).numpy())
        # an interval without nodes has no segment
        segments = sorted(self._segments[interval]) or [(0, 0, 0, 0, False)]
        lengths = np.concatenate([self._numbers(at, rows) for _, at, rows, _, _ in segments])
        offsets = offsets_of(lengths[:num_rows])
        index, value = _room(2 * offsets[-1]).view(np.int64), _room(offsets[-1]) if segments[0][4] else None
        first = 0
        for _, at, rows, entries, _ in segments:  # into their place, as entries are what there is most of
            begin, last = at + NUMBER * rows, min(first + entries, len(index))
            index[first:last] = self._numbers(begin, last - first)
            if value is not None:
                self._sparse.read(bytes_of(value[first:last]), begin + NUMBER * entries)
            first = last
        return Features(self._width, offsets=offsets, index=index, value=value)

    def _numbers(self, at: int, number: int) -> Array:
        """Read some numbers of a place in the file."""
        held = _room(number).view(np.int32)
        self._sparse.read(bytes_of(held), at)
        return held


def _room(number: int) -> FloatArray:
    """Return room for so many numbers of 4 bytes, in memory that serves again as that of dense features does."""
    return empty_rows(int(number)).numpy()
