"""Predictions against labels: confusion matrix, ROC curve or scatter plot, by label kind.

All are drawn from a sample of one split's targets; the caption has its size. Where a node has several labels, all are
pooled into one curve (micro-average), because many curves could not be distinguished.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.labels import LABEL_KINDS, LabelKind
from gnnflow.report.formats import count_text, percent_text, score_text, sentence, short_count
from gnnflow.report.inputs import Array, FloatArray, PredictionSample, ReportInputs
from gnnflow.report.pictures.canvas import HALF_WIDTH, Picture, Swatch, Table, colour, dots, draw, plain_axes

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SQUARE_HEIGHT = 360.0
_MOST_CLASSES = 20
_MOST_COUNTED_CLASSES = 14  # beyond it, cells are too small for their count
_MOST_ROC_POINTS = 250
_MOST_DOTS = 1500
_LONGEST_NAME = 22
_STRONG = 0.6  # the share from which a cell is dark enough for light text
_TWO_CLASSES = 2


@dataclass(frozen=True)
class Confusion:
    """Counts [C, C] of (true, predicted) with the classes' names."""

    counts: Array
    names: tuple[str, ...]

    @property
    def recall(self) -> FloatArray:
        """Share of each true class that was found [C]; 0 where it has no targets."""
        return np.asarray(np.diag(self.counts) / np.maximum(self.counts.sum(axis=1), 1))

    @property
    def precision(self) -> FloatArray:
        """Share of each predicted class that was right [C]; 0 where it was never predicted."""
        return np.asarray(np.diag(self.counts) / np.maximum(self.counts.sum(axis=0), 1))


def prediction_picture(inputs: ReportInputs) -> Picture:
    """Return the picture of the label kind, or words where only training targets have labels."""
    sample, painter = inputs.predictions, _PAINTERS.get(inputs.label_kind)
    if painter is None:
        words = f"There is no picture of {_UNDRAWN[inputs.label_kind]}."
    elif sample is None or len(sample.labels) == 0:
        words = "No labelled target outside the train split was scored, so predictions cannot be checked."
    else:
        return painter(inputs, sample)
    return Picture(key="quality", title="Predictions against labels", missing=words)


def _class_picture(inputs: ReportInputs, sample: PredictionSample) -> Picture:
    """Return the confusion matrix of more than two classes, the ROC curve of two."""
    known = np.asarray(sample.labels) >= 0
    labels, scores = np.asarray(sample.labels)[known].astype(np.int64), np.asarray(sample.scores)[known]
    if not len(labels):
        words = f"None of the {sample.split} targets has a label, so predictions cannot be checked."
        return Picture(key="quality", title="Predictions against labels", missing=words)
    if scores.ndim == 1 or scores.shape[1] <= _TWO_CLASSES:
        positive = scores if scores.ndim == 1 else scores[:, -1]
        return _roc_picture(labels, positive, sample=sample, pooled=False)
    return _confusion_picture(inputs, sample=sample)


def confusion_of(inputs: ReportInputs) -> Confusion | None:
    """Return the confusion of classes over the sampled targets; None where a target has no single class."""
    sample = inputs.predictions
    if sample is None or not LABEL_KINDS[inputs.label_kind].is_class or np.ndim(sample.scores) != _TWO_CLASSES:
        return None
    labels = np.asarray(sample.labels)
    known = labels >= 0
    classes = np.shape(sample.scores)[1]
    if classes < _TWO_CLASSES or not known.any():
        return None
    guesses = np.argmax(np.asarray(sample.scores)[known], axis=1)
    width = max(classes, int(labels.max()) + 1)
    flat = np.bincount(labels[known].astype(np.int64) * width + guesses, minlength=width * width)
    return Confusion(flat.reshape(width, width), tuple(inputs.class_name(index) for index in range(width)))


def pool_rare(confusion: Confusion, *, limit: int) -> Confusion:
    """Return the limit - 1 classes with most targets and the others pooled; all classes where they fit."""
    if len(confusion.names) <= limit:
        return confusion
    support = confusion.counts.sum(axis=1)
    kept = np.sort(np.argsort(-support, kind="stable")[: limit - 1])
    group = np.full(len(support), limit - 1)
    group[kept] = np.arange(limit - 1)
    counts = np.zeros((limit, limit), dtype=np.int64)
    np.add.at(counts, (group[:, None], group[None, :]), confusion.counts)
    pooled = len(support) - limit + 1
    return Confusion(counts, (*(confusion.names[index] for index in kept), f"{pooled} others"))


