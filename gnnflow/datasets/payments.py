"""A payments network with hidden risk classes, which neither an account's features nor the bare graph reveal.

People pay people and merchants; merchants' popularity follows a power law, so a few are hubs. Rings place money with
mules and collect it from them: both kinds of payment are large *and* nightly. Ordinary accounts receive large payments
by day and small ones by night, so the averages of `amount` and `hour` overlap, and only a payment that is both reveals
an account: attention over edge attributes finds it. The sender decides whether such a payment makes its receiver a mule
or a ring member. A sender's features are noisy, but their average over the suspicious senders is not. In-degrees do not
depend on the class. Refunds put the hubs into the two-hop neighbourhood of people.

Shapes: P people, M merchants (nodes 0..P-1 and P..P+M-1), E edges of a piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.datasets.pieces import (
    Pieces,
    SyntheticGraph,
    collect,
    cumulative,
    labelled_columns,
    numbered_ids,
    require,
    write_pieces,
)
from gnnflow.storage.columns import from_matrix

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray

CLASSES = ("ordinary", "mule", "ring")
_ORDINARY, _MULE, _RING = range(3)
_CLASS_SHARE = (0.5, 0.3, 0.2)
_MERCHANT_SHARE = 0.1
_TO_MERCHANT_SHARE = 0.45
_FEATURE_WIDTH = 8
_MIN_RECEIVED = 4  # payments that every person receives, where there are enough edges

# Class means of the informative features; the other features are noise of the same variance.
_SIGNAL = np.array([[0.0, 0.0, -0.6], [0.9, -0.3, 0.3], [-0.3, 0.9, 0.3]], np.float32)
_MERCHANT_SIGNAL = 1.5

# One row per kind of payment: mean and deviation of `amount`, mean and deviation of the hour of day.
_PURCHASE, _TRANSFER, _REFUND, _LARGE_BY_DAY, _SMALL_BY_NIGHT, _PLACEMENT, _COLLECTION = range(7)
_PATTERN = np.array(
    [
        [0.0, 1.0, 14.0, 4.0],
        [0.0, 0.8, 15.0, 4.0],
        [-0.3, 0.8, 12.0, 3.0],
        [1.6, 0.3, 14.0, 3.0],
        [-0.4, 0.5, 3.0, 1.2],
        [1.5, 0.3, 2.5, 1.2],
        [1.7, 0.3, 3.5, 1.2],
    ],
    np.float32,
)
# Cumulative shares of received payments, by class: transfers, refunds, large by day, small by night; the rest is placed
# or collected.
_RECEIVED = np.array([[0.44, 0.50, 0.75, 1.0], [0.44, 0.50, 0.53, 0.56], [0.44, 0.50, 0.53, 0.56]], np.float32)
_YEAR = 365 * 24 * 60 * 60
_NODE_STREAM, _EDGE_STREAM = 1, 2


@dataclass(frozen=True)
class _Population:
    """The people and merchants. activity [P] and popularity [M] are cumulative shares."""

    classes: IntArray
    members: tuple[IntArray, ...]
    activity: Array
    popularity: Array
    ids: pa.Array

    @property
    def num_people(self) -> int:
        return len(self.classes)


def payments(*, num_nodes: int = 20_000, num_edges: int = 200_000, seed: int = 0) -> SyntheticGraph:
    """Return a payments network: the same arguments give the same rows.

    Nodes: id (string, `ACC-...` people, `MER-...` merchants), x (fixed-size list of 8 float32), label (int64 index into
    CLASSES; null for merchants and a fifth of the people), split (60/20/20 of the labelled, else null).
    Edges: src, dst, amount (log amount in units of an ordinary payment's deviation), hour_sin, hour_cos (hour of day on
    the circle), weight (number of payments, >= 1), illicit (int64: 1 where a ring placed or collected the money),
    timestamp (int64: seconds of a year, without any pattern). Parallel edges occur. Raises ConfigError below 100 nodes
    or 1 edge.
    """
    return collect(_payments(num_nodes, num_edges, seed))


def write_payments(out: str, *, num_nodes: int = 20_000, num_edges: int = 200_000, seed: int = 0) -> list[str]:
    """Write the network `payments` returns, a piece at a time; returns [node table URI, edge folder URI]."""
    return write_pieces(out, _payments(num_nodes, num_edges, seed))


def _payments(num_nodes: int, num_edges: int, seed: int) -> Pieces:
    require("num_nodes", num_nodes, 100)
    require("num_edges", num_edges, 1)
    rng = np.random.default_rng([seed, _NODE_STREAM])
    population = _population(num_nodes, rng)
    even = min(_MIN_RECEIVED * population.num_people, num_edges // 2)
    piece = partial(_edges, population=population, num_even=even, seed=seed)
    return Pieces(_nodes(population, num_nodes, rng), num_edges, piece)


def _population(num_nodes: int, rng: np.random.Generator) -> _Population:
    num_merchants = int(num_nodes * _MERCHANT_SHARE)
    num_people = num_nodes - num_merchants
    classes = rng.choice(len(CLASSES), num_people, p=_CLASS_SHARE)
    popularity = 1.0 / np.arange(1, num_merchants + 1)
    width = max(7, len(str(num_people)))
    return _Population(
        classes=classes,
        members=tuple(np.flatnonzero(classes == kind) for kind in range(len(CLASSES))),
        activity=cumulative(rng.lognormal(0.0, 0.7, num_people)),
        popularity=cumulative(rng.permutation(popularity)),
        ids=pa.concat_arrays(
            [numbered_ids("ACC", num_people, width=width), numbered_ids("MER", num_merchants, width=width)]
        ),
    )


def _nodes(population: _Population, num_nodes: int, rng: np.random.Generator) -> pa.Table:
    num_people = population.num_people
    x = rng.standard_normal((num_nodes, _FEATURE_WIDTH), np.float32)
    x[:num_people, : _SIGNAL.shape[1]] += _SIGNAL[population.classes]
    x[num_people:, -1] += _MERCHANT_SIGNAL
    labels = labelled_columns(population.classes, others=num_nodes - num_people, rng=rng)
    return pa.table({"id": population.ids, "x": from_matrix(x), **labels})


def _edges(number: int, edges: range, *, population: _Population, num_even: int, seed: int) -> pa.Table:
    rng = np.random.default_rng([seed, _EDGE_STREAM, number])
    dst, kind = _receivers(edges, population, num_even, rng)
    src = _senders(dst, kind, population, rng)
    mean, spread, hour, hour_spread = _PATTERN[kind].T
    noise = rng.standard_normal((2, len(kind)), np.float32)
    # the hour as a point on a circle: 23 and 1 are near each other
    angle = (hour + hour_spread * noise[1]) * np.float32(2 * np.pi / 24)
    return pa.table(
        {
            "src": population.ids.take(pa.array(src)),
            "dst": population.ids.take(pa.array(dst)),
            "amount": mean + spread * noise[0],
            "hour_sin": np.sin(angle),
            "hour_cos": np.cos(angle),
            "weight": rng.geometric(0.6, len(edges)).astype(np.float32),
            "illicit": (kind >= _PLACEMENT).astype(np.int64),
            "timestamp": rng.integers(0, _YEAR, len(edges)),
        }
    )


def _receivers(
    edges: range, population: _Population, num_even: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    rows, edge = len(edges), np.arange(edges.start, edges.stop)
    # receivers [E]: the first edges go to each person in turn, so that each has one, the others to a random person
    people = rng.integers(0, population.num_people, rows)
    people = np.where(edge < num_even, edge % population.num_people, people)
    share = population.classes[people]
    # kind of payment by the receiver's class, by thresholds of one draw [E]
    kind = _TRANSFER + (rng.random(rows, np.float32)[:, None] >= _RECEIVED[share]).sum(1)
    kind = np.where((kind == _PLACEMENT) & (share == _RING), _COLLECTION, kind)
    purchase = (edge >= num_even) & (rng.random(rows, np.float32) < _TO_MERCHANT_SHARE)
    merchant = population.num_people + np.searchsorted(population.popularity, rng.random(rows))
    return np.where(purchase, merchant, people), np.where(purchase, _PURCHASE, kind)


def _senders(dst: IntArray, kind: IntArray, population: _Population, rng: np.random.Generator) -> IntArray:
    # a random person for each payment [E], then a merchant for refunds and the right class for illicit payments
    src = np.searchsorted(population.activity, rng.random(len(dst)))
    refund = np.flatnonzero(kind == _REFUND)
    src[refund] = population.num_people + np.searchsorted(population.popularity, rng.random(len(refund)))
    for illicit, sender in ((_PLACEMENT, _RING), (_COLLECTION, _MULE)):
        rows = np.flatnonzero(kind == illicit)
        src[rows] = rng.choice(population.members[sender], len(rows))
    # No account pays itself: the next one pays instead.
    return np.where(src == dst, (src + 1) % population.num_people, src)
