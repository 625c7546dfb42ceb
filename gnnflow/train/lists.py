"""Metrics of ranked lists over all items: recall, precision and ndcg at K, averaged over users, with intervals.

Of a user with R held-out links of which h are among the first K: recall is h / R, and precision h / K, or h / I where
there are only I items. The gain of the
link in place p, from 0, is 1 / log2(p + 2), and ndcg is the sum of gains over the largest possible one (Jarvelin and
Kekalainen, TOIS 2002). Users without a held-out link do not count. Intervals are about another sample of users.

Shapes: P held-out links, U users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import AlignedArrays, IntArray
from gnnflow.graph.labels import BOUNDS
from gnnflow.train.intervals import mean_interval

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array


@dataclass(frozen=True)
class PlacedLinks(AlignedArrays):
    """Held-out links [P]: number of the user, and the place in the user's list, K or more where it is not there."""

    users: IntArray
    places: IntArray


def list_metrics(links: PlacedLinks, *, top: int, items: int) -> dict[str, float]:
    """Return each metric and its bounds; empty without links. items: the number of all."""
    if not len(links.users):
        return {}
    found: dict[str, float] = {}
    for name, each in user_metrics(links, top=top, items=items).items():
        mean = float(each.mean())
        found[f"{name}_at_{top}"] = mean
        low, high = mean_interval(each, mean)
        if low < high:
            found |= dict(zip((f"{name}_at_{top}{side}" for side in BOUNDS), (low, high), strict=True))
    return found


def user_metrics(links: PlacedLinks, *, top: int, items: int) -> dict[str, Array]:
    """Return the metrics of each user with a link [U], by the numbers of the users."""
    _, user = np.unique(links.users, return_inverse=True)
    is_found = links.places < top
    held = np.bincount(user)
    hits = np.bincount(user, is_found)
    gains = np.bincount(user, np.where(is_found, 1 / np.log2(links.places + 2), 0.0))
    most = np.minimum(held, top)  # the links that a list can have
    best = np.cumsum(1 / np.log2(np.arange(most.max()) + 2))
    return {
        "recall": hits / held,
        "precision": hits / min(top, items),
        "ndcg": gains / best[most - 1],
    }