def _confusion_picture(inputs: ReportInputs, *, sample: PredictionSample) -> Picture:
    whole = confusion_of(inputs)
    assert whole is not None
    shown = pool_rare(whole, limit=_MOST_CLASSES)
    total, right = int(whole.counts.sum()), int(np.trace(whole.counts))
    worst = _worst_confusion(whole)
    pooled = " The rarest classes are pooled." if shown is not whole else ""
    summary = f"{count_text(right)} of {count_text(total)} sampled {sample.split} targets are correct"
    return Picture(
        key="quality",
        title="Confused classes",
        alt=f"Confusion matrix of {len(shown.names)} classes: {summary}. {worst}",
        caption=f"{summary} ({percent_text(right / total)}). {worst}{pooled} A row's shades add up to one.",
        svg=draw("quality", partial(_paint_confusion, shown=shown), width=HALF_WIDTH, height=_SQUARE_HEIGHT),
        legend=(Swatch("accent", "area", "correct"), Swatch("warm", "area", "predicted as another class")),
        table=_class_table(shown),
    )


def _worst_confusion(shown: Confusion) -> str:
    wrong = shown.counts - np.diag(np.diag(shown.counts))
    if not wrong.any():
        return "No class is predicted as another."
    row, column = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    share = wrong[row, column] / shown.counts[row].sum()
    return (
        f"Most often {shown.names[row]} is predicted as {shown.names[column]}: "
        f"{count_text(wrong[row, column])} times, {percent_text(float(share))} of its targets."
    )


def _class_table(shown: Confusion) -> Table:
    support = shown.counts.sum(axis=1)
    rows = [
        (name, count_text(number), score_text(float(precision)), score_text(float(recall)))
        for name, number, precision, recall in zip(shown.names, support, shown.precision, shown.recall, strict=True)
    ]
    return Table(summary="Classes in figures", head=("class", "targets", "precision", "recall"), rows=rows)


