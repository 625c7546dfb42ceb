"""Confusion of classes: the matrix of few classes, the most frequent confusions of many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.report.formats import count_text, percent_text, score_text, short_count
from gnnflow.report.inputs import Array, FloatArray, ReportInputs
from gnnflow.report.pictures.bars import Bar, draw_bars
from gnnflow.report.pictures.canvas import HALF_WIDTH, Picture, Swatch, Table, colour, draw, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SQUARE_HEIGHT = 360.0
MOST_CLASSES = 10
_MOST_CONFUSIONS = 10
_LONGEST_NAME = 22
_LARGEST_COUNT = 100_000
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


def confusion_of(inputs: ReportInputs) -> Confusion | None:
    """Return the confusion of classes over all targets, or the sampled ones; None where none has a single class."""
    if inputs.confusion is not None and LABEL_KINDS[inputs.label_kind].is_class:
        counts = np.asarray(inputs.confusion)
        return Confusion(counts, tuple(inputs.class_name(index) for index in range(len(counts))))
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


def confusion_picture(inputs: ReportInputs, *, split: str, verb: str = "predicted", more: str = "") -> Picture:
    """Return the confusion matrix, or the most frequent confusions where there are more than MOST_CLASSES classes.

    verb: how classes were chosen. more: a sentence of the caption.
    """
    whole = confusion_of(inputs)
    assert whole is not None
    total, right = int(whole.counts.sum()), int(np.trace(whole.counts))
    worst = _worst_confusion(whole, verb)
    summary = f"{count_text(right)} of {count_text(total)} {split} targets are {verb} correctly"
    # the page has a table of the classes where training stored their scores
    table = None if inputs.scores is not None and inputs.scores.classes else class_table(whole)
    if len(whole.names) > MOST_CLASSES:
        text = " ".join(filter(None, (f"{summary} ({percent_text(right / total)}).", worst, more)))
        return _top_confusions(whole, summary=text, verb=verb, table=table)
    known = " ".join(filter(None, (worst, more)))
    paint = partial(paint_confusion, shown=whole, x_label=f"{verb} class")
    return Picture(
        key="quality",
        title="Confused classes",
        alt=f"Confusion matrix of {len(whole.names)} classes: {summary}. {known}",
        caption=f"{summary} ({percent_text(right / total)}). {known} A row's shades add up to one.",
        svg=draw("quality", paint, width=HALF_WIDTH, height=SQUARE_HEIGHT),
        legend=(Swatch("accent", "area", "correct"), Swatch("warm", "area", f"{verb} as another class")),
        table=table,
    )


def _top_confusions(whole: Confusion, *, summary: str, verb: str, table: Table | None) -> Picture:
    wrong = whole.counts - np.diag(np.diag(whole.counts))
    places = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSIONS]
    pairs = [divmod(int(place), len(whole.names)) for place in places if wrong.flat[place]]
    bars = [
        Bar(
            f"{_short(whole.names[true], limit=_LONGEST_NAME)} as {_short(whole.names[guess], limit=_LONGEST_NAME)}",
            float(wrong[true, guess]),
            count_text(wrong[true, guess]),
            "warm",
        )
        for true, guess in pairs
    ]
    if not bars:
        return Picture(key="quality", title="Confused classes", missing=summary)
    return Picture(
        key="quality",
        title="Most frequent confusions",
        alt=f"Bars of the {len(bars)} most frequent confusions of {len(whole.names)} classes. {summary}",
        caption=f"{summary} Bars count targets of the first class that are {verb} as the second.",
        svg=draw_bars("quality", bars, label="targets"),
        table=table,
    )


def _worst_confusion(shown: Confusion, verb: str) -> str:
    wrong = shown.counts - np.diag(np.diag(shown.counts))
    if not wrong.any():
        return f"No class is {verb} as another."
    row, column = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    share = wrong[row, column] / shown.counts[row].sum()
    return (
        f"Most often {shown.names[row]} is {verb} as {shown.names[column]}: "
        f"{count_text(wrong[row, column])} times, {percent_text(float(share))} of its targets."
    )


def class_table(shown: Confusion) -> Table:
    """Return targets, precision and recall of each class."""
    support = shown.counts.sum(axis=1)
    rows = [
        (name, count_text(number), score_text(float(precision)), score_text(float(recall)))
        for name, number, precision, recall in zip(shown.names, support, shown.precision, shown.recall, strict=True)
    ]
    return Table(summary="Classes in figures", head=("class", "targets", "precision", "recall"), rows=rows)


def paint_confusion(figure: Figure, *, shown: Confusion, x_label: str = "predicted class") -> None:
    """Draw a matrix of counts, shaded by share of the row."""
    axes = figure.add_subplot()
    plain_axes(axes, x_label=x_label, y_label="true class", grid="")
    size = len(shown.names)
    shares = shown.counts / np.maximum(shown.counts.sum(axis=1, keepdims=True), 1)
    for row, column in np.argwhere(shown.counts > 0):
        _paint_cell(axes, shown, row=int(row), column=int(column), share=float(shares[row, column]))
    names = [_short(name, limit=_LONGEST_NAME) for name in shown.names]
    tilt = 0 if max(map(len, names)) <= max(2, 36 // size) else 40
    axes.set_xticks(
        range(size),
        names,
        rotation=tilt,
        ha="right" if tilt else "center",
        va="top",
        rotation_mode="anchor",
    )
    axes.set_yticks(range(size), names)
    axes.tick_params(length=0, labelsize=8.5)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_aspect("equal")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _cell_text(count: int) -> str:
    """Return a count that fits into a cell."""
    return count_text(count) if count < _LARGEST_COUNT else short_count(float(count))


def _paint_cell(axes: Axes, shown: Confusion, *, row: int, column: int, share: float) -> None:
    from matplotlib.patches import Rectangle

    role = "accent" if row == column else "warm"
    shade = 0.08 + 0.92 * share
    corner = (column - 0.48, row - 0.48)
    axes.add_patch(Rectangle(corner, 0.96, 0.96, facecolor=colour(role), alpha=shade, linewidth=0))
    axes.text(
        column,
        row,
        _cell_text(int(shown.counts[row, column])),
        ha="center",
        va="center_baseline",
        fontsize=8.5,
        fontweight="bold" if row == column else "normal",
        color=colour("onaccent" if share > _STRONG else "ink"),
    )


def _short(name: str, *, limit: int) -> str:
    text = " ".join(name.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
