"""Computes scikit-learn's metrics over a whole split at once, under fixed names.

A metric that the labels do not define is left out and a note says why; no number replaces it. Unlabelled
targets (-1, or a value that is not finite) do not count. They are computed here, to rounding as there: scikit-learn
takes longer and more memory (docs/decisions/0032-metrics-by-hand.md).

Shapes: N targets, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gnnflow.graph.arrays import Array, BoolArray, FloatArray, IntArray
from gnnflow.graph.errors import listed
from gnnflow.graph.labels import BOUNDS, UNLABELLED, LabelKind, names_of_classes
from gnnflow.train.decisions import (
    Deciding,
    UndefinedMetricError,
    calibration_error,
    decision_metrics,
    positive_probability,
    steps_of,
)
from gnnflow.train.intervals import HITS, Interval, intervals_of, one_against_rest, ranks_of, squared_errors

_TWO = 2
_CONFUSION_CLASSES = 200  # more make a table too large to read: 200 x 200 counts are 320 kB


@dataclass(frozen=True)
class Metrics:
    """Metrics by name, a note for each that is undefined or partial, the confusion counts, and intervals if asked for.

    confusion: int64 [C, C] (row: label, column: prediction) or, for multi-label, [C, 2, 2]; None for
    regression. constant: the prediction, where it is the same for every target and their labels differ; else empty.
    """

    values: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    confusion: IntArray | None = None
    intervals: dict[str, Interval] = field(default_factory=dict)
    constant: str = ""

    def named(self, split: str) -> dict[str, float]:
        """Return the values under flat names such as `test.accuracy`, bounds as `test.accuracy_low` and `..._high`."""
        bounds = {
            f"{split}.{name}{side}": value
            for name, interval in self.intervals.items()
            for side, value in zip(BOUNDS, interval, strict=True)
        }
        return {f"{split}.{name}": value for name, value in self.values.items()} | bounds


@dataclass(frozen=True)
class Told:
    """Notes about metrics, to which measures append, the names of classes for them, and the class that areas are of."""

    class_names: Sequence[str] = ()
    positive: int | None = None
    notes: list[str] = field(default_factory=list)


def labelled_rows(labels: Array) -> BoolArray:
    """Return which targets carry a label [N]: not -1 for class numbers, finite in every column otherwise."""
    if np.issubdtype(labels.dtype, np.integer):
        return np.asarray(labels != UNLABELLED)
    return np.asarray(np.isfinite(labels).all(axis=tuple(range(1, labels.ndim))))


def metrics_of(
    logits: FloatArray,
    labels: Array,
    *,
    label_kind: LabelKind,
    names: Sequence[str] | None = None,
    intervals: bool = False,
    deciding: Deciding | None = None,
    class_names: Sequence[str] = (),
    positive: int | None = None,
) -> Metrics:
    """Score logits [N, C] against labels (int64 [N], float32 [N, C] multi-label, float32 [N] regression).

    `names` limits the work to some metrics; without it every metric of the label kind and the confusion counts are
    computed. With `intervals` each has its 95 % confidence interval. deciding: how decisions between classes are
    measured; None measures none. class_names: for notes. positive: the one class that areas under curves are of; None:
    class 1 of two, and of more the mean over classes.
    """
    kept = labelled_rows(labels)
    if not kept.all():  # they may be most of what a process holds
        logits, labels = logits[kept], labels[kept]
    values: dict[str, float] = {}
    told = Told(class_names, positive)
    measures = _MEASURES[label_kind]
    computed = {**measures.metrics, **measures.further}
    for name in computed if names is None else names:
        try:
            values[name] = computed[name](logits, labels, told)
        except UndefinedMetricError as reason:
            told.notes.append(f"{name} is undefined: {reason}")
    if deciding is not None and label_kind == "single" and len(labels):
        of_decisions, notes = decision_metrics(logits, labels, deciding, class_names=class_names)
        values |= of_decisions
        told.notes.extend(notes)
    counts = measures.confusion(logits, labels) if names is None and len(labels) else None
    bounds: dict[str, Interval] = {}
    if intervals:
        bounds = intervals_of(values, logits, labels, label_kind=label_kind, deciding=deciding, positive=positive)
    constant = measures.constant(logits, class_names) if names is None and _differ(labels, label_kind) else ""
    return Metrics(values, tuple(told.notes), counts, bounds, constant)


def class_means(label_kind: LabelKind, num_classes: int, positive: int | None = None) -> tuple[str, ...]:
    """Return the metrics that are means over the classes that the targets have. positive: see `metrics_of`."""
    if label_kind == "multi":
        return ("macro_f1", "roc_auc", "average_precision")
    if label_kind == "single":
        return (
            ("macro_f1",)
            if num_classes == _TWO or positive is not None
            else ("macro_f1", "roc_auc", "average_precision")
        )
    return ()


def _differ(labels: Array, label_kind: LabelKind) -> bool:
    """Return whether predictions should differ, as labels do; links' labels are 0, the place of the true target."""
    return len(labels) > 0 and (label_kind == "link" or bool((labels != labels[0]).any()))


