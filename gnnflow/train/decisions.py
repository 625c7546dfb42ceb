"""Chooses decisions between classes on the valid split, and measures them.

One class has a threshold: of two classes, or named against the others. Without a class that is named, one of several
is decided for each target: the likeliest, or the one of least expected cost (`gnnflow.graph.class_decisions`).

A threshold lies halfway between two probabilities of valid, so scores that another execution rounds otherwise are
decided alike. It is a float32 number, as published probabilities are: both compare to the same answer everywhere. The
order of targets changes nothing, and of equally good thresholds the highest is taken.

Shapes: N targets, C classes, K distinct probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gnnflow.config.decide_section import (
    AutoDecision,
    CostDecision,
    DecideConfig,
    F1Decision,
    PrecisionDecision,
    TopDecision,
    cost_matrix,
    positive_of,
)
from gnnflow.graph.arrays import Array, BoolArray, FloatArray, IntArray
from gnnflow.graph.class_decisions import decided_classes, fit_probabilities, softmax_of
from gnnflow.graph.labels import names_of_classes
from gnnflow.graph.run_facts import Decision

USUAL_TOP = 100
"""The targets of precision and recall at k, where `task.decide` has no k."""
BINS = 10
"""Bins of the calibration error, equally wide."""
_TWO = 2
_NONE_LABELLED = "no target of valid has a label"


class UndefinedMetricError(ValueError):
    """The labels at hand do not define the metric; the text says why."""


@dataclass(frozen=True)
class Prices:
    """The costs of mistakes: [C][C] of deciding a class (column) for a target of another (row); or of one class.

    Of one class, `positive`, a miss costs as much and a false alarm as much, whatever is decided among the others.
    """

    costs: tuple[tuple[float, ...], ...] = ()
    positive: int = 1
    miss: float = 0.0
    false_alarm: float = 0.0

    @staticmethod
    def of(decide: DecideConfig, names: Sequence[str]) -> Prices | None:
        """Return the costs that a rule gives; None where it gives none. names: of all classes."""
        if not isinstance(decide, CostDecision):
            return None
        positive = positive_of(decide, names)
        if decide.miss is None or positive is None:
            return Prices(cost_matrix(decide, names))
        return Prices(positive=positive, miss=decide.miss, false_alarm=decide.false_alarm)


@dataclass(frozen=True)
class Deciding:
    """The figures of decisions: by a decision (None: without one), and among the top likeliest targets of its class.

    is_asked: the number `top` is the config's, so a split with fewer targets has a note. prices: the costs that
    decisions are measured by, which may be another model's; None for the decision's own.
    """

    decision: Decision | None = None
    top: int = USUAL_TOP
    is_asked: bool = False
    prices: Prices | None = None

    @staticmethod
    def of(decide: DecideConfig, decision: Decision | None, *, names: Sequence[str]) -> Deciding | None:
        """Return the figures of decisions by a config's rule; None where there are none. names: of all classes."""
        if decision is None:
            return None
        if isinstance(decide, TopDecision):
            return Deciding(decision, decide.k, is_asked=True)
        return Deciding(decision, prices=Prices.of(decide, names))

    @staticmethod
    def at(threshold: float, *, positive: int = 1) -> Deciding:
        """Return the figures of decisions for a class from a threshold on."""
        return Deciding(Decision("", threshold, positive=positive))

    @property
    def positive(self) -> int | None:
        """The class that is decided for or against; None where one of several is decided."""
        return 1 if self.decision is None else self.decision.positive

    @property
    def threshold(self) -> float | None:
        """The lowest probability of `positive` that is decided for; None without one."""
        return None if self.decision is None else self.decision.threshold

    @property
    def has_costs(self) -> bool:
        """True where the class of least expected cost is decided."""
        return self.decision is not None and bool(self.decision.costs)

    @property
    def is_likeliest(self) -> bool:
        """True where the likeliest of several classes is decided, so that decisions are predictions."""
        return self.positive is None and not self.has_costs

    @property
    def effective_prices(self) -> Prices | None:
        """The costs that decisions are measured by; None without any."""
        if self.prices is not None or self.decision is None or not self.has_costs:
            return self.prices
        return Prices(self.decision.costs)

    def flags(self, logits: FloatArray) -> BoolArray | None:
        """Return the targets of raw outputs [N, C] that are decided for [N]; None without a threshold."""
        if self.positive is None or self.threshold is None:
            return None
        return np.asarray(class_probability(logits, self.positive) >= np.float32(self.threshold))

    def classes(self, logits: FloatArray) -> IntArray | None:
        """Return the decided class of raw outputs [N, C], [N]; None where one class is decided for or against."""
        if self.decision is None or self.positive is not None:
            return None
        return decided_classes(softmax_of(logits), self.decision)

    def costs(self, logits: FloatArray, labels: Array) -> FloatArray | None:
        """Return the cost of each target's decision [N].

        None without prices, or where the decision does not say what they are of: there is no threshold, or it is of
        another class than they are.
        """
        prices = self.effective_prices
        classes, flags, positive = self.classes(logits), self.flags(logits), self.positive
        if flags is not None and positive is not None and logits.shape[1] == _TWO:
            classes = np.where(flags, positive, 1 - positive)
        if prices is None:
            return None
        if prices.costs:
            return None if classes is None else np.asarray(np.array(prices.costs)[labels, classes])
        if classes is not None:
            flags = classes == prices.positive
        elif positive != prices.positive:
            return None
        if flags is None:
            return None
        truth = labels == prices.positive
        return np.asarray(prices.miss * (truth & ~flags) + prices.false_alarm * (~truth & flags))


