"""The test of two variants over seeds is scipy's paired t-test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gnnflow.report.comparison import spread_text
from gnnflow.report.spread import Spread, paired_difference


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 10, 31])
def test_a_difference_is_that_of_a_paired_t_test(seeds: int) -> None:
    first, second = np.random.default_rng(seeds).normal(0.8, 0.01, (2, seeds))
    found = paired_difference(dict(enumerate(first)), dict(enumerate(second)))
    assert found is not None
    expected = stats.ttest_rel(first, second)
    interval = expected.confidence_interval()
    assert (found.p, found.low, found.high) == pytest.approx((expected.pvalue, interval.low, interval.high), rel=1e-9)
    assert found.beyond_noise == (expected.pvalue < 0.05)


def test_no_difference_is_called_real_more_often_than_the_level() -> None:
    scores = np.random.default_rng(0).normal(size=(2000, 2, 5))
    found = [paired_difference(dict(enumerate(a)), dict(enumerate(b))) for a, b in scores]
    assert 0.035 < np.mean([each is not None and bool(each.beyond_noise) for each in found]) < 0.065


def test_a_spread_is_the_standard_deviation_of_a_sample() -> None:
    assert Spread.of([1.0, 2.0, 3.0]) == Spread(2.0, 1.0, 3)
    assert Spread.of([0.5]) == Spread(0.5, None, 1)


def test_equal_differences_are_not_judged() -> None:
    found = paired_difference({0: 0.3, 1: 0.7}, {0: 0.2, 1: 0.6})
    assert found is not None
    assert (found.p, found.beyond_noise) == (None, None)


@pytest.mark.parametrize(
    ("mean", "deviation", "text"),
    [
        (0.597, 0.000542, "0.597 ± 0.001"),
        (0.597, 0.00004, "0.597 ± 4e-05"),
        (0.597, 0.0, "0.597 ± 0.000"),
        (12345.6, 1234.5, "12,346 ± 1,234"),
        (0.5, math.nan, "0.500 ± n/a"),
        (0.5, None, "0.500"),
    ],
)
def test_a_deviation_has_the_decimals_of_its_mean(mean: float, deviation: float | None, text: str) -> None:
    assert spread_text(Spread(mean, deviation, 2)) == text
