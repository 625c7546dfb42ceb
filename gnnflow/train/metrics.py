"""How good scores are: scikit-learn's metrics over a whole split at once, under fixed names.

A metric that the labels do not define is left out and a note says why; a number is never made up. Unlabelled
targets (-1, or a value that is not finite) do not count.

Shapes: N targets, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from sklearn import metrics as sk

from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.labels import BOUNDS, LABEL_KINDS, UNLABELLED, LabelKind
from gnnflow.train.intervals import Interval, intervals_of, one_against_rest, ranks_of

_CONFUSION_CLASSES = 200  # more make a table too large to read: 200 x 200 counts are 320 kB


class UndefinedMetricError(ValueError):
    """The labels at hand do not define the metric; the text says why."""


@dataclass(frozen=True)
class Scores:
    """Metrics by name, a note for each that is undefined or partial, the confusion counts, and intervals if asked for.

    confusion: int64 [C, C] (row: label, column: prediction) or, for multi-label, [C, 2, 2]; None for
    regression.
    """

    values: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    confusion: IntArray | None = None
    intervals: dict[str, Interval] = field(default_factory=dict)

    def named(self, split: str) -> dict[str, float]:
        """Return the values under flat names such as `test.accuracy`, bounds as `test.accuracy_low` and `..._high`."""
        bounds = {
            f"{split}.{name}{side}": value
            for name, interval in self.intervals.items()
            for side, value in zip(BOUNDS, interval, strict=True)
        }
        return {f"{split}.{name}": value for name, value in self.values.items()} | bounds


def labelled_rows(labels: Array) -> npt.NDArray[np.bool_]:
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
) -> Scores:
    """Score logits [N, C] against labels (int64 [N], float32 [N, C] multi-label, float32 [N] regression).

    `names` limits the work to some metrics; without it every metric of the label kind and the confusion counts are
    computed. With `intervals` each has its 95 % confidence interval.
    """
    kept = labelled_rows(labels)
    logits, labels = logits[kept], labels[kept]
    values: dict[str, float] = {}
    notes: list[str] = []
    measures = _MEASURES[label_kind]
    for name in LABEL_KINDS[label_kind].metrics if names is None else names:
        try:
            values[name] = measures.metrics[name](logits, labels, notes)
        except UndefinedMetricError as reason:
            notes.append(f"{name} is undefined: {reason}")
    counts = measures.confusion(logits, labels) if names is None and len(labels) else None
    bounds = intervals_of(values, logits, labels, label_kind=label_kind) if intervals else {}
    return Scores(values, tuple(notes), counts, bounds)


def _predicted_class(logits: FloatArray, labels: Array) -> IntArray:
    if len(labels) == 0:
        raise UndefinedMetricError("no target has a label")
    return np.asarray(logits.argmax(axis=1), np.int64)


def _accuracy(logits: FloatArray, labels: Array, _: list[str]) -> float:
    return float(sk.accuracy_score(labels, _predicted_class(logits, labels)))


def _f1(average: str) -> Callable[[FloatArray, Array, list[str]], float]:
    def compute(logits: FloatArray, labels: Array, _: list[str]) -> float:
        return float(sk.f1_score(labels, _predicted_class(logits, labels), average=average))

    return compute


def _roc_auc(logits: FloatArray, labels: Array, notes: list[str]) -> float:
    """Two classes: the area for class 1. More: the mean over classes of one against the rest (softmax)."""
    return _macro_auc(*one_against_rest(logits, labels), notes)


def _macro_auc(scores: FloatArray, truth: Array, notes: list[str]) -> float:
    """Return the mean area over the classes with both positives and negatives; a note names the others."""
    positives = truth.sum(axis=0)
    defined = (positives > 0) & (positives < len(truth))
    if not defined.any():
        raise UndefinedMetricError("the labels hold one class only" if len(truth) else "no target has a label")
    if not defined.all():
        left_out = ", ".join(map(str, np.flatnonzero(~defined)[:10]))
        notes.append(f"roc_auc leaves out {int((~defined).sum())} classes without both kinds of target: {left_out}")
    return float(sk.roc_auc_score(truth[:, defined], scores[:, defined], average="macro"))


def _subset_accuracy(logits: FloatArray, labels: Array, _: list[str]) -> float:
    _predicted_class(logits, labels)
    return float(((logits > 0) == (labels > 0)).all(axis=1).mean())


def _multi_f1(average: str) -> Callable[[FloatArray, Array, list[str]], float]:
    def compute(logits: FloatArray, labels: Array, _: list[str]) -> float:
        _predicted_class(logits, labels)
        value = float(sk.f1_score(labels > 0, logits > 0, average=average, zero_division=np.nan))
        if np.isnan(value):
            raise UndefinedMetricError("no label is positive and none is predicted")
        return value

    return compute


def _multi_auc(logits: FloatArray, labels: Array, notes: list[str]) -> float:
    return _macro_auc(logits, labels > 0, notes)


def _multi_auc_micro(logits: FloatArray, labels: Array, _: list[str]) -> float:
    return _macro_auc(logits.reshape(-1, 1), (labels > 0).reshape(-1, 1), [])


def _mae(logits: FloatArray, labels: Array, _: list[str]) -> float:
    _predicted_class(logits, labels)
    return float(sk.mean_absolute_error(labels, logits[:, 0]))


def _rmse(logits: FloatArray, labels: Array, _: list[str]) -> float:
    _predicted_class(logits, labels)
    return float(sk.root_mean_squared_error(labels, logits[:, 0]))


def _mrr(logits: FloatArray, labels: Array, _: list[str]) -> float:
    _predicted_class(logits, labels)
    return float((1 / ranks_of(logits)).mean())


def _hits(most: int) -> Callable[[FloatArray, Array, list[str]], float]:
    def compute(logits: FloatArray, labels: Array, _: list[str]) -> float:
        _predicted_class(logits, labels)
        if logits.shape[1] <= most:
            raise UndefinedMetricError(f"an edge is among {logits.shape[1]} pairs: every rank is within {most}")
        return float((ranks_of(logits) <= most).mean())

    return compute


def _link_auc(logits: FloatArray, labels: Array, _: list[str]) -> float:
    truth = np.zeros(logits.shape, bool)
    truth[:, 0] = True
    return _macro_auc(logits.reshape(-1, 1), truth.reshape(-1, 1), [])


def _class_confusion(logits: FloatArray, labels: Array) -> IntArray | None:
    num_classes = logits.shape[1]
    if num_classes > _CONFUSION_CLASSES:
        return None
    counts = sk.confusion_matrix(labels, logits.argmax(axis=1), labels=np.arange(num_classes))
    return np.asarray(counts, np.int64)


def _multi_confusion(logits: FloatArray, labels: Array) -> IntArray | None:
    if logits.shape[1] > _CONFUSION_CLASSES:
        return None
    return np.asarray(sk.multilabel_confusion_matrix(labels > 0, logits > 0), np.int64)


def _no_confusion(logits: FloatArray, labels: Array) -> None:
    return None


@dataclass(frozen=True)
class _Measures:
    """How predictions of one label kind are measured: its metrics by name, and its confusion counts."""

    metrics: dict[str, Callable[[FloatArray, Array, list[str]], float]]
    confusion: Callable[[FloatArray, Array], IntArray | None] = _no_confusion


_MEASURES: dict[LabelKind, _Measures] = {
    "single": _Measures(
        {"accuracy": _accuracy, "micro_f1": _f1("micro"), "macro_f1": _f1("macro"), "roc_auc": _roc_auc},
        _class_confusion,
    ),
    "multi": _Measures(
        {
            "accuracy": _subset_accuracy,
            "micro_f1": _multi_f1("micro"),
            "macro_f1": _multi_f1("macro"),
            "roc_auc": _multi_auc,
            "roc_auc_micro": _multi_auc_micro,
        },
        _multi_confusion,
    ),
    "regression": _Measures({"mae": _mae, "rmse": _rmse}),
    "link": _Measures(
        {
            "mrr": _mrr,
            "hits_at_1": _hits(1),
            "hits_at_10": _hits(10),
            "hits_at_50": _hits(50),
            "roc_auc": _link_auc,
        }
    ),
    "none": _Measures({}),
}
