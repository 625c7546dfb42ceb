"""Tells whether two models differ on the same targets by more than another sample of targets would move it.

Targets that are hard for one model are mostly hard for the other, so the interval of the difference is far narrower
than the two metrics' own intervals. Each target's influence on a metric is known for both; the difference of these is
its influence on the difference. A metric without such a formula (`gnnflow.train.intervals`) has the influences of some
random groups of targets: what it is without the group (the delete-a-group jackknife; Kott, Journal of Official
Statistics 17, 2001).

Shapes: N targets, G groups.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.train.intervals import noise_of

_GROUPS = 50
_T_OVER_Z = 2.01 / 1.96  # the 97.5 % quantile of Student's t with 49 degrees of freedom, by the normal one


def paired_noise(first: FloatArray, second: FloatArray) -> float | None:
    """Return half the width of the 95 % interval of the difference of two metrics; None where targets are few.

    first, second: the influence of each target on a model's metric [N]; or of each group [G].
    """
    return None if len(first) < _GROUPS else noise_of(first - second)


def group_influences(metric: Callable[[Array], float], count: int) -> FloatArray | None:
    """Return the influence of each group on a metric [G]; None where targets are few, or it needs one of the groups.

    metric: of some targets, given by their places among `count` [N]. Groups are the same for every metric.
    """
    if count < _GROUPS:
        return None
    group = np.random.default_rng(0).permutation(count) % _GROUPS
    without = np.array([metric(np.flatnonzero(group != each)) for each in range(_GROUPS)])
    if not np.isfinite(without).all():
        return None
    return np.asarray(_T_OVER_Z * np.sqrt((_GROUPS - 1) / _GROUPS) * (without - without.mean()))


def shared_places(first: IntArray, second: IntArray) -> tuple[IntArray, IntArray] | None:
    """Return the order of each that makes both equal; None where they are not the same targets."""
    orders = np.argsort(first, kind="stable"), np.argsort(second, kind="stable")
    return orders if np.array_equal(first[orders[0]], second[orders[1]]) else None
