"""Confidence intervals are those of the literature, cover what they promise, and cost about as much as the metrics."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, f1_score

from gnnflow.graph.labels import LabelKind
from gnnflow.train import intervals
from gnnflow.train.metrics import Metrics, metrics_of

SHARES = np.array([0.5, 0.3, 0.15, 0.05])


def drawn(label_kind: LabelKind, count: int, *, seed: int = 0) -> tuple[Any, Any]:
    """Return logits and labels of `count` targets, from scores that know something of the truth."""
    rng = np.random.default_rng(seed)
    if label_kind == "regression":
        labels = rng.normal(size=count).astype(np.float32)
        return (labels + rng.normal(size=count) / 2).astype(np.float32)[:, None], labels
    noise = rng.normal(size=(count, len(SHARES)))
    if label_kind == "multi":
        labels = (rng.random((count, len(SHARES))) < SHARES).astype(np.float32)
        return (2 * labels - 1 + noise).astype(np.float32), labels
    classes = rng.choice(len(SHARES), count, p=SHARES)
    noise[np.arange(count), classes] += 1.5
    return noise.astype(np.float32), classes


def scores(label_kind: LabelKind, count: int, *, seed: int = 0) -> Metrics:
    return metrics_of(*drawn(label_kind, count, seed=seed), label_kind=label_kind, intervals=True)


@pytest.mark.parametrize(("hits", "count"), [(80, 100), (3, 7), (0, 12), (12, 12), (99_000, 100_000)])
def test_shares_have_scipys_wilson_interval(hits: int, count: int) -> None:
    theirs = binomtest(hits, count).proportion_ci(method="wilson")
    assert intervals._wilson(hits / count, count) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize("count", range(2, 40))
def test_no_hit_is_an_end_of_its_interval_and_so_are_all(count: int) -> None:
    assert intervals._wilson(0.0, count)[0] == 0.0
    assert intervals._wilson(1.0, count)[1] == 1.0
    assert 0.0 < intervals._wilson(1 / count, count)[0] < intervals._wilson(1 - 1 / count, count)[1] < 1.0


def test_areas_have_delongs_variance() -> None:
    rng = np.random.default_rng(3)
    truth = rng.random(80) < 0.3
    found = np.round(rng.normal(size=80) + truth, 1)  # rounded, so that some tie
    high, low = found[truth], found[~truth]
    # psi of every pair, equation 2 of the paper [positives, negatives]
    pairs = (high[:, None] > low) + 0.5 * (high[:, None] == low)
    variance = pairs.mean(axis=1).var(ddof=1) / len(high) + pairs.mean(axis=0).var(ddof=1) / len(low)
    assert np.square(intervals._influence(found, truth)).sum() == pytest.approx(variance)


def test_average_precision_moves_by_its_influence() -> None:
    rng = np.random.default_rng(4)
    truth = rng.random(60) < 0.3
    found = np.round(rng.normal(size=60) + truth, 1)  # rounded, so that some tie
    step, weights = 1e-6, np.ones(60)
    moved = [
        average_precision_score(truth, found, sample_weight=weights + step * (np.arange(60) == each))
        for each in range(60)
    ]
    derivative = (np.array(moved) - average_precision_score(truth, found)) / step
    assert intervals._precision_influence(found, truth) == pytest.approx(derivative, abs=1e-6)


def test_two_models_differ_by_the_deviation_of_resampled_targets() -> None:
    """Finds influences whose difference is not that of the metrics: half of the errors are common to both models."""
    rng = np.random.default_rng(6)
    labels = (rng.random(400) < 0.3).astype(np.int64)
    common = rng.normal(size=400) + labels
    both = [np.stack([np.zeros(400), common + 0.5 * rng.normal(size=400)], axis=1).astype(np.float32) for _ in range(2)]
    own, other = (intervals.influences_of(each, labels, label_kind="single") for each in both)
    drawn_rows = rng.integers(0, 400, (400, 400))
    for name in ("accuracy", "roc_auc", "average_precision", "brier"):
        values = [
            np.subtract(
                *(metrics_of(each[rows], labels[rows], label_kind="single", names=[name]).values[name] for each in both)
            )
            for rows in drawn_rows
        ]
        noise = intervals.noise_of(own[name] - other[name])
        assert noise == pytest.approx(1.96 * np.std(values), rel=0.15), name
        assert noise < 0.8 * intervals.noise_of(np.hypot(own[name], other[name])), name


@pytest.mark.table(2)
@pytest.mark.parametrize("label_kind", ["single", "multi"])
def test_f1_has_the_interval_of_a_bootstrap_over_targets(label_kind: LabelKind) -> None:
    logits, labels = drawn(label_kind, 300)
    truth, guess = (labels, logits.argmax(axis=1)) if label_kind == "single" else (labels > 0, logits > 0)
    rng = np.random.default_rng(8)
    samples = rng.integers(0, 300, (400, 300))
    resampled = [f1_score(truth[rows], guess[rows], average="macro", zero_division=np.nan) for rows in samples]
    low, high = metrics_of(logits, labels, label_kind=label_kind, intervals=True).intervals["macro_f1"]
    theirs = np.quantile(resampled, [0.025, 0.975])
    assert high - low == pytest.approx(theirs[1] - theirs[0], rel=0.15)
    assert (low, high) == pytest.approx(tuple(theirs), abs=0.03)


@pytest.mark.parametrize("label_kind", ["single", "multi", "regression"])
def test_intervals_hold_the_metric_and_narrow_with_the_root_of_the_targets(label_kind: LabelKind) -> None:
    few, many = scores(label_kind, 900), scores(label_kind, 90_000)
    # few targets make the calibration error too large, so no interval around it holds the true one
    assert set(few.intervals) == set(few.values) - {"calibration_error"} == set(many.intervals)
    for name, (low, high) in many.intervals.items():
        assert low < many.values[name] < high
        width = few.intervals[name][1] - few.intervals[name][0]
        assert width / (high - low) == pytest.approx(10, rel=0.3), name


@pytest.mark.slow
@pytest.mark.parametrize("label_kind", ["single", "multi", "regression"])
def test_about_95_of_100_intervals_hold_the_true_metric(label_kind: LabelKind) -> None:
    true = scores(label_kind, 200_000).values
    held: Counter[str] = Counter()
    for seed in range(1, 101):
        found = scores(label_kind, 400, seed=seed).intervals
        held.update(name for name, (low, high) in found.items() if low <= true[name] <= high)
    assert set(held) == set(true) - {"calibration_error"}
    for name, count in held.items():
        assert 88 <= count <= 100, name


@pytest.mark.parametrize("label_kind", ["single", "multi", "regression"])
def test_equal_scores_have_equal_intervals(label_kind: LabelKind) -> None:
    assert scores(label_kind, 2500).intervals == scores(label_kind, 2500).intervals


def test_what_shows_no_spread_has_no_interval() -> None:
    logits = np.eye(3, dtype=np.float32)[[0, 1, 2] * 10]
    found = metrics_of(logits, np.array([0, 1, 2] * 10), label_kind="single", intervals=True)
    assert found.values["macro_f1"] == found.values["roc_auc"] == 1
    assert set(found.intervals) == {"accuracy", "micro_f1"}
    assert found.intervals["accuracy"][0] < 0.9
    nothing = metrics_of(logits, np.full(30, -1), label_kind="single", intervals=True)
    assert nothing.intervals == {}


def test_flat_names_say_which_end() -> None:
    found = Metrics({"accuracy": 0.5}, intervals={"accuracy": (0.4, 0.6)})
    assert found.named("test") == {"test.accuracy": 0.5, "test.accuracy_low": 0.4, "test.accuracy_high": 0.6}
