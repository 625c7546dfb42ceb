"""The interval of a difference on shared targets covers the true one about as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from gnnflow.graph.labels import LabelKind
from gnnflow.train.intervals import influences_of
from gnnflow.train.metrics import metrics_of
from gnnflow.train.paired import group_influences, paired_noise, shared_places


def _roc_auc(truth: np.ndarray, scores: np.ndarray) -> float:
    """Return the share of pairs of one of either class that the scores order, where no two are equal.

    scikit-learn's checks of its arguments take a hundred times as long, and the test asks twenty thousand times.
    """
    places = np.empty(len(scores))
    places[np.argsort(scores)] = np.arange(len(scores))
    positives = int(truth.sum())
    negatives = len(truth) - positives
    return float((places[truth].sum() - positives * (positives - 1) / 2) / (positives * negatives))


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_the_interval_covers_the_true_difference(metric: str) -> None:
    rng = np.random.default_rng(0)
    times, covered = 200, 0

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        truth = rng.random(count) < 0.4
        shared = truth + rng.normal(0, 1, count)  # what both models know
        return truth, shared + rng.normal(0, 0.3, count), shared + rng.normal(0, 0.6, count)

    def score(truth: np.ndarray, scores: np.ndarray) -> float:
        return float(np.mean((scores > 0.5) == truth)) if metric == "accuracy" else _roc_auc(truth, scores)

    truth, first, second = drawn(1_000_000)
    expected = score(truth, first) - score(truth, second)
    for _ in range(times):
        truth, first, second = drawn(400)
        influences = [
            group_influences(lambda rows: score(truth[rows], each[rows]), 400)  # noqa: B023 - called at once
            for each in (first, second)
        ]
        noise = paired_noise(*influences)
        assert noise is not None
        covered += abs(score(truth, first) - score(truth, second) - expected) <= noise
    # 95 %, and three deviations of 200 draws
    assert 0.9 <= covered / times <= 0.995


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        *(("single", metric) for metric in ("accuracy", "brier", "roc_auc", "average_precision")),
        *(("link", metric) for metric in ("mrr", "hits_at_1", "hits_at_10", "roc_auc")),
    ],
)
def test_influences_of_targets_and_of_groups_give_one_noise(kind: LabelKind, metric: str) -> None:
    """Finds a formula whose influences are not the metric's, so that publishing and the report would differ."""
    rng = np.random.default_rng(3)
    truth = ((rng.random(1000) < 0.3) & (kind == "single")).astype(np.int64)
    if kind == "single":
        shared = np.stack([np.zeros(1000), truth + rng.normal(0, 1, 1000) - 0.7], axis=1)
    else:
        shared = rng.normal(0, 1, (1000, 21)) + 1.5 * (np.arange(21) == 0)
    both = [(shared + rng.normal(0, noise, shared.shape)).astype(np.float32) for noise in (0.3, 0.6)]

    def score(logits: np.ndarray, rows: np.ndarray) -> float:
        return metrics_of(logits[rows], truth[rows], label_kind=kind, names=[metric]).values[metric]

    found = paired_noise(*(influences_of(each, truth, label_kind=kind)[metric] for each in both))
    groups = [group_influences(lambda rows: score(each, rows), 1000) for each in both]  # noqa: B023 - called at once
    # with 50 groups the jackknife's width itself varies by a tenth
    assert found == pytest.approx(paired_noise(*groups), rel=0.3)


def test_nothing_is_said_of_few_targets_or_an_undefined_metric() -> None:
    assert group_influences(lambda rows: float(len(rows)), 49) is None
    assert paired_noise(np.ones(49), np.zeros(49)) is None
    assert group_influences(lambda rows: np.nan if len(rows) < 100 else 1.0, 100) is None


def test_targets_are_matched_whatever_their_order() -> None:
    found = shared_places(np.array([5, 1, 3]), np.array([3, 5, 1]))
    assert found is not None
    assert np.array_equal(np.array([5, 1, 3])[found[0]], np.array([3, 5, 1])[found[1]])
    assert shared_places(np.array([1, 2]), np.array([1, 3])) is None
