"""Means over seeds, their spread, and a test of whether two variants differ beyond the noise of seeds.

The test is Student's for pairs (Student, The probable error of a mean, Biometrika 6, 1908): runs of one seed share the
split and the draws of neighbours that the seed decides, so variants are compared seed by seed. It judges seeds alone:
other tables may order the variants otherwise (Bouthillier et al., Accounting for variance in machine learning
benchmarks, MLSys 2021, on what else varies).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

LEVEL = 0.05
"""The two-sided p below which a difference is called larger than the noise of seeds."""
_ROUNDING = 1e-12  # a spread below this part of the values is not one


@dataclass(frozen=True)
class Spread:
    """The mean of some seeds' scores and their standard deviation (of a sample), None for one seed."""

    mean: float
    deviation: float | None
    count: int

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """Return the spread of at least one value."""
        held = np.array(list(values), dtype=float)
        return Spread(float(held.mean()), float(held.std(ddof=1)) if len(held) > 1 else None, len(held))


@dataclass(frozen=True)
class PairedDifference:
    """A paired t-test: the mean difference over shared seeds, its 95 % interval and the two-sided p.

    Interval and p are None where the difference is the same on every seed, so that no spread can be estimated.
    """

    seeds: int
    mean: float
    low: float | None
    high: float | None
    p: float | None

    @property
    def beyond_noise(self) -> bool | None:
        """True where the difference is larger than the noise of seeds; None where no spread can be estimated."""
        return None if self.p is None else self.p < LEVEL


def paired_difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> PairedDifference | None:
    """Return the difference of two variants' scores by seed, first minus second; None below two shared seeds."""
    shared = [seed for seed in first if seed in second]
    if len(shared) < 2:  # noqa: PLR2004 a spread needs two
        return None
    pairs = np.array([(first[seed], second[seed]) for seed in shared], dtype=float)
    differences = pairs[:, 0] - pairs[:, 1]
    mean = float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(len(shared))
    if error <= _ROUNDING * float(np.abs(pairs).max()):
        return PairedDifference(len(shared), mean, None, None, None)
    freedom = len(shared) - 1
    reach = error * student_quantile(1 - LEVEL, freedom)
    p = 1 - student_share(abs(mean) / error, freedom)
    return PairedDifference(len(shared), mean, mean - reach, mean + reach, max(p, 0.0))


def student_share(t: float, freedom: int) -> float:
    """Return the probability that Student's t of whole degrees of freedom lies within -t and t.

    The finite sums of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, squared = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    total, term = 0.0, math.cos(angle) if odd else 1.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= squared * power / (power + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def student_quantile(share: float, freedom: int) -> float:
    """Return the t within which a share of Student's distribution lies, by bisection."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if student_share(math.tan(middle) * math.sqrt(freedom), freedom) < share:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)
