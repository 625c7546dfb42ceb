"""The interval of a difference on shared targets covers the true one about as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from gnnflow.train.paired import paired_interval, shared_places


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_the_interval_covers_the_true_difference(metric: str) -> None:
    rng = np.random.default_rng(0)
    times, covered = 200, 0

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        truth = rng.random(count) < 0.4
        shared = truth + rng.normal(0, 1, count)  # what both models know
        return truth, shared + rng.normal(0, 0.3, count), shared + rng.normal(0, 0.6, count)

    def score(truth: np.ndarray, scores: np.ndarray) -> float:
        return float(np.mean((scores > 0.5) == truth) if metric == "accuracy" else roc_auc_score(truth, scores))

    truth, first, second = drawn(1_000_000)
    expected = score(truth, first) - score(truth, second)
    for _ in range(times):
        truth, first, second = drawn(400)
        found = paired_interval(
            lambda rows: score(truth[rows], first[rows]),  # noqa: B023 - called at once
            lambda rows: score(truth[rows], second[rows]),  # noqa: B023
            400,
        )
        assert found is not None
        covered += found[0] <= expected <= found[1]
    # 95 %, and three deviations of 200 draws
    assert 0.9 <= covered / times <= 0.995


def test_nothing_is_said_of_few_targets_or_an_undefined_metric() -> None:
    assert paired_interval(lambda rows: float(len(rows)), lambda _: 0.0, 49) is None
    assert paired_interval(lambda rows: np.nan if len(rows) < 100 else 1.0, lambda _: 0.0, 100) is None


def test_targets_are_matched_whatever_their_order() -> None:
    found = shared_places(np.array([5, 1, 3]), np.array([3, 5, 1]))
    assert found is not None
    assert np.array_equal(np.array([5, 1, 3])[found[0]], np.array([3, 5, 1])[found[1]])
    assert shared_places(np.array([1, 2]), np.array([1, 3])) is None
