"""The array types that every package shares, and operations on offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
KeyArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


def offsets_of(lengths: Array) -> IntArray:
    """Return CSR offsets [n + 1] for rows of the given lengths [n]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def distinct(values: IntArray) -> IntArray:
    """Return the distinct values in ascending order.

    By sorting: NumPy's own `unique` hashes first, which on millions of integers takes ten times as long.
    """
    ordered = np.sort(values)
    return ordered[is_first(ordered)]


def is_first(*columns: Array) -> BoolArray:
    """Return whether each row [n] of grouped columns differs from the row before it; the first one does."""
    first = np.ones(len(columns[0]), bool)
    np.not_equal(columns[0][1:], columns[0][:-1], out=first[1:])
    for column in columns[1:]:
        first[1:] |= column[1:] != column[:-1]
    return first


def find_places(ordered: IntArray, values: IntArray) -> IntArray:
    """Return the first place of each value [n] in ascending values, -1 where they do not contain it."""
    if not len(ordered):
        return np.full(len(values), -1)
    # where each value would lie among the ordered ones [n], and whether it is there
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.where(ordered[place] == values, place, -1)


def ragged_ranges(starts: Array, lengths: Array) -> IntArray:
    """Return the concatenation of the ranges [start, start + length), without a loop over them."""
    # the end of each range in the result [n]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    ranges: IntArray = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return ranges


@dataclass(frozen=True)
class AlignedArrays:
    """Arrays [n, ...] that have a row for each of the same n items; dataclasses of arrays derive from it."""

    def take(self, rows: IntArray) -> Self:
        """Return the items of some rows."""
        return type(self)(*(array[rows] for array in vars(self).values()))

    def pieces(self, size: int) -> Iterator[Self]:
        """Yield so many items at a time; at least one piece."""
        number = len(next(iter(vars(self).values())))
        for start in range(0, max(number, 1), size):
            yield self.take(np.arange(start, min(start + size, number)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the items of all parts, part by part."""
        return cls(*(np.concatenate(column) for column in zip(*(vars(part).values() for part in parts), strict=True)))


def degree_bins(in_degree: IntArray) -> list[int]:
    """Return nodes per power of two of in-degree: bin 0 none, 1 one, 2 two or three, 3 four to seven, ..."""
    bins: list[int] = np.bincount(np.ceil(np.log2(in_degree + 1)).astype(np.int64), minlength=1).tolist()
    return bins
