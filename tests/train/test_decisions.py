"""Thresholds between two classes: chosen on planted cases, and measured as scikit-learn measures them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from gnnflow.config.decide_section import (
    AutoDecision,
    CostDecision,
    DecideConfig,
    F1Decision,
    PrecisionDecision,
    TopDecision,
)
from gnnflow.config.task_section import NodeTask
from gnnflow.graph.run_facts import Decision
from gnnflow.train.decisions import Deciding, choose_decision, decision_metrics, positive_probability
from gnnflow.train.metrics import metrics_of

ZEROS = np.zeros(4, np.int64)


def choose_threshold(rule: DecideConfig, logits: np.ndarray, labels: np.ndarray) -> Decision:
    """Return the decision between two classes without names."""
    return choose_decision(rule, logits, labels, names=["0", "1"])


def logits_of(probabilities: Any) -> np.ndarray:
    """Return raw outputs [N, 2] of which class 1 has these probabilities."""
    shares = np.asarray(probabilities, np.float64)
    return np.column_stack([np.zeros(len(shares)), np.log(shares / (1 - shares))]).astype(np.float32)


PLANTED = logits_of([0.9, 0.8, 0.7, 0.6, 0.4, 0.2, 0.1, 0.1])
LABELS = np.array([1, 0, 1, 1, 0, 1, 0, 0])


@pytest.mark.parametrize(
    ("rule", "between"),
    [
        (AutoDecision(), (0.1, 0.2)),  # 4 of 4 in 6: F1 8/10; 3 in 4 are 6/8
        (F1Decision(), (0.1, 0.2)),
        (CostDecision(miss=1), (0.4, 0.6)),
        (CostDecision(miss=10), (0.1, 0.2)),
        (CostDecision(miss=1, false_alarm=10), (0.8, 0.9)),
        (PrecisionDecision(at_least=0.75), (0.4, 0.6)),
        (PrecisionDecision(at_least=1), (0.8, 0.9)),
        (PrecisionDecision(at_least=0.5), (0.1, 0.2)),
        (TopDecision(k=1), (0.8, 0.9)),
        (TopDecision(k=3), (0.6, 0.7)),
        (TopDecision(k=7), (0, 0.1)),  # two share the seventh place
    ],
)
def test_a_planted_threshold_is_found(rule: DecideConfig, between: tuple[float, float]) -> None:
    found = choose_threshold(rule, PLANTED, LABELS)
    assert found.threshold == pytest.approx(sum(between) / 2)


@pytest.mark.parametrize(
    ("word", "rule"),
    [("f1", F1Decision()), ("auto", AutoDecision()), ("precision >= 0.9", PrecisionDecision(at_least=0.9))],
)
def test_a_word_stands_for_a_rule(word: str, rule: DecideConfig) -> None:
    assert NodeTask.model_validate({"decide": word}).decide == rule


@pytest.mark.parametrize("word", ["best", "precision>=high", "f1>=0.3", "precision"])
def test_a_word_for_no_rule_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="decide"):
        NodeTask.model_validate({"decide": word})


def test_deciding_for_nobody_can_cost_least() -> None:
    found = choose_threshold(CostDecision(miss=1, false_alarm=100), PLANTED, 1 - LABELS)
    assert found.threshold == pytest.approx(0.95)
    sure = np.array([[-90.0, 0], [0, 0]], np.float32)  # a probability of 1 has none above it
    found = choose_threshold(CostDecision(miss=1, false_alarm=100), sure, np.array([0, 1]))
    assert found.threshold is not None
    assert found.threshold > 1


@pytest.mark.parametrize(
    ("rule", "labels", "why"),
    [
        (F1Decision(), ZEROS, "every labelled target of valid has class 0"),
        (CostDecision(miss=2), ZEROS + 1, "every labelled target of valid has class 1"),
        (PrecisionDecision(at_least=0.9), ZEROS[:0], "no target of valid has a label"),
        (PrecisionDecision(at_least=0.9), [0, 1, 0, 0], "precision is 0.500 at most, and task.decide.at_least is 0.9"),
        (TopDecision(k=5), ZEROS, "valid has 4 labelled targets, and task.decide.k is 5"),
    ],
)
def test_a_threshold_that_does_not_exist_has_a_reason(rule: DecideConfig, labels: Any, why: str) -> None:
    found = choose_threshold(rule, logits_of([0.9, 0.8, 0.2, 0.1])[: len(labels)], np.asarray(labels))
    assert (found.threshold, found.why) == (None, why)
    assert found.tell() == f"no threshold: {why}"


@pytest.mark.parametrize("seed", range(20))
def test_the_best_f1_and_recall_are_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.random(80) < 0.3
    # a few values only, so that many are equal
    logits = np.column_stack([np.zeros(80), rng.integers(-3, 4, 80) + labels]).astype(np.float32)
    precision, recall, _ = sk.precision_recall_curve(labels, positive_probability(logits))
    least = labels.mean()
    best = np.max(2 * precision * recall / np.maximum(precision + recall, 1e-9))
    for rule, name, reference in (
        (F1Decision(), "f1", best),
        (PrecisionDecision(at_least=least), "recall", recall[precision >= least].max()),
    ):
        chosen = choose_threshold(rule, logits, labels.astype(np.int64))
        assert chosen.threshold is not None
        values, notes = decision_metrics(logits, labels.astype(np.int64), Deciding(chosen))
        assert values[name] == pytest.approx(reference)
        guess = positive_probability(logits) >= chosen.threshold
        assert values == pytest.approx(
            {
                "precision": sk.precision_score(labels, guess),
                "recall": sk.recall_score(labels, guess),
                "f1": sk.f1_score(labels, guess),
            }
        )
        assert notes == []


def test_the_order_of_targets_changes_no_threshold() -> None:
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 2, 200), rng.integers(-4, 5, (200, 2)).astype(np.float32)
    order = rng.permutation(200)
    for rule in (F1Decision(), CostDecision(miss=3), PrecisionDecision(at_least=0.5), TopDecision(k=30)):
        assert choose_threshold(rule, logits, labels) == choose_threshold(rule, logits[order], labels[order])


def test_a_threshold_lies_between_neighbouring_float32_numbers() -> None:
    """Halfway rounds to the lower one, which is decided against."""
    low = np.float32(0.25)
    near = np.array([[0, 0], [0, 0]], np.float32)
    near[:, 1] = np.log(1 / 3)
    near[1, 1] = np.nextafter(near[1, 1], np.float32(9))
    found = choose_threshold(F1Decision(), near, np.array([0, 1]))
    first, second = positive_probability(near)
    assert first < second or first == second == low
    if first < second:
        assert found.threshold is not None
        assert first < np.float32(found.threshold) <= second


def test_equal_scores_share_the_last_places_of_the_top() -> None:
    logits, labels = logits_of([0.9, 0.5, 0.5, 0.5, 0.1]), np.array([1, 1, 0, 0, 1])
    values, notes = decision_metrics(logits, labels, Deciding(top=2, is_asked=True))
    assert values == pytest.approx({"precision_at_2": (1 + 1 / 3) / 2, "recall_at_2": (1 + 1 / 3) / 3})
    assert notes == []


def test_an_undefined_figure_of_decisions_has_a_reason() -> None:
    logits = logits_of([0.4, 0.3])
    values, notes = decision_metrics(logits, ZEROS[:2], Deciding(Decision("", 0.5), top=3, is_asked=True))
    assert values == {}
    assert notes == [
        "precision is undefined: no target reaches the threshold",
        "recall is undefined: no target is of class 1",
        "f1 is undefined: no target is of class 1 and none reaches the threshold",
        "precision_at_3 and recall_at_3 are undefined: the split has 2 labelled targets",
    ]
    _, named = decision_metrics(logits, ZEROS[:2], Deciding(Decision("", 0.5)), class_names=("ok", "ring"))
    assert named[1] == "recall is undefined: no target is of class ring"
    assert decision_metrics(logits, ZEROS[:2], Deciding()) == ({}, [])  # nobody asked for the first hundred


def test_intervals_of_rare_classes_hold_their_metric() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random(2000) < 0.05).astype(np.int64)
    logits = np.column_stack([np.zeros(2000), rng.standard_normal(2000) + 2 * labels]).astype(np.float32)
    found = metrics_of(logits, labels, label_kind="single", intervals=True, deciding=Deciding.at(0.8))
    for name in ("average_precision", "brier", "precision", "recall", "f1"):
        low, high = found.intervals[name]
        assert low < found.values[name] < high


def several(count: int, *, seed: int, tilt: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits that are the true log-odds of four classes, but for a tilt of the last, rare one; and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, size=count, p=SHARES)
    columns = rng.normal(size=(count, 4)) + 1.5 * np.eye(4)[labels]
    logits = 1.5 * columns + np.log(SHARES)
    logits[:, 3] += tilt
    return logits.astype(np.float32), labels


SHARES = np.array([0.5, 0.3, 0.17, 0.03])
NAMES = ["a", "b", "c", "ring"]
COSTS = CostDecision(costs={"ring": 20})


def mean_cost(decision: Decision, logits: np.ndarray, labels: np.ndarray) -> float:
    values, notes = decision_metrics(logits, labels, Deciding(decision))
    assert notes == []
    return values["cost"]


def test_costs_are_expected_by_probabilities_that_fit_valid() -> None:
    """A model that was trained with class weights sees its rare class everywhere: unfitted, costs decide for it."""
    tilted, labels = several(20_000, seed=0, tilt=3)
    found = choose_decision(COSTS, tilted, labels, names=NAMES)
    assert found.scale == pytest.approx(1, abs=0.05)
    assert found.offsets[3] - np.mean(found.offsets[:3]) == pytest.approx(-3, abs=0.2)
    raw = replace(found, scale=1.0, offsets=(0.0,) * 4)
    later, truth = several(20_000, seed=1, tilt=3)
    best = mean_cost(raw, several(20_000, seed=1)[0], truth)  # by the true probabilities
    assert mean_cost(found, later, truth) == pytest.approx(best, rel=0.03)
    assert mean_cost(raw, later, truth) > 1.2 * best


def test_a_class_without_targets_in_valid_keeps_a_finite_offset() -> None:
    logits, labels = several(50, seed=2)
    found = choose_decision(COSTS, logits, np.minimum(labels, 2), names=NAMES)
    assert np.isfinite(found.offsets).all()
    none = choose_decision(COSTS, logits[:0], labels[:0], names=NAMES)
    assert none.tell() == (
        "the class of least expected cost is decided, by the model's own probabilities: no target of valid has a label"
    )


def test_rules_of_one_class_among_several_are_the_rules_of_two() -> None:
    """The others count as one class, whose probability is the sum of theirs."""
    logits, labels = several(600, seed=3)
    share = np.exp(logits.astype(np.float64))
    other = np.log(share[:, :3].sum(1))
    two, truth = np.column_stack([other, logits[:, 3]]), (labels == 3).astype(np.int64)
    for rule in (F1Decision, PrecisionDecision, TopDecision, CostDecision):
        more = {PrecisionDecision: {"at_least": 0.4}, TopDecision: {"k": 20}, CostDecision: {"miss": 9}}.get(rule, {})
        found = choose_decision(rule(positive="ring", **more), logits, labels, names=NAMES)
        expected = choose_threshold(rule(**more), two, truth)
        assert found.positive == 3
        assert found.threshold == pytest.approx(expected.threshold, rel=1e-6)
        values, _ = decision_metrics(logits, labels, Deciding(found))
        assert values == pytest.approx(decision_metrics(two, truth, Deciding(expected))[0])


def test_decisions_cost_what_a_rule_says_whoever_made_them() -> None:
    """Two versions are compared by today's costs, and each decides by a rule of its own."""
    logits, labels = several(600, seed=3)
    miss, every = CostDecision(miss=9, false_alarm=2, positive="ring"), COSTS
    listed = choose_decision(F1Decision(positive="ring"), logits, labels, names=NAMES)
    likeliest = choose_decision(every, logits, labels, names=NAMES)
    flags = Deciding(listed).flags(logits)
    classes = Deciding(likeliest).classes(logits)
    assert flags is not None
    assert classes is not None

    def cost(rule: DecideConfig, decision: Decision) -> float | None:
        deciding = Deciding.of(rule, decision, names=NAMES)
        found = metrics_of(logits, labels, label_kind="single", deciding=deciding, intervals=True)
        assert ("cost" in found.values) == ("cost" in found.intervals)
        return found.values.get("cost")

    truth = labels == 3
    for decision, chosen in ((listed, flags), (likeliest, classes == 3)):
        assert cost(miss, decision) == pytest.approx(np.mean(9 * (truth & ~chosen) + 2 * (~truth & chosen)))
    assert cost(every, likeliest) == pytest.approx(np.mean((labels != classes) * np.where(truth, 20, 1)))
    assert cost(every, listed) is None  # which other class is decided is not known
    assert cost(F1Decision(positive="ring"), listed) is None
    none = decision_metrics(logits, labels, Deciding.of(every, listed, names=NAMES) or Deciding())[1]
    assert none == ["cost is undefined: no decision is made of the class that mistakes have costs for"]
    # of two classes costs are a matrix, and decisions a threshold
    two = choose_decision(CostDecision(costs={"1": 10, "0": 2}), PLANTED, LABELS, names=["0", "1"])
    deciding = Deciding.of(CostDecision(costs={"1": 10, "0": 2}), two, names=["0", "1"])
    assert deciding is not None
    guess = deciding.flags(PLANTED)
    expected = np.mean(np.where(LABELS == 1, 10 * (guess == 0), 2 * (guess == 1)))
    assert decision_metrics(PLANTED, LABELS, deciding)[0]["cost"] == pytest.approx(expected)


def test_the_other_of_two_classes_can_be_decided_for() -> None:
    found = choose_decision(F1Decision(positive="0"), PLANTED, LABELS, names=["0", "1"])
    mirrored = choose_threshold(F1Decision(), PLANTED[:, ::-1], 1 - LABELS)
    assert (found.threshold, found.positive) == (mirrored.threshold, 0)
    both = choose_decision(CostDecision(costs={"1": 10, "0": 2}), PLANTED, LABELS, names=["0", "1"])
    assert both.threshold == choose_threshold(CostDecision(miss=10, false_alarm=2), PLANTED, LABELS).threshold


@pytest.mark.parametrize(
    "costs",
    [
        {},
        {"costs": {"a": 2}, "miss": 3},
        {"costs": {"a": 2}, "positive": "a"},
        {"costs": {"a": {"a": 1}}},
        {"costs": {}},
    ],
)
def test_costs_that_say_two_things_are_refused(costs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"costs|miss"):
        NodeTask.model_validate({"decide": {"kind": "cost", **costs}})
