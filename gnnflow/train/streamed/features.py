"""Input features of nodes in files, by interval.

Shapes: n rows of an interval, F features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnflow.graph.arrays import Array, IntArray, offsets_of
from gnnflow.graph.batch import Features
from gnnflow.train.streamed.files import NodeFile, Scratch, bytes_of
from gnnflow.train.streamed.numbering import Run


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
        lengths, index, value = (
            np.concatenate(column) for column in zip(*(self._read(*each[1:]) for each in segments), strict=True)
        )
        has_value = segments[0][4]
        offsets = offsets_of(lengths[:num_rows])
        return Features(
            self._width,
            offsets=offsets,
            index=index[: offsets[-1]].astype(np.int64),
            value=value.view(np.float32)[: offsets[-1]] if has_value else None,
        )

    def _read(self, at: int, num_rows: int, num_entries: int, has_value: bool) -> list[Array]:  # noqa: FBT001
        bounds = np.cumsum([num_rows, num_entries, num_entries * has_value])
        held = np.empty(int(bounds[-1]), np.int32)
        self._sparse.read(bytes_of(held), at)
        return np.split(held, bounds[:-1])