def _constant_class(logits: FloatArray, class_names: Sequence[str]) -> str:
    guess = logits.argmax(axis=1)
    name = names_of_classes(class_names, logits.shape[1])[guess[0]]
    return f"class {name}" if (guess == guess[0]).all() else ""


def _constant_labels(logits: FloatArray, class_names: Sequence[str]) -> str:
    guess = logits > 0
    if (guess != guess[0]).any():
        return ""
    every = names_of_classes(class_names, logits.shape[1])
    return f"labels {listed([every[number] for number in np.flatnonzero(guess[0])])}" if guess[0].any() else "no label"


def _constant_number(logits: FloatArray, _: Sequence[str]) -> str:
    return f"{logits[0, 0]:.6g}" if (logits[:, 0] == logits[0, 0]).all() else ""


def _constant_score(logits: FloatArray, _: Sequence[str]) -> str:
    return "one score" if (logits == logits[0, 0]).all() else ""


def _predicted_class(logits: FloatArray, labels: Array) -> IntArray:
    if len(labels) == 0:
        raise UndefinedMetricError("no target has a label")
    return np.asarray(logits.argmax(axis=1), np.int64)


def _accuracy(logits: FloatArray, labels: Array, _: Told) -> float:
    return float((_predicted_class(logits, labels) == labels).mean())


def _macro_f1(logits: FloatArray, labels: Array, _: Told) -> float:
    """Return the mean F1 of the classes that occur among labels or predictions."""
    guess = _predicted_class(logits, labels)
    # targets of each class [C], predictions of it, and those that are both
    true, guessed, hits = (
        np.bincount(each, minlength=logits.shape[1]) for each in (labels, guess, guess[guess == labels])
    )
    occurs = true + guessed > 0
    return float((2 * hits[occurs] / (true + guessed)[occurs]).mean())


def _roc_auc(logits: FloatArray, labels: Array, told: Told) -> float:
    """One class, or class 1 of two: its area. Else: the mean over classes of one against the rest (softmax)."""
    return _class_mean(_area, *_columns(logits, labels, told), told, name="roc_auc")


def _average_precision(logits: FloatArray, labels: Array, told: Told) -> float:
    """One class, or class 1 of two: its own. Else: the mean over classes of one against the rest (softmax)."""
    return _class_mean(precision_area, *_columns(logits, labels, told), told, name="average_precision")


def _columns(logits: FloatArray, labels: Array, told: Told) -> tuple[Array, Array]:
    """Return the inputs of areas under curves. Raises UndefinedMetricError where the one class has no targets."""
    scores, truth = one_against_rest(logits, labels, told.positive)
    if told.positive is not None and logits.shape[1] > _TWO and len(labels) and not truth.any():
        name = names_of_classes(told.class_names, logits.shape[1])[told.positive]
        raise UndefinedMetricError(f"no target is of class {name}")
    return scores, truth


