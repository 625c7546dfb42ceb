"""Splits by time as sorting all times gives them, to compare with."""

from __future__ import annotations

import numpy as np

from gnnflow.graph.arrays import IntArray


def time_bounds(times: IntArray, *, valid: float, test: float) -> tuple[int, int]:
    """Return the first times of valid and of test. A time is in one split; valid begins before test where it can."""
    ordered = np.sort(times)
    first = [len(ordered) - round(share * len(ordered)) for share in (valid + test, test)]
    begins = [int(ordered[place]) if place < len(ordered) else int(ordered[-1]) + 1 for place in first]
    earlier = ordered[ordered < begins[1]]
    if valid and begins[0] == begins[1] and len(earlier):
        begins[0] = int(earlier[-1])
    return begins[0], begins[1]


def time_splits(times: IntArray, *, valid: float, test: float) -> IntArray:
    """Return the split code of each time."""
    bounds = time_bounds(times, valid=valid, test=test)
    return np.select([times >= bounds[1], times >= bounds[0]], [2, 1], 0)
