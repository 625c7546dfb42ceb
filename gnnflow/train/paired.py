"""Tells whether two models differ on the same targets by more than another sample of targets would move it.

Targets that are hard for one model are mostly hard for the other, so the interval of the difference is far narrower
than the two metrics' own intervals. Where each target's influence on a metric is known (`gnnflow.train.intervals`) the
differences of influences give it. A metric without that formula is taken of all targets but one group, for each of some
random groups (the delete-a-group jackknife; Kott, Journal of Official Statistics 17, 2001).

Shapes: N targets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.train.intervals import Interval, noise_of

_GROUPS = 50
_T = 2.01  # the 97.5 % quantile of Student's t with 49 degrees of freedom


def influence_interval(difference: float, first: FloatArray, second: FloatArray) -> Interval | None:
    """Return the 95 % interval of a difference of two metrics; None where targets are few.

    first, second: the influence of each target on a model's metric [N].
    """
    if len(first) < _GROUPS:
        return None
    margin = noise_of(first - second)
    return difference - margin, difference + margin


def paired_interval(first: Callable[[Array], float], second: Callable[[Array], float], count: int) -> Interval | None:
    """Return the 95 % interval of first minus second; None where targets are few, or a group decides if it is defined.

    first, second: the metric of a model on some targets, given by their places among `count` [N].
    """
    if count < _GROUPS:
        return None
    group = np.random.default_rng(0).permutation(count) % _GROUPS
    every = np.arange(count)
    difference = first(every) - second(every)
    # the difference without each group
    without = np.array([first(rows) - second(rows) for rows in (every[group != each] for each in range(_GROUPS))])
    if not np.isfinite([difference, *without]).all():
        return None
    margin = _T * float(np.sqrt((_GROUPS - 1) / _GROUPS * np.square(without - without.mean()).sum()))
    return float(difference) - margin, float(difference) + margin


def shared_places(first: IntArray, second: IntArray) -> tuple[IntArray, IntArray] | None:
    """Return the order of each that makes both equal; None where they are not the same targets."""
    orders = np.argsort(first, kind="stable"), np.argsort(second, kind="stable")
    return orders if np.array_equal(first[orders[0]], second[orders[1]]) else None
