"""Rows of dense features in fewer bytes than float32 (`graph.storage`): encodes and decodes them.

float16 and bfloat16 round each number to the nearest, ties to even. int8 and int4 divide a column's range into 255 or
15 equal steps: a number is its column's low + code x step, the nearest code, ties to even. Ranges are of all rows of
the table that a model was trained on; numbers outside of them become the nearest end.

A stored row is bytes, so that files, shards and gathers need not know the kind: W numbers of 2 bytes, little-endian, W
codes, or (W + 1) // 2 bytes of two codes each, the even column in the lower half.

Shapes: N rows, W columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import FloatArray

StorageKind = Literal["float32", "float16", "bfloat16", "int8", "int4"]
ByteArray = npt.NDArray[np.uint8]

KINDS: tuple[StorageKind, ...] = ("float32", "float16", "bfloat16", "int8", "int4")
"""The kinds by their numbers in shards."""

LEVELS: Mapping[StorageKind, int] = {"int8": 255, "int4": 15}
"""The steps of a column's range, of kinds that have ranges."""

LARGEST: Mapping[StorageKind, float] = {"float16": 65504.0, "bfloat16": float.fromhex("0x1.fep+127")}
"""The largest magnitude of kinds without ranges."""

LARGEST_SPREAD = float(np.finfo(np.float32).max) / 2
"""The largest range of a column with steps: sums of its parts stay in float32."""

_RUN = 1 << 14  # rows that are encoded or decoded at once, so that temporary arrays stay in the cache
_SAME = 1e-6


@dataclass(frozen=True)
class ColumnRanges:
    """The smallest and the largest number of each column of a table."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def agrees(self, other: ColumnRanges) -> bool:
        """Return whether both are the same ranges, to the precision of float32."""
        if len(self.low) != len(other.low):
            return False
        size = _SAME * np.maximum(np.subtract(self.high, self.low), np.abs(self.high))
        apart = (np.abs(np.subtract(one, two)) for one, two in ((self.low, other.low), (self.high, other.high)))
        return all(bool((each <= size).all()) for each in apart)


Ranges = Mapping[str, ColumnRanges]
"""The ranges of each table's columns by its name, as in `gnnflow.graph.scales`; of int8 and int4 alone."""


def ranges_agree(one: Ranges, other: Ranges) -> bool:
    """Return whether the same tables have the same ranges."""
    return one.keys() == other.keys() and all(held.agrees(other[name]) for name, held in one.items())


@dataclass(frozen=True, eq=False)
class NarrowRows:
    """The form of stored rows of W numbers. low and step [W]: float32, of int8 and int4."""

    kind: StorageKind
    width: int
    low: FloatArray | None = None
    step: FloatArray | None = None

    @classmethod
    def of(cls, kind: StorageKind, width: int, ranges: ColumnRanges | None = None) -> NarrowRows:
        """Return the form of rows whose columns have these ranges."""
        if kind not in LEVELS:
            return cls(kind, width)
        assert ranges is not None, "codes are steps of a column's range"
        low, high = np.asarray(ranges.low, np.float64), np.asarray(ranges.high, np.float64)
        return cls(kind, width, low.astype(np.float32), ((high - low) / LEVELS[kind]).astype(np.float32))

    @property
    def number(self) -> int:
        """The kind's number in shards."""
        return KINDS.index(self.kind)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return row_bytes(self.kind, self.width)

    def same_as(self, other: NarrowRows) -> bool:
        """Return whether rows of both mean the same."""
        alike = (self.kind, self.width) == (other.kind, other.width)
        return alike and all(
            np.array_equal(mine, theirs)
            for mine, theirs in ((self.low, other.low), (self.step, other.step))
            if mine is not None and theirs is not None
        )

    def encode(self, matrix: FloatArray) -> ByteArray:
        """Return float32 numbers [N, W] as stored rows [N, row_bytes]. They are finite and within the kind's limits."""
        out = np.empty((len(matrix), self.row_bytes), np.uint8)
        for run in _runs(len(matrix)):
            out[run] = self._encoded(np.ascontiguousarray(matrix[run], np.float32))
        return out

    def decode(self, rows: ByteArray) -> FloatArray:
        """Return stored rows [N, row_bytes] as float32 numbers [N, W]."""
        out = np.empty((len(rows), self.width), np.float32)
        for run in _runs(len(rows)):
            out[run] = self._decoded(np.ascontiguousarray(rows[run]))
        return out

    def _encoded(self, matrix: FloatArray) -> ByteArray:
        if self.kind == "float16":
            return matrix.astype("<f2").view(np.uint8)
        if self.kind == "bfloat16":
            bits = matrix.view(np.uint32)
            # half of the last place that stays, less one where that place is even: ties go to even
            rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
            return (rounded >> np.uint32(16)).astype("<u2").view(np.uint8)
        assert self.low is not None
        assert self.step is not None
        low, step = self.low.astype(np.float64), self.step.astype(np.float64)
        places = np.rint((matrix - low) / np.where(step > 0, step, 1))
        codes = np.clip(places, 0, np.where(step > 0, LEVELS[self.kind], 0)).astype(np.uint8)
        if self.kind == "int8":
            return codes
        even, odd = codes[:, ::2], codes[:, 1::2]
        packed = even.copy()
        packed[:, : odd.shape[1]] |= odd << np.uint8(4)
        return packed

    def _decoded(self, rows: ByteArray) -> FloatArray:
        if self.kind == "float16":
            return rows.view("<f2").astype(np.float32)
        if self.kind == "bfloat16":
            return (rows.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
        assert self.low is not None
        assert self.step is not None
        codes = rows
        if self.kind == "int4":
            codes = np.empty((len(rows), 2 * self.row_bytes), np.uint8)
            codes[:, ::2], codes[:, 1::2] = rows & np.uint8(15), rows >> np.uint8(4)
            codes = codes[:, : self.width]
        found: FloatArray = codes.astype(np.float32)
        # two roundings, as the native core has: never fused
        found *= self.step
        found += self.low
        return found


def row_bytes(kind: StorageKind, width: int) -> int:
    """Return the bytes of a row of so many numbers."""
    return {"float32": 4 * width, "float16": 2 * width, "bfloat16": 2 * width, "int8": width}.get(kind, -(-width // 2))


def _runs(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + _RUN, rows)) for start in range(0, rows, _RUN))


class ColumnError(NamedTuple):
    """A column's largest and mean error as shares of its spread: its largest less its smallest number."""

    name: str
    spread: float
    largest: float
    mean: float


@dataclass(frozen=True)
class ColumnErrors:
    """The errors of each column of a table as it is stored: the largest, the mean, and the spread of its numbers."""

    storage: StorageKind
    names: tuple[str, ...]
    largest: tuple[float, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def relative(self) -> tuple[ColumnError, ...]:
        """Each column's errors, those that lost most first; 0 where all numbers are equal."""
        shares = (
            ColumnError(name, spread, largest / spread if spread else 0.0, mean / spread if spread else 0.0)
            for name, largest, mean, spread in zip(self.names, self.largest, self.mean, self.spread, strict=True)
        )
        return tuple(sorted(shares, key=lambda each: (-each.largest, -each.mean)))

    @property
    def text(self) -> str:
        """A phrase about the storage and the errors."""
        held = self.relative
        mean = max(each.mean for each in held)
        return (
            f"features are stored as {self.storage}; of a column's spread the largest error is "
            f"{100 * held[0].largest:.3g} %, and the mean at most {100 * mean:.3g} %"
        )