def _paint_confusion(figure: Figure, *, shown: Confusion) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="predicted class", y_label="true class", grid="")
    size = len(shown.names)
    shares = shown.counts / np.maximum(shown.counts.sum(axis=1, keepdims=True), 1)
    for row, column in np.argwhere(shown.counts > 0):
        _paint_cell(axes, shown, row=int(row), column=int(column), share=float(shares[row, column]))
    many = size > _MOST_COUNTED_CLASSES
    names = [_short(name, limit=_LONGEST_NAME // 2 if many else _LONGEST_NAME) for name in shown.names]
    tilt = 0 if max(map(len, names)) <= max(2, 36 // size) else 40 + 50 * many
    axes.set_xticks(
        range(size),
        names,
        rotation=tilt,
        ha="right" if tilt else "center",
        va="center" if many else "top",
        rotation_mode="anchor",
    )
    axes.set_yticks(range(size), names)
    axes.tick_params(length=0, labelsize=7 if many else 8.5)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_aspect("equal")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _paint_cell(axes: Axes, shown: Confusion, *, row: int, column: int, share: float) -> None:
    from matplotlib.patches import Rectangle

    role = "accent" if row == column else "warm"
    shade = 0.08 + 0.92 * share
    corner = (column - 0.48, row - 0.48)
    axes.add_patch(Rectangle(corner, 0.96, 0.96, facecolor=colour(role), alpha=shade, linewidth=0))
    if len(shown.names) <= _MOST_COUNTED_CLASSES:
        axes.text(
            column,
            row,
            short_count(float(shown.counts[row, column])),
            ha="center",
            va="center_baseline",
            fontsize=8.5,
            fontweight="bold" if row == column else "normal",
            color=colour("onaccent" if share > _STRONG else "ink"),
        )


def _roc_picture(labels: Array, scores: Array, *, sample: PredictionSample, pooled: bool) -> Picture:
    title = "ROC curve, all labels pooled" if pooled else "ROC curve"
    truth = np.asarray(labels) > 0
    usable = np.isfinite(scores)
    truth, scores = truth[usable], np.asarray(scores, dtype=np.float64)[usable]
    if truth.all() or not truth.any():
        words = f"The sampled {sample.split} targets are all of one kind, and a ROC curve needs both."
        return Picture(key="quality", title=title, missing=words)
    curve = roc_curve(truth, scores)
    area = float(np.trapezoid(curve.true_rate, curve.false_rate))
    micro = "Micro-average: every (target, label) pair counts once. " if pooled else ""
    summary = f"{count_text(len(sample.labels))} sampled {sample.split} targets, {percent_text(truth.mean())} positive"
    return Picture(
        key="quality",
        title=title,
        alt=f"ROC curve with an area of {score_text(area)} under it, over {summary}.",
        caption=f"{micro}Area under the curve {score_text(area)} over {summary}; guessing gives 0.5.",
        svg=draw(
            "quality",
            partial(_paint_roc, curve=curve, area=area),
            width=HALF_WIDTH,
            height=_SQUARE_HEIGHT,
        ),
        legend=(Swatch("accent", "line", "model"), Swatch("quiet", "dash", "guessing")),
    )


class RocCurve(NamedTuple):
    """The corners of a ROC curve, from (0, 0) to (1, 1)."""

    false_rate: FloatArray
    true_rate: FloatArray


def roc_curve(truth: Array, scores: FloatArray) -> RocCurve:
    """Return the ROC curve of scores. truth: whether each is of a positive.

    Equal scores are one step, and points on a straight line between others are left out.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    # positives and negatives down to each distinct score, after none [K + 1]
    true = np.append(0, np.cumsum(truth[order])[ends])
    false = np.append(0, 1 + ends) - true
    bends = np.flatnonzero(np.diff(true, 2) | np.diff(false, 2)) + 1
    kept = np.concatenate([[0], bends, [len(true) - 1]])
    return RocCurve(false[kept] / false[-1], true[kept] / true[-1])


def _paint_roc(figure: Figure, *, curve: RocCurve, area: float) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="false positive rate (share)", y_label="true positive rate (share)", grid="both")
    kept = np.unique(np.linspace(0, len(curve.false_rate) - 1, _MOST_ROC_POINTS).astype(int))
    x, y = curve.false_rate[kept], curve.true_rate[kept]
    axes.fill_between(x, y, color=colour("accent"), alpha=0.1, linewidth=0)
    axes.plot([0, 1], [0, 1], color=colour("quiet"), linestyle=(0, (3, 2)), linewidth=1.4)
    axes.plot(x, y, color=colour("accent"), linewidth=2.2)
    axes.text(0.96, 0.08, f"AUC {score_text(area)}", ha="right", fontsize=15, fontweight="bold")
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.01)
    axes.set_aspect("equal")


def _pooled_roc_picture(_: ReportInputs, sample: PredictionSample) -> Picture:
    return _roc_picture(np.ravel(sample.labels), np.ravel(sample.scores), sample=sample, pooled=True)


def _scatter_picture(_: ReportInputs, sample: PredictionSample) -> Picture:
    title = "Predicted against true"
    true, guess = np.ravel(sample.labels).astype(float), np.ravel(sample.scores).astype(float)
    usable = np.isfinite(true) & np.isfinite(guess)
    true, guess = true[usable], guess[usable]
    if not len(true):
        words = f"None of the sampled {sample.split} targets has both a finite label and a finite prediction."
        return Picture(key="quality", title=title, missing=words)
    spread = float(np.sum((true - true.mean()) ** 2))
    error = float(np.abs(true - guess).mean())
    fit = f", R² {score_text(1 - float(np.sum((true - guess) ** 2)) / spread)}" if spread > 0 else ""
    summary = f"{count_text(len(true))} sampled {sample.split} targets: mean absolute error {score_text(error)}{fit}"
    if len(true) > _MOST_DOTS:
        chosen = np.sort(np.random.default_rng(0).permutation(len(true))[:_MOST_DOTS])
        true, guess = true[chosen], guess[chosen]
    return Picture(
        key="quality",
        title=title,
        alt=f"Scatter of predictions against labels. {sentence(summary)}.",
        caption=f"{sentence(summary)}. On the dashed line a prediction is exact.",
        svg=draw(
            "quality",
            partial(_paint_scatter, true=true, guess=guess),
            width=HALF_WIDTH,
            height=_SQUARE_HEIGHT,
        ),
        legend=(Swatch("accent", "dot", "a target"), Swatch("quiet", "dash", "exact")),
    )


def _paint_scatter(figure: Figure, *, true: FloatArray, guess: FloatArray) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="true value (label's unit)", y_label="predicted value (label's unit)", grid="both")
    low, high = float(min(true.min(), guess.min())), float(max(true.max(), guess.max()))
    room = 0.04 * (high - low) or 1.0
    axes.plot([low, high], [low, high], color=colour("quiet"), linestyle=(0, (3, 2)), linewidth=1.4)
    dots(axes, np.column_stack([true, guess]), role="accent", size=3.2, alpha=0.6)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(low - room, high + room)
    axes.set_aspect("equal")


_PAINTERS: dict[LabelKind, Callable[[ReportInputs, PredictionSample], Picture]] = {
    "single": _class_picture,
    "multi": _pooled_roc_picture,
    "regression": _scatter_picture,
}

_UNDRAWN: dict[LabelKind, str] = {
    "link": "pairs of nodes; how they rank among others is under Scores",
    "none": "predictions without labels",
}


def _short(name: str, *, limit: int) -> str:
    text = " ".join(name.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