def _multi_precision(logits: FloatArray, labels: Array, told: Told) -> float:
    return _class_mean(precision_area, logits, labels > 0, told, name="average_precision")


def precision_area(scores: FloatArray, truth: Array) -> float:
    """Return the precision at each positive's score, on average; equal scores are one step."""
    _, flagged, hits = steps_of(scores, truth)
    return float((np.diff(hits, prepend=0) * (hits / flagged)).sum() / hits[-1])


def _brier(logits: FloatArray, labels: Array, _: Told) -> float:
    """Return the mean squared error of probabilities (Brier, 1950): of class 1, or summed over more classes."""
    _predicted_class(logits, labels)
    return float(squared_errors(logits, labels).mean())


def _calibration(logits: FloatArray, labels: Array, _: Told) -> float:
    """Two classes: of class 1's probability. More: of the predicted class's."""
    guess = _predicted_class(logits, labels)
    if logits.shape[1] == _TWO:
        return calibration_error(positive_probability(logits), labels == 1)
    share, _truth = one_against_rest(logits, labels)
    return calibration_error(share.max(axis=1), guess == labels)


def _class_mean(
    measure: Callable[[FloatArray, Array], float], scores: FloatArray, truth: Array, told: Told, *, name: str
) -> float:
    """Return the mean of a measure over the classes with both positives and negatives; a note names the others."""
    positives = truth.sum(axis=0)
    defined = (positives > 0) & (positives < len(truth))
    if not defined.any():
        raise UndefinedMetricError("the labels hold one class only" if len(truth) else "no target has a label")
    if not defined.all():
        every = names_of_classes(told.class_names, len(defined))
        names = [every[number] for number in np.flatnonzero(~defined)]
        classes = "1 class" if len(names) == 1 else f"{len(names)} classes"
        told.notes.append(f"{name} leaves out {classes} without both kinds of target: {listed(names, at_most=10)}")
    return float(np.mean([measure(scores[:, column], truth[:, column]) for column in np.flatnonzero(defined)]))


def _area(scores: FloatArray, truth: Array) -> float:
    """Return the share of pairs of a positive and a negative that are ranked right; ties count by half."""
    high, low = scores[truth], np.sort(scores[~truth])
    twice = np.searchsorted(low, high, "left").sum() + np.searchsorted(low, high, "right").sum()
    return float(twice / (2 * len(high) * len(low)))


def _subset_accuracy(logits: FloatArray, labels: Array, _: Told) -> float:
    _predicted_class(logits, labels)
    return float(((logits > 0) == (labels > 0)).all(axis=1).mean())


def _multi_f1(average: Literal["micro", "macro"]) -> Callable[[FloatArray, Array, Told], float]:
    def compute(logits: FloatArray, labels: Array, _: Told) -> float:
        _predicted_class(logits, labels)
        truth, guess = labels > 0, logits > 0
        # targets and predictions of each label together [C], and those that are both
        either, hits = truth.sum(axis=0) + guess.sum(axis=0), (truth & guess).sum(axis=0)
        if average == "micro":
            either, hits = either.sum(keepdims=True), hits.sum(keepdims=True)
        occurs = either > 0
        if not occurs.any():
            raise UndefinedMetricError("no label is positive and none is predicted")
        return float((2 * hits[occurs] / either[occurs]).mean())

    return compute


def _multi_auc(logits: FloatArray, labels: Array, told: Told) -> float:
    return _class_mean(_area, logits, labels > 0, told, name="roc_auc")


def _multi_auc_micro(logits: FloatArray, labels: Array, _: Told) -> float:
    return _class_mean(_area, logits.reshape(-1, 1), (labels > 0).reshape(-1, 1), Told(), name="roc_auc_micro")


