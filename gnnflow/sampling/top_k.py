"""Per-target top-k that merges exactly: top_k(top_k(A) + top_k(B)) == top_k(A + B).

The order within a target is total: priority, then tie (the edge key), then input order. Because a kept list
is sorted by it, a smaller limit is a prefix of a larger one, and a hub's pieces can be selected apart and
selected again together.

One uint64 sort does the work: the target's number within a slice sits in the high bits, the top of the
priority in the rest. What those bits cannot tell apart is rare for hashes and is put right exactly
afterwards. Edges arrive grouped by target, which a run-merging sort exploits where targets are small: ten
times faster than `np.lexsort` of two columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import Array, IntArray, KeyArray, offsets_of, ragged_ranges

_SLICE_EDGES = 1 << 18
_LONG_RUN = 64  # mean degree from which merging runs stops paying


@dataclass(frozen=True)
class TopK:
    """Kept edges as a CSR by target: indices into the input, in priority order within a target.

    edges: int64 [kept]; offsets: int64 [T + 1].
    """

    edges: IntArray
    offsets: IntArray


def top_k(offsets: IntArray, priority: KeyArray, *, tie: KeyArray | None = None, limit: int | None) -> TopK:
    """Keep each target's `limit` smallest priorities (all of them when None), in order.

    offsets [T + 1] group the edges [E] by target. tie [E] breaks equal priorities, input order what is left.
    """
    # edges and kept edges of each target [T]
    lengths = np.diff(offsets)
    kept = lengths if limit is None else np.minimum(lengths, limit)
    kept_offsets = offsets_of(kept)
    edges = np.empty(kept_offsets[-1], np.int64)
    for first, last in _target_slices(offsets):
        low, high = int(offsets[first]), int(offsets[last])
        part = None if tie is None else tie[low:high]
        # the slice's edges in order, target by target, then the first `kept` of each
        order = _sorted_within(lengths[first:last], priority[low:high], part)
        picked = order if limit is None else order[ragged_ranges(offsets[first:last] - low, kept[first:last])]
        np.add(picked, low, out=edges[kept_offsets[first] : kept_offsets[last]])
    return TopK(edges, kept_offsets)


def top_k_ungrouped(
    targets: Array,
    priority: KeyArray,
    *,
    num_targets: int,
    tie: KeyArray | None = None,
    limit: int | None,
) -> TopK:
    """Select among edges in any order, such as the concatenated pieces of a hub.

    targets [E] numbers each edge's target, 0 .. num_targets - 1. Concatenated pieces that are each grouped
    merge quickly.
    """
    # edges grouped by target, in input order within one [E], and the offsets of each target [T + 1]
    order = np.argsort(targets, kind="stable")
    offsets = offsets_of(np.bincount(targets, minlength=num_targets))
    selection = top_k(offsets, priority[order], tie=None if tie is None else tie[order], limit=limit)
    return TopK(order[selection.edges], selection.offsets)


def _target_slices(offsets: IntArray) -> Iterator[tuple[int, int]]:
    """Cut the targets into runs of about _SLICE_EDGES edges; a target is never cut."""
    num_targets = len(offsets) - 1
    first = 0
    while first < num_targets:
        last = int(np.searchsorted(offsets, offsets[first] + _SLICE_EDGES, side="right")) - 1
        last = min(max(last, first + 1), num_targets)
        yield first, last
        first = last


def _sorted_within(lengths: IntArray, priority: KeyArray, tie: KeyArray | None) -> IntArray:
    """Return the order that sorts every target's edges by (priority, tie, position), targets in place."""
    # bits that the number of a target needs
    bits = np.uint64(int(len(lengths) - 1).bit_length())
    # sort key of each edge [E]: its target's number above the top of its priority
    key = priority.copy()
    if bits:
        group = np.repeat(np.arange(len(lengths), dtype=np.uint64) << (np.uint64(64) - bits), lengths)
        key >>= bits
        key |= group
    order = np.argsort(key, kind="quicksort" if len(key) > _LONG_RUN * len(lengths) else "stable")
    key = key[order]
    # where a key cannot tell an edge from the one before it [E - 1]
    equal = key[1:] == key[:-1]
    if equal.any():
        _order_ties(order, key, equal, priority, tie)
    return order


def _order_ties(order: IntArray, key: KeyArray, equal: Array, priority: KeyArray, tie: KeyArray | None) -> None:
    """Put runs of equal sort keys into their exact order, in place. equal [E - 1]: key i + 1 equals key i."""
    # positions in runs of equal keys [E], and the edges there
    tied = np.zeros(len(order), bool)
    tied[1:] = equal
    tied[:-1] |= equal
    edges = order[tied]
    ties = () if tie is None else (tie[edges],)
    order[tied] = edges[np.lexsort((edges, *ties, priority[edges], key[tied]))]