def class_margin(logits: FloatArray, number: int) -> FloatArray:
    """Return the log-odds of a class [N] from raw outputs [N, C]; probabilities have the same order."""
    if logits.shape[1] == _TWO:
        return np.asarray(logits[:, number] - logits[:, 1 - number])
    others = np.delete(logits, number, axis=1).astype(np.float64)
    most = others.max(axis=1)
    return np.asarray(logits[:, number] - most - np.log(np.exp(others - most[:, None]).sum(axis=1)))


def class_probability(logits: FloatArray, number: int) -> FloatArray:
    """Return the probability of a class [N], float32, of raw outputs [N, C]."""
    # in float64, where exp neither overflows up to 709 nor rounds before the result does
    margin = class_margin(logits.astype(np.float64), number)
    return np.asarray(1 / (1 + np.exp(np.clip(-margin, -700, 700))), np.float32)


def positive_probability(logits: FloatArray) -> FloatArray:
    """Return the probability of class 1 [N], float32, of raw outputs [N, 2]."""
    return class_probability(logits, 1)


class ScoreSteps(NamedTuple):
    """The K distinct scores, from the highest: equal scores are one step.

    last [K]: the last target of each in the order by score. flagged [K]: the targets down to it. hits [K]: the ones of
    the class among these.
    """

    last: IntArray
    flagged: IntArray
    hits: IntArray


