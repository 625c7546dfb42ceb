"""Means and deviations of columns, merged from parts without losing digits (Chan, Golub and LeVeque 1979).

Sums of squares would: of timestamps that lie seconds apart nothing would be left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import FloatArray
from gnnflow.graph.scales import ColumnScale
from gnnflow.storage.columns import from_matrix, to_matrix

if TYPE_CHECKING:
    from gnnflow.graph.scales import Scales
    from gnnflow.mapreduce.rounds import TaskRecord


@dataclass(frozen=True)
class Moments:
    """Of each column: its mean, the sum of squared distances from it, and its smallest and largest value."""

    rows: int
    mean: Sequence[float]
    squares: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def scaled(column: pa.ChunkedArray, scale: ColumnScale) -> pa.Array:
    """Return rows of float64 scaled, as float32."""
    rows = (to_matrix(column, np.float64) - np.asarray(scale.mean)) / np.asarray(scale.deviation)
    return from_matrix(rows.astype(np.float32))


def moments_of(matrix: FloatArray) -> Moments:
    """Return the moments of a float64 matrix [rows, width], in two passes."""
    rows, width = matrix.shape
    if not rows:
        return Moments(0, [0.0] * width, [0.0] * width, [np.inf] * width, [-np.inf] * width)
    mean = matrix.mean(0)
    mean += (matrix - mean).mean(0)  # what rounding took from the first sum
    squares = ((matrix - mean) ** 2).sum(0)
    return Moments(rows, mean.tolist(), squares.tolist(), matrix.min(0).tolist(), matrix.max(0).tolist())


def scale_of(parts: Sequence[Moments]) -> ColumnScale:
    """Return the scale of all parts together. A column of one value becomes zeros; one without rows stays as it is."""
    with_rows = [part for part in parts if part.rows]
    every = reduce(_merged, with_rows) if with_rows else parts[0]
    if not with_rows:
        return ColumnScale((0.0,) * len(every.mean), (1.0,) * len(every.mean))
    low, high = np.asarray(every.low), np.asarray(every.high)
    # Rounding may leave a little of a constant, which must not be blown up.
    varies = high > low
    deviation = np.sqrt(np.asarray(every.squares) / every.rows)
    mean = np.where(varies, every.mean, low)
    return ColumnScale(tuple(mean.tolist()), tuple(np.where(varies & (deviation > 0), deviation, 1.0).tolist()))


def scales_of(names: Sequence[str], records: Sequence[TaskRecord], *, given: Scales) -> dict[str, ColumnScale]:
    """Return by what the numbers of each table are scaled, of those whose numbers are.

    records: of the tasks that counted, of each partition its tables. given: of those whose own were not counted.
    """
    found = {name: given[name] for name in names if name in given}
    for number, name in enumerate(names):
        counted = [record.counts["moments"] for record in records[number :: len(names)] if "moments" in record.counts]
        if counted:
            found[name] = scale_of([Moments(**each) for each in counted])
    return found


def _merged(one: Moments, other: Moments) -> Moments:
    # Chan, Golub and LeVeque's update: squares are of distances from the mean, so nothing large cancels
    rows = one.rows + other.rows
    apart = np.asarray(other.mean) - np.asarray(one.mean)
    mean = np.asarray(one.mean) + apart * (other.rows / rows)
    squares = np.asarray(one.squares) + np.asarray(other.squares) + apart**2 * (one.rows * other.rows / rows)
    low, high = np.minimum(one.low, other.low), np.maximum(one.high, other.high)
    return Moments(rows, mean.tolist(), squares.tolist(), low.tolist(), high.tolist())
