"""Decisions for one class: the confusion at the threshold, precision and recall, scores by class, and gains.

All come from counts over every target of the split that training stored (`gnnflow.graph.score_facts`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.score_facts import BINS, ScoreFacts
from gnnflow.report.formats import count_text, percent_text, score_text
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.pictures.canvas import HALF_WIDTH, Picture, Swatch, Table, colour, draw, plain_axes
from gnnflow.report.pictures.confusion import Confusion, paint_confusion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 300.0
_USUAL_FIRST = 100


def decision_pictures(inputs: ReportInputs) -> tuple[Picture, ...]:
    """Return the pictures of two classes; empty where labels are of other kinds."""
    scores = inputs.scores
    if scores is None or not scores.steps or scores.classes:
        return ()
    return (
        threshold_picture(inputs, scores),
        _precision_picture(inputs, scores),
        _score_picture(inputs, scores),
        gains_picture(inputs, scores),
    )


def list_gain(inputs: ReportInputs) -> tuple[int, float] | None:
    """Return the length of the list that people act on and its targets of class 1; None where it is not known.

    It is as long as `task.decide.k`, or 100; the longest known one below that in a small split.
    """
    scores, wished = inputs.scores, inputs.setting("task.decide.k") or _USUAL_FIRST
    known = [each for each in scores.gains if each[0] <= wished] if scores is not None and scores.positives else []
    return known[-1] if known else None


def gains_text(inputs: ReportInputs) -> str:
    """Return how many targets of class 1 the first of the list hold, as a sentence; empty where it is not known."""
    scores, gain = inputs.scores, list_gain(inputs)
    if scores is None or gain is None:
        return ""
    k, hits = gain
    chance = k * scores.positives / scores.targets
    return (
        f"The first {count_text(k)} of {count_text(scores.targets)} {scores.split} targets by score contain "
        f"{hits_text(hits)} of the {count_text(scores.positives)} of class {inputs.class_name(scores.positive)}; "
        f"in random order they would contain about {count_text(round(chance))}."
    )


def hits_text(hits: float) -> str:
    """Return a count; 'about' before one that equal scores share."""
    return count_text(hits) if float(hits).is_integer() else f"about {count_text(round(hits))}"


def threshold_picture(inputs: ReportInputs, scores: ScoreFacts, *, key: str = "quality") -> Picture:
    """Return the confusion of labels and decisions for a class."""
    title, one = "Decisions at the threshold", inputs.class_name(scores.positive)
    if not scores.decided:
        why = inputs.decision.why if inputs.decision is not None else "training stored none"
        return Picture(key=key, title=title, missing=f"There is no threshold: {why}.")
    counts = np.array(scores.decided)
    flagged, found = int(counts[:, 1].sum()), int(counts[1, 1])
    missed = int(counts[1, 0])
    right = f" ({percent_text(found / flagged)})" if flagged else ""
    lost = f" ({percent_text(missed / scores.positives)})" if scores.positives else ""
    summary = (
        f"Of {count_text(flagged)} {scores.split} targets decided for class {one}, {count_text(found)} have it{right}. "
        f"Of the {count_text(scores.positives)} that have it, {count_text(missed)} are missed{lost}."
    )
    other = "another class" if scores.classes else inputs.class_name(1 - scores.positive)
    shown = Confusion(counts, (other, one))
    return Picture(
        key=key,
        title=title,
        alt=f"Table of labels and decisions. {summary}",
        caption=summary,
        svg=draw(
            key,
            partial(paint_confusion, shown=shown, x_label="decision"),
            width=HALF_WIDTH,
            height=_HEIGHT,
        ),
        legend=(Swatch("accent", "area", "right"), Swatch("warm", "area", "wrong")),
    )


def _precision_picture(inputs: ReportInputs, scores: ScoreFacts) -> Picture:
    title = "Precision and recall at every threshold"
    if not 0 < scores.positives < scores.targets:
        words = f"All {scores.split} targets have one class, and precision and recall need both."
        return Picture(key="precision", title=title, missing=words)
    # the metric is of class 1
    area = inputs.metrics.get(f"{scores.split}.average_precision") if scores.positive == 1 else None
    share = scores.positives / scores.targets
    known = "" if area is None else f"The average precision is {score_text(area)}. "
    caption = (
        f"{known}Recall: the share of class {inputs.class_name(scores.positive)} that is found; precision: the share "
        f"of the found that has it. A random order has a precision of {score_text(share)} everywhere."
    )
    legend = [Swatch("accent", "line", "model"), Swatch("quiet", "dash", "random order")]
    if scores.decided:
        legend.append(Swatch("warm", "dot", "the threshold"))
    return Picture(
        key="precision",
        title=title,
        alt=f"Precision by recall over {count_text(scores.targets)} {scores.split} targets. {caption}",
        caption=caption,
        svg=draw("precision", partial(_paint_precision, scores=scores), width=HALF_WIDTH, height=_HEIGHT),
        legend=legend,
    )


def _paint_precision(figure: Figure, *, scores: ScoreFacts) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="recall (share)", y_label="precision (share)", grid="both")
    flagged, hits = np.array(scores.steps, dtype=float).T
    share = scores.positives / scores.targets
    axes.plot([0, 1], [share, share], color=colour("quiet"), linestyle=(0, (3, 2)), linewidth=1.4)
    axes.plot(hits / scores.positives, hits / flagged, color=colour("accent"), linewidth=2.2)
    if scores.decided and scores.decided[0][1] + scores.decided[1][1]:
        found = scores.decided[1][1]
        place = (found / scores.positives, found / (found + scores.decided[0][1]))
        axes.plot(*place, "o", color=colour("warm"), markersize=8, markeredgecolor=colour("paper"))
    axes.set_xlim(-0.01, 1.02)
    axes.set_ylim(-0.01, 1.04)


def _score_picture(inputs: ReportInputs, scores: ScoreFacts) -> Picture:
    names = (inputs.class_name(0), inputs.class_name(1))
    caption = (
        "Each class's bars add up to one, so that a rare class can be seen. The less the colours overlap, the better "
        "the model tells the classes apart."
    )
    return Picture(
        key="certainty",
        title="Scores by class",
        alt=f"Histograms of the probability of class {names[1]}, for targets of each class. {caption}",
        caption=caption,
        svg=draw(
            "certainty",
            partial(paint_shares, bins=scores.bins, x_label=f"probability of class {names[1]}"),
            width=HALF_WIDTH,
            height=_HEIGHT,
        ),
        legend=(Swatch("quiet", "area", f"class {names[0]}"), Swatch("warm", "area", f"class {names[1]}")),
        table=bins_table(scores, names),
    )


def bins_table(scores: ScoreFacts, names: tuple[str, str]) -> Table:
    """Return two histograms of probabilities as figures."""
    ends = np.linspace(0, 1, BINS + 1)
    rows = [
        (f"{low:.2f} to {high:.2f}", count_text(first), count_text(second))
        for low, high, first, second in zip(ends[:-1], ends[1:], *scores.bins, strict=True)
    ]
    return Table(summary="Counts in figures", head=("probability", *names), rows=rows)


def paint_shares(
    figure: Figure, *, bins: tuple[tuple[int, ...], ...], x_label: str, roles: tuple[str, str] = ("quiet", "warm")
) -> None:
    """Draw two histograms over 0 to 1, each of which adds up to one."""
    axes = figure.add_subplot()
    plain_axes(axes, x_label=x_label, y_label="share of the targets")
    ends = np.linspace(0, 1, BINS + 1)
    for counts, role in zip(bins, roles, strict=True):
        share = np.array(counts) / max(sum(counts), 1)
        axes.bar(ends[:-1], share, width=1 / BINS, align="edge", color=colour(role), alpha=0.55, linewidth=0)
        axes.stairs(share, ends, color=colour(role), linewidth=1.4)
    axes.set_xlim(0, 1)


def gains_picture(inputs: ReportInputs, scores: ScoreFacts) -> Picture:
    """Return the share of a class that the first of a list contain."""
    title = "A list in the order of scores"
    summary = gains_text(inputs)
    if not summary:
        one = inputs.class_name(scores.positive)
        words = f"No {scores.split} target has class {one}, or there are fewer than 10 targets."
        return Picture(key="gains", title=title, missing=words)
    rows = [
        (count_text(k), hits_text(hits), percent_text(hits / scores.positives), percent_text(hits / k))
        for k, hits in scores.gains
    ]
    return Picture(
        key="gains",
        title=title,
        alt=f"Share of class {inputs.class_name(scores.positive)} that is found, by the length of the list. {summary}",
        caption=summary,
        svg=draw("gains", partial(_paint_gains, scores=scores), width=HALF_WIDTH, height=_HEIGHT),
        legend=(Swatch("accent", "line", "model"), Swatch("quiet", "dash", "random order")),
        table=Table(summary="Gains in figures", head=("first", "found", "of all", "of the list"), rows=rows),
    )


def _paint_gains(figure: Figure, *, scores: ScoreFacts) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="length of the list (share of the targets)", y_label="found (share)", grid="both")
    flagged, hits = np.array([(0, 0), *scores.steps], dtype=float).T
    axes.plot([0, 1], [0, 1], color=colour("quiet"), linestyle=(0, (3, 2)), linewidth=1.4)
    axes.plot(flagged / scores.targets, hits / scores.positives, color=colour("accent"), linewidth=2.2)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.04)
