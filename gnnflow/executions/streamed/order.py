"""In which order an edge phase goes over the chunks of a relation: what stays in memory, and what goes by.

    forward     a group of target intervals stays, whose states grow; source intervals go by, once per group
    backward    a group of source intervals stays, whose gradients grow; target intervals go by, once per group

Small intervals in large groups read least: nearly all memory is then of what stays, and so much of it at once saves as
many passes over what goes by. Of one interval each, as in NGra's columns of chunks (Ma et al. 2018, section 4), memory
for what goes by and is read ahead is several times that of what stays.

The size of a group changes no sum: a target still adds up its sources in their order, and a source its targets.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Generic, TypeVar

from gnnflow.executions.streamed.graph import Piece

S = TypeVar("S", bound=Hashable)
T = TypeVar("T", bound=Hashable)

MOST_AT_ONCE = 4
"""Pieces that are read as one, where together they have no more edges than the largest piece."""


@dataclass(frozen=True)
class Turn(Generic[T]):
    """What goes by at once, and its pieces as they are read."""

    passing: T
    batches: tuple[tuple[Piece, ...], ...]


@dataclass(frozen=True)
class Group(Generic[S, T]):
    """What stays together, and what goes by while it does."""

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
    """Yield what reads what stays and edges, in the order in which they are asked for, given what reads one of each.

    What goes by is read apart, so that the next of it has a whole turn's time.
    """
    for group in groups:
        yield from (partial(staying, each) for each in group.staying)
        for turn in group.turns:
            yield from (partial(batch, each) for each in turn.batches)


def _batches(pieces: Iterable[Piece], most: int) -> list[tuple[Piece, ...]]:
    """Return which pieces are read at once: of no more edges than so many, but for a larger piece alone."""
    found: list[list[Piece]] = []
    num_edges = 0
    for piece in pieces:
        num_edges += piece.num_edges
        if not found or len(found[-1]) == MOST_AT_ONCE or num_edges > most:
            found.append([])
            num_edges = piece.num_edges
        found[-1].append(piece)
    return [tuple(each) for each in found]
