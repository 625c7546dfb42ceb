"""Splits of nodes and edges, pools of candidates, and an edge's negatives in an epoch.

All are functions of hashes: of an edge's ends, of a shard and a number, of an edge, an epoch and a number. None depends
on partitions, order or earlier draws.

Shapes: E edges, S shards, D draws per shard, B pairs, K negatives of each, M candidates, P partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.graph.arrays import Array, BoolArray, IntArray, KeyArray
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.hashing import combine, hash_integers, seed_word
from gnnflow.graph.splits import SPLITS

EVALUATION = -1
"""The epoch number for negatives of scoring, which are the same in every epoch."""

EDGE_SPLIT = "edge split"
"""The name of the draws that divide edges."""

_FRACTION_BITS = np.uint64(11)  # shifted away, 53 bits are left: as many as a float64 holds
_UNIT = 2.0**-53

Points = npt.NDArray[np.float64]
AreEdges = Callable[[IntArray, IntArray], BoolArray]
"""Returns which pairs of sources and targets [B], numbered like candidates, are edges."""


def pair_keys(left: KeyArray, right: KeyArray) -> KeyArray:
    """Return the key of each unordered pair [E] from the keys of its ends: (u, v) and (v, u) have the same."""
    return combine(np.minimum(left, right), np.maximum(left, right))


def random_splits(
    keys: KeyArray, *, seed: int, valid: float, test: float, of: str = EDGE_SPLIT
) -> npt.NDArray[np.int8]:
    """Return the split code of each pair, or of each node, by its key [E]: shares valid and test, the others train.

    of: a name, so that nodes and pairs with one seed are drawn independently.
    """
    point = _points(combine(keys, seed_word(of, seed)))
    names = np.select([point < test, point < test + valid], [SPLITS.index("test"), SPLITS.index("valid")], 0)
    return names.astype(np.int8)


class SplitKeys(NamedTuple):
    """The first keys of valid and of test among the keys of a group of nodes or edges."""

    valid: int
    test: int


SplitBounds = tuple[tuple[int, SplitKeys], ...]
"""The groups of a split by ranks, ascending, and the keys that divide each."""


def ranked_splits(groups: IntArray, keys: KeyArray, bounds: SplitBounds) -> npt.NDArray[np.int8]:
    """Return the split code of each node or edge [E] by its group and its key. bounds: they divide each group.

    Without groups all are train.
    """
    if not bounds:
        return np.zeros(len(keys), np.int8)
    names = np.array([name for name, _ in bounds], np.int64)
    first = np.array([found for _, found in bounds], np.uint64).reshape(-1, 2)
    # a row that is not divided may be of no group
    own = first[np.minimum(np.searchsorted(names, groups), len(names) - 1)]
    codes = np.select([keys >= own[:, 1], keys >= own[:, 0]], [SPLITS.index("test"), SPLITS.index("valid")], 0)
    return codes.astype(np.int8)


def pool_draws(shards: IntArray, size: int, *, seed: int, weights: Points) -> Array:
    """Return `size` draws for each shard as points of the partitions' cumulative weights [S, size].

    weights [P]: the total weight of each partition's nodes. `pool_owner` returns a point's partition, and
    `pool_rows` its node.
    """
    # number of each draw in its shard, and its hash by shard, seed and number [S size]
    number = np.arange(len(shards) * size) % max(size, 1)
    keys = combine(hash_integers(np.repeat(shards, size)), seed_word("pool", seed)) ^ hash_integers(number)
    points: Points = _points(combine(keys, np.uint64(0))) * weights.sum()
    return points.reshape(len(shards), size)


def pool_owner(points: Points, weights: Points) -> IntArray:
    """Return the partition of each point on the cumulative weights [P]; partitions without weight have none."""
    # weight of all partitions up to and with each [P], and the last partition with any weight
    bounds = np.cumsum(weights)
    last = int(np.flatnonzero(weights)[-1])
    return np.minimum(np.searchsorted(bounds, points, side="right"), last)


def pool_rows(points: Points, partition: int, *, weights: Points, nodes: Points) -> IntArray:
    """Return the local row of each point that a partition owns. nodes: the weights of its nodes."""
    # weight of the partitions before this one
    before = float(weights[:partition].sum())
    last = int(np.flatnonzero(nodes)[-1])
    return np.minimum(np.searchsorted(np.cumsum(nodes), points - before, side="right"), last)


def draw_negatives(
    keys: KeyArray,
    sources: IntArray,
    targets: IntArray,
    *,
    candidates: IntArray,
    count: int,
    seed: int,
    epoch: int,
    are_edges: AreEdges | None = None,
) -> IntArray:
    """Return `count` negative targets of each pair [B, K] among the candidates [M].

    keys [B] identify the pairs in any partitioning; sources and targets [B] are their ends, numbered like the
    candidates. Number j of a pair depends only on (seed, epoch, key, j) and the candidates. The next candidate replaces
    an end of the pair, and one that makes an edge by `are_edges`. Raises TrainingError where no candidate is left.
    """
    drawn = np.empty((len(keys), count), np.int64)
    for number in range(count if len(keys) else 0):
        word = seed_word("negatives", seed, epoch, number)
        # place among the candidates that each pair's hash gives [B]
        place = (combine(keys, word) % np.uint64(max(len(candidates), 1))).astype(np.int64)
        drawn[:, number] = _other(place, sources, targets, candidates, are_edges)
    return drawn


def _other(
    place: IntArray, sources: IntArray, targets: IntArray, candidates: IntArray, are_edges: AreEdges | None
) -> IntArray:
    """Return the candidate at each place [B], or the next one that is no end and makes no edge."""
    for _ in range(len(candidates)):
        # the candidate of each pair, and whether it is an end or makes an edge [B]
        found = candidates[place]
        taken = (found == sources) | (found == targets)
        if are_edges is not None:
            taken |= are_edges(sources, found)
        if not taken.any():
            return found
        place = np.where(taken, (place + 1) % len(candidates), place)
    if are_edges is not None:
        raise TrainingError(
            f"no candidate is left for an edge: each of the {len(candidates)} draws is an end of it, or an edge of the "
            "same source",
            where="task.negatives",
            fix="Raise task.negatives.pool, or set task.negatives.filtered to false.",
        )
    held = len(np.unique(candidates))
    raise TrainingError(
        f"no negative can be drawn: the {len(candidates)} draws are of {held} node{'s' if held != 1 else ''}, which "
        "are ends of the edge itself",
        where="task.negatives",
        fix="Raise task.negatives.pool where it is small, or train.batch_size where negatives are drawn in the batch. "
        "If few nodes have in-edges, set task.negatives.kind: uniform.",
    )


def _points(hashed: KeyArray) -> Points:
    """Return each hash as a number from 0 to below 1."""
    return (hashed >> _FRACTION_BITS).astype(np.float64) * _UNIT
