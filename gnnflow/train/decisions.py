"""Chooses the threshold between two classes on the valid split, and measures decisions by it.

A threshold lies halfway between two probabilities of valid, so scores that another execution rounds otherwise are
decided alike. It is a float32 number, as published probabilities are: both compare to the same answer everywhere. The
order of targets changes nothing, and of equally good thresholds the highest is taken.

Shapes: N targets, K distinct probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.config.task_section import (
    AutoDecision,
    CostDecision,
    DecideConfig,
    F1Decision,
    PrecisionDecision,
    TopDecision,
)
from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.run_facts import Decision

USUAL_TOP = 100
"""The targets of precision and recall at k, where `task.decide` has no k."""
BINS = 10
"""Bins of the calibration error, equally wide."""


class UndefinedMetricError(ValueError):
    """The labels at hand do not define the metric; the text says why."""


@dataclass(frozen=True)
class Deciding:
    """The figures of decisions: from the threshold (None: without one), and among the top likeliest targets.

    is_asked: the number `top` is the config's, so a split with fewer targets has a note.
    """

    threshold: float | None = None
    top: int = USUAL_TOP
    is_asked: bool = False

    @staticmethod
    def of(decide: DecideConfig, threshold: float | None) -> Deciding:
        """Return the figures of decisions by a config's rule."""
        if isinstance(decide, TopDecision):
            return Deciding(threshold, decide.k, is_asked=True)
        return Deciding(threshold)


def positive_probability(logits: FloatArray) -> FloatArray:
    """Return the probability of class 1 [N], float32, of raw outputs [N, 2]."""
    # in float64, where exp neither overflows up to 709 nor rounds before the result does
    margin = np.clip(logits[:, 0].astype(np.float64) - logits[:, 1], -700, 700)
    return np.asarray(1 / (1 + np.exp(margin)), np.float32)


def steps_of(scores: FloatArray, truth: Array) -> tuple[IntArray, IntArray, IntArray]:
    """Return the place of the last target of each distinct score, from the highest, in the order by score [K].

    Then the targets down to it [K], and the ones of class 1 among them [K]; equal scores are one step.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    return order[ends], ends + 1, np.cumsum(truth[order])[ends]


def choose_threshold(decide: DecideConfig, logits: FloatArray, labels: Array) -> Decision:
    """Return the threshold for labelled targets of valid: logits [N, 2], labels int [N]."""
    truth = labels == 1
    if not len(labels):
        return no_decision(decide, "no target of valid has a label")
    if not isinstance(decide, TopDecision) and (truth.all() or not truth.any()):
        return no_decision(decide, f"every labelled target of valid has class {int(truth[0])}")
    probability = positive_probability(logits)
    last, flagged, hits = steps_of(probability, truth)
    place = _best_step(decide, flagged, hits)
    if isinstance(place, str):
        return no_decision(decide, place)
    # the distinct probabilities, from the highest, between 1 and 0 [K + 2]
    distinct = np.concatenate([np.ones(1, np.float32), probability[last], np.zeros(1, np.float32)])
    return Decision(_rule_text(decide), _between(distinct[place + 1], above=distinct[place]))


def no_decision(decide: DecideConfig, why: str) -> Decision:
    """Return a decision without a threshold, for this reason."""
    return Decision(_rule_text(decide), None, why)


def _between(low: np.float32, *, above: np.float32) -> float:
    """Return the float32 number halfway between two, above the lower one where there is one."""
    middle = np.float32((float(low) + float(above)) / 2)
    if middle > low:
        return float(middle)
    # neighbours: the higher decides like the middle; beyond 1 no probability is
    return float(above) if above > low else float(np.nextafter(np.float32(1), np.float32(2)) if low else low)


def _best_step(rule: DecideConfig, flagged: IntArray, hits: IntArray) -> int | str:
    """Return the best step: 0 decides for no target, i for the targets down to the i-th distinct score.

    A text says why there is none. flagged, hits: the targets down to each step, and the ones of class 1 [K].
    """
    match rule:
        case AutoDecision() | F1Decision():
            return 1 + int(np.argmax(2 * hits / (flagged + hits[-1])))
        case CostDecision():
            # cost of deciding for nobody, then of each step [1 + K]
            misses, alarms = np.append(hits[-1], hits[-1] - hits), np.append(0, flagged - hits)
            return int(np.argmin(rule.miss * misses + rule.false_alarm * alarms))
        case PrecisionDecision():
            precision = hits / flagged
            # targets of class 1 that each step finds, where it is precise enough [K]
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
        case CostDecision():
            return f"the lowest cost (miss {rule.miss:g}, false alarm {rule.false_alarm:g})"
        case PrecisionDecision():
            return f"a precision of {rule.at_least:g} or more"
        case TopDecision():
            return f"the {rule.k:,} likeliest targets"


def decision_metrics(logits: FloatArray, labels: Array, deciding: Deciding) -> tuple[dict[str, float], list[str]]:
    """Return precision, recall and F1 at the threshold and at k of labelled targets [N > 0], with notes.

    A metric that the labels do not define is left out, and its note says why.
    """
    values: dict[str, float] = {}
    notes: list[str] = []
    truth = labels == 1
    positives = int(truth.sum())
    if deciding.threshold is not None:
        flagged = positive_probability(logits) >= np.float32(deciding.threshold)
        hits, count = int((flagged & truth).sum()), int(flagged.sum())
        shares = {"precision": (hits, count), "recall": (hits, positives), "f1": (2 * hits, count + positives)}
        values |= {name: above / below for name, (above, below) in shares.items() if below}
        why = {"precision": "no target reaches the threshold", "recall": "no target is of class 1"}
        notes += [f"{name} is undefined: {text}" for name, text in why.items() if name not in values]
        if "f1" not in values:
            notes.append("f1 is undefined: no target is of class 1 and none reaches the threshold")
    k = deciding.top
    if k <= len(truth):
        hits_at_k = hits_among(logits[:, 1] - logits[:, 0], truth, k)
        values[f"precision_at_{k}"] = hits_at_k / k
        if positives:
            values[f"recall_at_{k}"] = hits_at_k / positives
        else:
            notes.append(f"recall_at_{k} is undefined: no target is of class 1")
    elif deciding.is_asked:
        notes.append(f"precision_at_{k} and recall_at_{k} are undefined: the split has {len(truth):,} labelled targets")
    return values, notes


def hits_among(scores: FloatArray, truth: Array, k: int) -> float:
    """Return the targets of class 1 among the k likeliest; equal scores share the last places."""
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
