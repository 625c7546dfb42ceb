"""The interval of a difference on shared targets covers the true one about as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from gnnflow.train.intervals import influences_of
from gnnflow.train.metrics import metrics_of
from gnnflow.train.paired import influence_interval, paired_interval, shared_places


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


@pytest.mark.parametrize("metric", ["accuracy", "brier", "roc_auc", "average_precision"])
def test_influences_and_the_jackknife_give_one_interval(metric: str) -> None:
    """Finds a metric that publishing and the report would judge differently on the same targets."""
    rng = np.random.default_rng(3)
    truth = (rng.random(1000) < 0.3).astype(np.int64)
    shared = truth + rng.normal(0, 1, 1000)
    both = [
        np.stack([np.zeros(1000), shared + rng.normal(0, noise, 1000) - 0.7], axis=1).astype(np.float32)
        for noise in (0.3, 0.6)
    ]

    def score(logits: np.ndarray, rows: np.ndarray) -> float:
        return metrics_of(logits[rows], truth[rows], label_kind="single", names=[metric]).values[metric]

    influences = [influences_of(each, truth, label_kind="single")[metric] for each in both]
    every = np.arange(1000)
    found = influence_interval(score(both[0], every) - score(both[1], every), *influences)
    expected = paired_interval(lambda rows: score(both[0], rows), lambda rows: score(both[1], rows), 1000)
    assert found is not None
    assert expected is not None
    # with 50 groups the jackknife's width itself varies by a tenth
    assert np.diff(found) == pytest.approx(np.diff(expected), rel=0.3)
    assert np.mean(found) == pytest.approx(np.mean(expected))


def test_nothing_is_said_of_few_targets_or_an_undefined_metric() -> None:
    assert paired_interval(lambda rows: float(len(rows)), lambda _: 0.0, 49) is None
    assert influence_interval(0.5, np.ones(49), np.zeros(49)) is None
    assert paired_interval(lambda rows: np.nan if len(rows) < 100 else 1.0, lambda _: 0.0, 100) is None


def test_targets_are_matched_whatever_their_order() -> None:
    found = shared_places(np.array([5, 1, 3]), np.array([3, 5, 1]))
    assert found is not None
    assert np.array_equal(np.array([5, 1, 3])[found[0]], np.array([3, 5, 1])[found[1]])
    assert shared_places(np.array([1, 2]), np.array([1, 3])) is None
