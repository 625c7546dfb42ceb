"""What some edges read of their sources at once, and where the gradients of it go.

    an interval    its rows: of edges that come from one node each
    EVERY          the rows of all intervals, one after the other: of edges with leaves, where a type is one interval
    picked         of all intervals the rows that a piece names: of edges with leaves, where a type is several

Picked rows are read and added to an interval at a time, so beside them one interval is in memory. An interval of which
a piece names no row is left out. Reading all of one that it names some rows of costs little more than these: a page of
4 KiB holds 16 rows of 64 columns, so where a tenth of the rows is named hardly a page is not.

Shapes: S rows of sources, n rows of an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from gnnflow.executions.streamed.graph import EVERY, Held, Piece, WithoutValues, joined, parts
from gnnflow.executions.streamed.rooms import Named


@dataclass(frozen=True)
class Sources:
    """Sources that are read at once. interval: may be EVERY. rows: reads which rows of all intervals are picked [S].

    sizes: rows of each interval. Picked rows are ascending and distinct.
    """

    interval: int
    sizes: Sequence[int] = field(compare=False)
    rows: Callable[[], Tensor] | None = None

    @classmethod
    def of(cls, piece: Piece, sizes: Sequence[int]) -> Sources:
        """Return those of a piece."""
        return cls(piece.source, sizes, piece.rows)

    def read(self, held: Held | WithoutValues) -> Named:
        """Return what is held of them."""
        if self.rows is not None:
            assert isinstance(held, Held), "of edges with leaves all is read"
            return self._picked(held, self.rows())
        if self.interval != EVERY:
            return held.read(self.interval)
        return joined([held.read(each) for each in range(len(self.sizes))])

    def no_gradients(self, held: Held, terms: Named, device: torch.device) -> Named:
        """Return zeros for the gradients of what was read."""
        return zeros(held, len(next(iter(terms.values()), ())), device)

    def write(self, held: Held, gathered: Named) -> None:
        """Have their gradients written; those of picked rows are added to what is there."""
        if self.rows is not None:
            self._add(held, self.rows(), gathered)
        elif self.interval != EVERY:
            held.write(self.interval, gathered)
        else:
            for interval, (first, last) in enumerate(pairwise(self._firsts)):
                held.write(interval, parts(gathered, slice(first, last)))

    @property
    def _firsts(self) -> list[int]:
        return [0, *accumulate(self.sizes)]

    def _within(self, rows: Tensor) -> Iterator[tuple[int, slice, Tensor]]:
        """Yield the intervals that have some of the rows: which they are, and their places in the interval."""
        firsts = self._firsts
        bounds = np.searchsorted(rows.numpy(), firsts).tolist()
        for interval, (first, last) in enumerate(pairwise(bounds)):
            if first < last:
                yield interval, slice(first, last), rows[first:last] - firsts[interval]

    def _picked(self, held: Held, rows: Tensor) -> Named:
        made = held.empty(len(rows), rows.device)
        for interval, run, places in self._within(rows):
            for name, each in held.read(interval).items():
                # numpy has one thread: torch would begin others for this one, beside those that compute
                np.take(each.numpy(), places.numpy(), axis=0, out=made[name][run].numpy(), mode="clip")
        return made

    def _add(self, held: Held, rows: Tensor, gathered: Named) -> None:
        for interval, run, places in self._within(rows):
            so_far = held.read(interval)
            for name, each in so_far.items():
                each[places] += gathered[name][run]  # places are distinct
            held.write(interval, so_far)


@dataclass(frozen=True)
class Passing(Sources):
    """Sources that go by. own: their terms are those of messages to oneself, of another type than the other sources."""

    own: bool = field(default=False, kw_only=True)


def zeros(held: Held, number: int, device: torch.device) -> Named:
    """Return zeros for so many rows."""
    made = held.empty(number, device)
    for rows in made.values():
        rows.zero_()
    return made


def fill_with_zeros(held: Held, intervals: Sequence[int], sizes: Sequence[int], device: torch.device) -> None:
    """Have zeros written for all rows of some intervals."""
    for interval in intervals:
        held.write(interval, zeros(held, sizes[interval], device))