def steps_of(scores: FloatArray, truth: Array) -> ScoreSteps:
    """Return the distinct scores of targets. truth: whether each is of the class."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    return ScoreSteps(order[ends], ends + 1, np.cumsum(truth[order])[ends])


def choose_decision(
    decide: DecideConfig, logits: FloatArray | None, labels: Array | None, *, names: Sequence[str]
) -> Decision:
    """Return the decision for labelled targets of valid: logits [N, C], labels int [N]; None where it has none.

    names: of all classes. Raises TrainingError where the rule names another class.
    """
    positive, matrix = positive_of(decide, names), cost_matrix(decide, names)
    if positive is None and not matrix:
        return Decision("the likeliest class", None, positive=None)
    why = "no target is in valid" if logits is None or labels is None else "" if len(labels) else _NONE_LABELLED
    if positive is not None and matrix:  # of two classes, a threshold
        decide = CostDecision.model_construct(miss=matrix[1][0], false_alarm=matrix[0][1])
    if positive is not None:
        if why or logits is None or labels is None:
            return Decision(_rule_text(decide), None, why, positive)
        return _choose_threshold(decide, logits, labels, positive=positive, names=names)
    found = Decision(_rule_text(decide), None, positive=None, costs=matrix, offsets=(0.0,) * len(names))
    if why or logits is None or labels is None:
        return replace(found, why=f"by the model's own probabilities: {why}")
    scale, offsets = fit_probabilities(softmax_of(logits), labels)
    return replace(found, scale=scale, offsets=offsets)


def _choose_threshold(
    decide: DecideConfig, logits: FloatArray, labels: Array, *, positive: int, names: Sequence[str]
) -> Decision:
    """Return the threshold of a class for labelled targets of valid [N > 0]."""
    truth, rule = labels == positive, _rule_text(decide)
    if not isinstance(decide, TopDecision) and (truth.all() or not truth.any()):
        is_one = truth[0] or len(names) == _TWO
        held = f"has class {names[int(labels[0])]}" if is_one else f"has another class than {names[positive]}"
        return Decision(rule, None, f"every labelled target of valid {held}", positive)
    probability = class_probability(logits, positive)
    last, flagged, hits = steps_of(probability, truth)
    place = _best_step(decide, flagged, hits)
    if isinstance(place, str):
        return Decision(rule, None, place, positive)
    # the distinct probabilities, from the highest, between 1 and 0 [K + 2]
    distinct = np.concatenate([np.ones(1, np.float32), probability[last], np.zeros(1, np.float32)])
    return Decision(rule, _between(distinct[place + 1], above=distinct[place]), positive=positive)


def _between(low: np.float32, *, above: np.float32) -> float:
    """Return the float32 number halfway between two, above the lower one where there is one."""
    middle = np.float32((float(low) + float(above)) / 2)
    if middle > low:
        return float(middle)
    # neighbours: the higher decides like the middle; beyond 1 no probability is
    return float(above) if above > low else float(np.nextafter(np.float32(1), np.float32(2)) if low else low)


def _best_step(rule: DecideConfig, flagged: IntArray, hits: IntArray) -> int | str:
    """Return the best step: 0 decides for no target, i for the targets down to the i-th distinct score.

    A text says why there is none. flagged, hits: the targets down to each step, and the ones of the class [K].
    """
    match rule:
        case AutoDecision() | F1Decision():
            return 1 + int(np.argmax(2 * hits / (flagged + hits[-1])))
        case CostDecision():
            # cost of deciding for nobody, then of each step [1 + K]
            assert rule.miss is not None
            misses, alarms = np.append(hits[-1], hits[-1] - hits), np.append(0, flagged - hits)
            return int(np.argmin(rule.miss * misses + rule.false_alarm * alarms))
        case PrecisionDecision():
            precision = hits / flagged
            # targets of the class that each step finds, where it is precise enough [K]
            found = np.where(precision >= rule.at_least, hits, 0)
            if not found.any():
                return f"precision is {precision.max():.3f} at most, and task.decide.at_least is {rule.at_least:g}"
            return 1 + int(np.argmax(found))
        case TopDecision():
            if rule.k > flagged[-1]:
                return f"valid has {flagged[-1]:,} labelled targets, and task.decide.k is {rule.k:,}"
            return 1 + int(np.argmax(flagged >= rule.k))


def _rule_text(rule: DecideConfig) -> str:
    match rule:
        case AutoDecision() | F1Decision():
            return "the highest F1"
        case CostDecision() if rule.miss is None:
            return "the least expected cost"
        case CostDecision():
            return f"the lowest cost (miss {rule.miss:g}, false alarm {rule.false_alarm:g})"
        case PrecisionDecision():
            return f"a precision of {rule.at_least:g} or more"
        case TopDecision():
            return f"the {rule.k:,} likeliest targets"


def decision_metrics(
    logits: FloatArray, labels: Array, deciding: Deciding, *, class_names: Sequence[str] = ()
) -> tuple[dict[str, float], list[str]]:
    """Return the metrics of decisions about labelled targets [N > 0], with notes that name classes.

    Of one class: precision, recall and F1 at the threshold and at k. Of costs: the mean cost of a target. A metric that
    the labels do not define is left out, and its note says why.
    """
    values: dict[str, float] = {}
    notes: list[str] = []
    if (costs := deciding.costs(logits, labels)) is not None:
        values["cost"] = float(costs.mean())
    elif deciding.prices is not None:
        notes.append("cost is undefined: no decision is made of the class that mistakes have costs for")
    if deciding.positive is None:
        return values, notes
    truth = labels == deciding.positive
    positives = int(truth.sum())
    of_class = f"of class {names_of_classes(class_names, logits.shape[1])[deciding.positive]}"
    flagged = deciding.flags(logits)
    if flagged is not None:
        hits, count = int((flagged & truth).sum()), int(flagged.sum())
        shares = {"precision": (hits, count), "recall": (hits, positives), "f1": (2 * hits, count + positives)}
        values |= {name: above / below for name, (above, below) in shares.items() if below}
        why = {"precision": "no target reaches the threshold", "recall": f"no target is {of_class}"}
        notes += [f"{name} is undefined: {text}" for name, text in why.items() if name not in values]
        if "f1" not in values:
            notes.append(f"f1 is undefined: no target is {of_class} and none reaches the threshold")
    k = deciding.top
    if k <= len(truth):
        hits_at_k = hits_among(class_margin(logits, deciding.positive), truth, k)
        values[f"precision_at_{k}"] = hits_at_k / k
        if positives:
            values[f"recall_at_{k}"] = hits_at_k / positives
        else:
            notes.append(f"recall_at_{k} is undefined: no target is {of_class}")
    elif deciding.is_asked:
        notes.append(f"precision_at_{k} and recall_at_{k} are undefined: the split has {len(truth):,} labelled targets")
    return values, notes


def hits_among(scores: FloatArray, truth: Array, k: int) -> float:
    """Return the targets of the class among the k likeliest; equal scores share the last places."""
    _, flagged, hits = steps_of(scores, truth)
    step = int(np.argmax(flagged >= k))
    before, hits_before = (int(flagged[step - 1]), int(hits[step - 1])) if step else (0, 0)
    share = (int(hits[step]) - hits_before) / (int(flagged[step]) - before)
    return hits_before + share * (k - before)


def calibration_error(probability: FloatArray, truth: Array) -> float:
    """Return the expected calibration error (Guo et al., ICML 2017): how far shares are from probabilities.

    It is the mean over targets [N] of the difference between a bin's share of truths and its mean probability. Bins are
    cut as in scikit-learn's `calibration_curve`.
    """
    edges = np.linspace(0, 1, BINS + 1)[1:-1]
    bins = np.searchsorted(edges, probability)
    true, expected = (np.bincount(bins, each, minlength=BINS) for each in (truth, probability.astype(np.float64)))
    return float(np.abs(true - expected).sum() / len(truth))
