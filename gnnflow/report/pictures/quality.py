"""Predictions against labels, by label kind.

What training stored about all targets is drawn where there is some. The other pictures are drawn from a sample of one
split's targets, and the caption has its size. Where a node has several labels, all are
pooled into one curve (micro-average), because many curves could not be distinguished.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.labels import LabelKind
from gnnflow.report.formats import count_text, percent_text, score_text, sentence
from gnnflow.report.inputs import Array, FloatArray, PredictionSample, ReportInputs
from gnnflow.report.pictures.canvas import HALF_WIDTH, Picture, Swatch, colour, dots, draw, plain_axes
from gnnflow.report.pictures.classes import class_pictures
from gnnflow.report.pictures.confusion import SQUARE_HEIGHT, confusion_picture
from gnnflow.report.pictures.decisions import bins_table, decision_pictures, paint_shares
from gnnflow.report.pictures.ranks import error_picture, link_pictures

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

_MOST_ROC_POINTS = 250
_MOST_DOTS = 1500
_TWO_CLASSES = 2


def prediction_pictures(inputs: ReportInputs) -> tuple[Picture, ...]:
    """Return the pictures of the label kind, or words where only training targets have labels."""
    told = decision_pictures(inputs) or link_pictures(inputs)
    classes = class_pictures(inputs) or (_sampled_picture(inputs),)
    return told or (*classes, *_certainty_picture(inputs), *error_picture(inputs))


def _sampled_picture(inputs: ReportInputs) -> Picture:
    sample, painter = inputs.predictions, _PAINTERS.get(inputs.label_kind)
    if inputs.confusion is not None and inputs.scores is not None:  # counts of all targets of a split
        return confusion_picture(inputs, split=inputs.scores.split)
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
    return confusion_picture(inputs, split=sample.split)


def _certainty_picture(inputs: ReportInputs) -> tuple[Picture, ...]:
    """Return the probabilities of predicted classes, for right and wrong predictions; empty without them."""
    scores = inputs.scores
    if scores is None or not scores.bins:
        return ()
    names = ("wrong", "right")
    caption = (
        "The probability of the predicted class, for predictions that are right and for wrong ones; the bars of each "
        "colour add up to one. Where wrong ones lie far left of right ones, the probability says when to trust a "
        "prediction."
    )
    return (
        Picture(
            key="certainty",
            title="How sure the model is when it is right and when it is wrong",
            alt=f"Histograms of probabilities. {caption}",
            caption=caption,
            svg=draw(
                "certainty",
                partial(
                    paint_shares,
                    bins=scores.bins,
                    x_label="probability of the predicted class",
                    roles=("warm", "accent"),
                ),
                width=HALF_WIDTH,
                height=SQUARE_HEIGHT,
            ),
            legend=(Swatch("warm", "area", "wrong"), Swatch("accent", "area", "right")),
            table=bins_table(scores, names),
        ),
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
            height=SQUARE_HEIGHT,
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
            height=SQUARE_HEIGHT,
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
    "link": "the ranks of links, since an earlier version trained the model",
    "none": "predictions without labels",
}
