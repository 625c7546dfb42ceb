"""The best items of users while blocks of items are offered, and places in a list for all users.

Equal scores are ordered by item, so a list does not depend on how items and users were cut.

Shapes: U users, I items, K items of a list, P pairs of a user and an item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import AlignedArrays, Array, FloatArray, IntArray, distinct, offsets_of

NO_ITEM = -1


class BestItems:
    """The best items offered so far: scores [U, K], descending, and items [U, K].

    Where fewer were offered, scores end in -inf and items in NO_ITEM.
    """

    def __init__(self, num_users: int, top: int) -> None:
        self.scores = np.full((num_users, top), -np.inf, np.float32)
        self.items = np.full((num_users, top), NO_ITEM)

    def offer(self, first_user: int, first_item: int, scores: FloatArray) -> None:
        """Offer consecutive items to consecutive users. scores: [n, m], -inf for what is left out.

        Items are offered to a user in ascending order, so one that only equals the last of a full list is not kept.
        """
        top, width = self.scores.shape[1], scores.shape[1]
        held = slice(first_user, first_user + len(scores))
        # the pairs that enter a list, as places in the block, and how many of each user [n]
        entering = np.flatnonzero(scores > self.scores[held, -1:])
        if not len(entering):
            return
        row = entering // width
        counts = np.bincount(row, minlength=len(scores))
        if len(crowded := np.flatnonzero(counts > top)):
            # of users with more than a list takes, the ones below the last of the block's best do not enter
            floor = np.full(len(scores), -np.inf, np.float32)
            floor[crowded] = np.partition(scores[crowded], width - top, axis=1)[:, width - top]
            kept = scores.reshape(-1)[entering] >= floor[row]
            entering, row = entering[kept], row[kept]
            counts = np.bincount(row, minlength=len(scores))
        touched = np.flatnonzero(counts)
        users = held.start + touched
        # held and entering items of the touched users, one user after the other, the best first
        row = np.concatenate([np.repeat(touched, top), row])
        values = np.concatenate([self.scores[users].reshape(-1), scores.reshape(-1)[entering]])
        items = np.concatenate([self.items[users].reshape(-1), first_item + entering % width])
        order = np.lexsort((items, -values, row))
        first = offsets_of(top + counts[touched])[:-1]
        best = order[first[:, None] + np.arange(top)]
        self.scores[users], self.items[users] = values[best], items[best]


@dataclass(frozen=True)
class UserItems(AlignedArrays):
    """Pairs of a user and an item [P], ascending by user."""

    users: IntArray
    items: IntArray

    @staticmethod
    def of(users: Array, items: Array, *, num_items: int) -> UserItems:
        """Return the distinct pairs, ascending."""
        pairs = distinct(users.astype(np.int64) * max(num_items, 1) + items)
        return UserItems(*np.divmod(pairs, max(num_items, 1)))

    def contains(self, others: UserItems, *, num_items: int) -> Array:
        """Return which of other pairs are among these, both distinct and ascending [P]."""
        width = max(num_items, 1)
        return np.isin(others.users * width + others.items, self.users * width + self.items, assume_unique=True)


def places_in_lists(pairs: UserItems, lists: IntArray) -> IntArray:
    """Return the place of each pair's item in the list of its user [P], from 0; the lists' length where it is not."""
    found = lists[pairs.users] == pairs.items[:, None]
    places: IntArray = np.where(found.any(axis=1), found.argmax(axis=1), lists.shape[1])
    return places


@dataclass(frozen=True)
class SharedList:
    """One order of all items, of which each user gets the first K that are not left out for them.

    place: of each item in the order [I]. left_out: pairs that a user does not get.
    """

    place: IntArray
    left_out: UserItems
    num_users: int
    top: int

    def places_of(self, pairs: UserItems) -> IntArray:
        """Return the place of each pair's item in the list of its user [P], from 0; K where it is not there.

        The place in the order, less the items before it that the user does not get.
        """
        width = len(self.place)
        left_out = np.sort(self.left_out.users * width + self.place[self.left_out.items])
        own = pairs.users * width + self.place[pairs.items]
        before = np.searchsorted(left_out, own) - np.searchsorted(left_out, pairs.users * width)
        return np.minimum(self.place[pairs.items] - before, self.top)

    def shown_places(self) -> IntArray:
        """Return the places in the order that at least one user gets, ascending."""
        width = len(self.place)
        users, places = np.divmod(np.sort(self.left_out.users * width + self.place[self.left_out.items]), max(width, 1))
        # items left out before each one for the same user; a list reaches over those that fewer than K others precede
        before = np.arange(len(users)) - np.searchsorted(users, users)
        reached = places - before < self.top
        ends = self.top + np.bincount(users[reached], minlength=self.num_users)
        ends = np.minimum(ends, width)
        # users whose list reaches each place, less those that do not get its item
        beyond = len(ends) - np.cumsum(np.bincount(ends, minlength=width + 1))[:width]
        return np.flatnonzero(beyond - np.bincount(places[reached], minlength=width)[:width])
