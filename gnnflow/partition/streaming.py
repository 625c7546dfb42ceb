"""Deals a stream of items to parts: each to the part with most of its neighbours, less if that part is full.

Linear deterministic greedy (LDG) of Stanton and Kliot, "Streaming graph partitioning for large distributed graphs",
KDD 2012, section 4: item v goes to the part with most w(v, part) (1 - load / capacity). Items come in chunks, and
items of a chunk do not see each other, so the first chunks are small: each is an eighth of the items before it, and at
most `LARGEST_CHUNK`. Several loads are kept at once; the fullest of a part's loads counts.

Memory: a number per item, and a number per part for each item of a chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.arrays import offsets_of

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, BoolArray, IntArray
    from gnnflow.partition.costs import CostArray

LARGEST_CHUNK = 2048
_SEEN_PER_NEW = 8
_ROUNDING = 1e-9
_LEAST_ROOM = 1e-3  # of a part that has no more of one thing: items without any of it still follow their neighbours


class _Choice(NamedTuple):
    """The part of each item [n], and whether the item fits into no part [n]."""

    parts: IntArray
    fits_nowhere: BoolArray


def chunk_bounds(number: int, *, dealt: int = 0) -> IntArray:
    """Return the bounds of chunks of a number of items, after `dealt` others."""
    bounds = [0]
    while bounds[-1] < number:
        size = min(max((dealt + bounds[-1]) // _SEEN_PER_NEW, 1), LARGEST_CHUNK)
        bounds.append(min(bounds[-1] + size, number))
    return np.array(bounds, np.int64)


class Stream:
    """Items on their way to parts.

    owner [N]: the part of each item, -1 before it is dealt. loads, capacity [P, K]: each part's K loads, and their
    limits.
    """

    def __init__(self, num_items: int, *, capacity: CostArray) -> None:
        self.owner = np.full(num_items, -1, np.int64)
        self.capacity = capacity
        self.loads = np.zeros_like(capacity)

    def deal(
        self, items: IntArray, loads: CostArray, lengths: IntArray, neighbors: IntArray, weight: Array | None = None
    ) -> None:
        """Deal a chunk. loads [n, K]; neighbors [E] and their weight [E], lengths [n] of each item.

        Items that fit nowhere go where they even out the loads, above the capacity.
        """
        parts = len(self.capacity)
        # the part of each neighbour, -1 before it is dealt [E]; then the item that each dealt one is a neighbour of
        place = self.owner[neighbors]
        known = place >= 0
        row = np.repeat(np.arange(len(items)), lengths)[known]
        # weight of the edges from each item to each part [n, P]
        joined = np.bincount(
            row * parts + place[known], None if weight is None else weight[known], minlength=len(items) * parts
        ).reshape(len(items), parts)
        # items that are not dealt yet, and whether each part is closed to an item [n, P]
        waiting, closed = np.arange(len(items)), np.zeros((len(items), parts), bool)
        while len(waiting):
            choice, fits_nowhere = self._choose(joined[waiting], loads[waiting], closed[waiting])
            taken = self._fitting(choice, loads[waiting]) | fits_nowhere
            self.owner[items[waiting[taken]]] = choice[taken]
            np.add.at(self.loads, choice[taken], loads[waiting[taken]])
            # a part without room for an item, after the items before it, is not asked again
            closed[waiting[~taken], choice[~taken]] = True
            waiting = waiting[~taken]

    def _choose(self, joined: Array, loads: CostArray, closed: BoolArray) -> _Choice:
        """Return the best open part of each item.

        Items without placed neighbours, and items that fit nowhere, even out the loads.
        """
        # the free share of each part, by its fullest load [P]
        full = np.divide(self.loads, self.capacity, out=np.zeros_like(self.loads), where=self.capacity > 0)
        room = 1 - full.max(1)
        # each part's loads with the item in it [n, P, L], and their limits [1, P, L]
        held, limit = self.loads[None] + loads[:, None], self.capacity[None] * (1 + _ROUNDING)
        fits = np.all((held <= limit) | (loads[:, None] == 0), axis=2) & ~closed
        # LDG's score [n, P]: weight of the edges to a part, less the fuller the part is; a part without room has none
        score = np.where(fits, joined * np.maximum(room, _LEAST_ROOM)[None], -1.0)
        nowhere = ~fits.any(1)
        drawn = score.max(1) > 0
        choice: IntArray = np.where(drawn, score.argmax(1), np.where(fits, room[None], -np.inf).argmax(1))
        # items that no part draws are spread, since the part with most room would get all of a chunk
        alone = np.flatnonzero(nowhere | ~(drawn | closed.any(1)))
        # the emptiest parts come first, and each takes items up to the common level
        order = np.argsort(-room, kind="stable")
        # the share of a part that each of them fills, by its largest load
        size = (loads[alone] / np.maximum(self.capacity.min(0), np.finfo(np.float64).tiny)).max(1)
        ends = np.cumsum(_level(room[order], float(size.sum())))
        choice[alone] = order[np.searchsorted(ends, np.cumsum(size) - size / 2).clip(max=len(order) - 1)]
        return _Choice(choice, nowhere)

    def _fitting(self, choice: IntArray, loads: CostArray) -> BoolArray:
        """Return whether each item fits into its part after the items before it [n]."""
        # items by part [n], and the running sum of their loads [n, L], from which each part's begin is subtracted
        order = np.argsort(choice, kind="stable")
        ordered, added = choice[order], np.cumsum(loads[order], axis=0)
        # where each part's items begin [P + 1], and for each item the loads that were summed before its part [n, L]
        starts = offsets_of(np.bincount(ordered, minlength=len(self.capacity)))
        before = np.concatenate([np.zeros((1, loads.shape[1])), added])[starts[ordered]]
        within = self.loads[ordered] + added - before <= self.capacity[ordered] * (1 + _ROUNDING)
        fits = np.all(within | (loads[order] == 0), axis=1)
        found = np.zeros(len(choice), bool)
        found[order] = fits
        return found


def _level(room: CostArray, total: float) -> CostArray:
    """Return each part's share of a total that evens out the room. room: the emptiest part first."""
    counts = np.arange(1, len(room) + 1)
    # the room that is left where the first 1, 2, ... parts share the total; as many as have more than that share it
    left = (np.cumsum(room) - total) / counts
    sharing = max(int(np.count_nonzero(room > left)), 1)
    wanted: CostArray = np.maximum(room - left[sharing - 1], 0)
    wanted[sharing:] = 0
    return wanted
