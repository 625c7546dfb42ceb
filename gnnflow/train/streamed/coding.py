"""Whole numbers as they lie in a file: in as few bytes each as hold them all, or hold the steps between them.

A row of an interval is a number of two bytes where the interval has no more than 65,536 rows. Where a row's edges begin
is told by how many the row before has, mostly in one byte. Else there are four.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import Array, IntArray

ROWS_OF_TWO_BYTES = 1 << 16
"""The most rows of which a number of two bytes tells each."""

_OF_BYTES = {1: np.uint8, 2: np.uint16, 4: np.int32}


@dataclass(frozen=True)
class Coding:
    """How numbers lie. num_bytes: of each. are_steps: what one is more than the one before, the first than zero."""

    num_bytes: int
    are_steps: bool = False

    @classmethod
    def of(cls, numbers: IntArray) -> Coding:
        """Return the coding of the fewest bytes."""
        plain = cls(_bytes_of(numbers))
        steps = np.diff(numbers, prepend=0)
        by_steps = _bytes_of(steps)
        return cls(by_steps, are_steps=True) if by_steps < plain.num_bytes else plain

    def coded(self, numbers: IntArray) -> Array:
        """Return the numbers as they lie: whole numbers of 4 bytes, which the last ones fill up."""
        held = np.diff(numbers, prepend=0) if self.are_steps else numbers
        made = np.zeros(self.run(len(numbers)), np.int32)
        made.view(_OF_BYTES[self.num_bytes])[: len(held)] = held
        return made

    def run(self, number: int) -> int:
        """Return how many whole numbers of 4 bytes so many take."""
        return -(-number * self.num_bytes // 4)

    def decoded(self, run: Array, number: int, dtype: type[np.integer]) -> Array:
        """Return the first so many numbers of a run of whole numbers of 4 bytes."""
        held = run.view(_OF_BYTES[self.num_bytes])[:number]
        return np.cumsum(held, dtype=dtype) if self.are_steps else held.astype(dtype, copy=False)


PLAIN = Coding(4)


def _bytes_of(numbers: IntArray) -> int:
    """Return the bytes of each of some numbers; below zero there are four."""
    if not len(numbers):
        return 1
    least, most = int(numbers.min()), int(numbers.max())
    return next((each for each in (1, 2) if least >= 0 and most < 1 << 8 * each), 4)