def _mae(logits: FloatArray, labels: Array, _: Told) -> float:
    _predicted_class(logits, labels)
    return float(np.abs(_errors(logits, labels)).mean())


def _rmse(logits: FloatArray, labels: Array, _: Told) -> float:
    _predicted_class(logits, labels)
    return float(np.sqrt(np.square(_errors(logits, labels)).mean()))


def _errors(logits: FloatArray, labels: Array) -> FloatArray:
    return np.asarray(logits[:, 0].astype(np.float64) - labels)


def _mrr(logits: FloatArray, labels: Array, _: Told) -> float:
    _predicted_class(logits, labels)
    return float((1 / ranks_of(logits)).mean())


def _hits(most: int) -> Callable[[FloatArray, Array, Told], float]:
    def compute(logits: FloatArray, labels: Array, _: Told) -> float:
        _predicted_class(logits, labels)
        if logits.shape[1] <= most:
            raise UndefinedMetricError(
                f"an edge has a rank among {logits.shape[1]} pairs, so every rank is within {most}"
            )
        return float((ranks_of(logits) <= most).mean())

    return compute


def _link_auc(logits: FloatArray, labels: Array, _: Told) -> float:
    truth = np.zeros(logits.shape, bool)
    truth[:, 0] = True
    return _class_mean(_area, logits.reshape(-1, 1), truth.reshape(-1, 1), Told(), name="roc_auc")


def _class_confusion(logits: FloatArray, labels: Array) -> IntArray | None:
    num_classes = logits.shape[1]
    if num_classes > _CONFUSION_CLASSES:
        return None
    counts = np.bincount(labels * num_classes + logits.argmax(axis=1), minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def _multi_confusion(logits: FloatArray, labels: Array) -> IntArray | None:
    if logits.shape[1] > _CONFUSION_CLASSES:
        return None
    truth, guess = labels > 0, logits > 0
    kinds = [~truth & ~guess, ~truth & guess, truth & ~guess, truth & guess]
    # counts of each kind and label [4, C]
    counts = np.array([kind.sum(axis=0) for kind in kinds], np.int64)
    return np.ascontiguousarray(counts.T).reshape(-1, 2, 2)


def _no_confusion(logits: FloatArray, labels: Array) -> None:
    return None


@dataclass(frozen=True)
class _Measures:
    """Measures for predictions of one label kind: its metrics by name, and its confusion counts.

    constant: names the prediction that all targets [N > 0] have; empty where predictions differ. further: metrics that
    choose no epoch.
    """

    metrics: dict[str, Callable[[FloatArray, Array, Told], float]]
    constant: Callable[[FloatArray, Sequence[str]], str]
    confusion: Callable[[FloatArray, Array], IntArray | None] = _no_confusion
    further: dict[str, Callable[[FloatArray, Array, Told], float]] = field(default_factory=dict)


_MEASURES: dict[LabelKind, _Measures] = {
    "single": _Measures(
        {
            "accuracy": _accuracy,
            "micro_f1": _accuracy,
            "macro_f1": _macro_f1,
            "roc_auc": _roc_auc,
            "average_precision": _average_precision,
            "brier": _brier,
        },
        _constant_class,
        _class_confusion,
        {"calibration_error": _calibration},
    ),
    "multi": _Measures(
        {
            "accuracy": _subset_accuracy,
            "micro_f1": _multi_f1("micro"),
            "macro_f1": _multi_f1("macro"),
            "roc_auc": _multi_auc,
            "roc_auc_micro": _multi_auc_micro,
            "average_precision": _multi_precision,
        },
        _constant_labels,
        _multi_confusion,
    ),
    "regression": _Measures({"mae": _mae, "rmse": _rmse}, _constant_number),
    "link": _Measures(
        {
            "mrr": _mrr,
            **{f"hits_at_{k}": _hits(k) for k in HITS},
            "roc_auc": _link_auc,
        },
        _constant_score,
    ),
    "none": _Measures({}, lambda *_: ""),
}
