"""The order in which an edge phase goes over the chunks of a relation: what stays in memory, and what goes by.

    forward     a group of target intervals stays, whose states grow; source intervals go by, once per group
    backward    a group of source intervals stays, whose gradients grow; target intervals go by, once per group

Small intervals in large groups read least: nearly all memory is then of what stays, and so much of it at once saves as
many passes over what goes by. Of one interval each, as in NGra's columns of chunks (Ma et al. 2018, section 4), memory
for what goes by and is read ahead is several times the memory for what stays.

The size of a group changes no sum: a target still adds up its sources in their order, and a source its targets.

Edges read at once, of their sources:

    an interval    its rows: of edges that come from one node each
    EVERY          the rows of all intervals, one after the other: of edges with leaves, where a type is one interval
    picked         of all intervals the rows that a piece names: of edges with leaves, where a type is several

Picked rows are read and added to an interval at a time, so besides them one interval is in memory. An interval of which
a piece names no row is left out. Reading all of one that it names some rows of costs little more than these: a page of
4 KiB holds 16 rows of 64 columns, so where a tenth of the rows is named hardly a page is not.

Shapes: S rows of sources, n rows of an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from gnnflow.executions.streamed.graph import EVERY, Held, Piece, WithoutValues, joined, parts
from gnnflow.executions.streamed.rooms import Named

S = TypeVar("S", bound=Hashable)
T = TypeVar("T", bound=Hashable)

MOST_AT_ONCE = 4
"""Pieces that are read as one, where together they have no more edges than the largest piece."""


@dataclass(frozen=True)
class Turn(Generic[T]):
    """An interval that goes by, or several at once, and its pieces as they are read."""

    passing: T
    batches: tuple[tuple[Piece, ...], ...]


@dataclass(frozen=True)
class Group(Generic[S, T]):
    """Intervals that stay together, and what goes by while they do."""

    staying: tuple[S, ...]
    turns: tuple[Turn[T], ...]


def groups_of(
    held: Sequence[tuple[S, Sequence[Piece]]],
    *,
    size: int,
    passing: Callable[[Piece], T],
    rank: Callable[[Piece], int],
) -> list[Group[S, T]]:
    """Return pieces in the order in which they are gone over.

    held: what stays, one after the other, each with its pieces in the order of what goes by. passing: what of a piece
    goes by; rank: the place of that among all that does.
    """
    every = [piece for _, pieces in held for piece in pieces]
    most, found = max((piece.num_edges for piece in every), default=0), []
    for first in range(0, len(held), size):
        group = held[first : first + size]
        pieces = sorted((piece for _, of in group for piece in of), key=rank)  # stable: of one rank, as they stay
        turns = [Turn(by, tuple(_batches(of, most))) for by, of in groupby(pieces, key=passing)]
        found.append(Group(tuple(each for each, _ in group), tuple(turns)))
    return found


def loads(
    groups: Iterable[Group[S, T]], *, staying: Callable[[S], object], batch: Callable[[tuple[Piece, ...]], object]
) -> Iterator[Callable[[], object]]:
    """Yield the functions that read intervals that stay, and edges, in the order in which they are asked for.

    staying, batch: read one of each.
    What goes by is read apart, so that the next of it has a whole turn's time.
    """
    for group in groups:
        yield from (partial(staying, each) for each in group.staying)
        for turn in group.turns:
            yield from (partial(batch, each) for each in turn.batches)


def _batches(pieces: Iterable[Piece], most: int) -> list[tuple[Piece, ...]]:
    """Return batches of pieces to read at once: each of at most so many edges, or one larger piece alone."""
    found: list[list[Piece]] = []
    num_edges = 0
    for piece in pieces:
        num_edges += piece.num_edges
        if not found or len(found[-1]) == MOST_AT_ONCE or num_edges > most:
            found.append([])
            num_edges = piece.num_edges
        found[-1].append(piece)
    return [tuple(each) for each in found]


class _PickedRows(NamedTuple):
    """Picked rows in one interval: which run of the picked rows they are, and their places in the interval."""

    interval: int
    run: slice
    places: Tensor


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
        """Return the sources of a piece."""
        return cls(piece.source, sizes, piece.rows)

    def read(self, held: Held | WithoutValues) -> Named:
        """Return the terms of these sources."""
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
        """Write the sources' gradients; gradients of picked rows are added to the stored ones."""
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

    def _within(self, rows: Tensor) -> Iterator[_PickedRows]:
        """Yield the picked rows of each interval that has some."""
        firsts = self._firsts
        # where the picked rows of each interval begin among all picked rows
        bounds = np.searchsorted(rows.numpy(), firsts).tolist()
        for interval, (first, last) in enumerate(pairwise(bounds)):
            if first < last:
                yield _PickedRows(interval, slice(first, last), rows[first:last] - firsts[interval])

    def _picked(self, held: Held, rows: Tensor) -> Named:
        made = held.empty(len(rows), rows.device)
        for interval, run, places in self._within(rows):
            for name, each in held.read(interval).items():
                # numpy has one thread: torch would begin others, for which the computing ones would wait
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
    """Sources that go by. own: their terms are of messages to oneself, of another type than the other sources."""

    own: bool = field(default=False, kw_only=True)


def zeros(held: Held, number: int, device: torch.device) -> Named:
    """Return zeros for so many rows."""
    made = held.empty(number, device)
    for rows in made.values():
        rows.zero_()
    return made


def fill_with_zeros(held: Held, intervals: Sequence[int], sizes: Sequence[int], device: torch.device) -> None:
    """Write zeros in the background for all rows of some intervals."""
    for interval in intervals:
        held.write(interval, zeros(held, sizes[interval], device))
