"""More than two classes: each one's scores as a table, precision and recall of the rarest, and decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.errors import listed
from gnnflow.graph.score_facts import MOST_CURVES, ClassScores, ScoreFacts
from gnnflow.report.formats import count_text, percent_text, score_text
from gnnflow.report.inputs import ReportInputs
from gnnflow.report.judging import FEWEST_OF_CLASS
from gnnflow.report.pictures.canvas import HALF_WIDTH, NUM_CLASS_COLOURS, Picture, Swatch, colour, draw, plain_axes
from gnnflow.report.pictures.confusion import confusion_picture
from gnnflow.report.pictures.decisions import gains_picture, threshold_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 300.0
_MOST_ROWS = 20
_HEAD = ("class", "targets", "precision", "recall", "F1", "average precision")


@dataclass(frozen=True)
class ClassTable:
    """The scores of classes against the others, the rarest first; `more` are folded. warning: on few targets."""

    caption: str
    rows: Sequence[Sequence[str]]
    more: Sequence[Sequence[str]] = ()
    warning: str = ""
    head: Sequence[str] = _HEAD


def class_table_of(inputs: ReportInputs) -> ClassTable | None:
    """Return the scores of each of more than two classes; None where there are none."""
    scores = inputs.scores
    if scores is None or not scores.classes:
        return None
    by_decision = inputs.decision is not None and inputs.decision.positive is None
    how = "the decision" if by_decision else "the likeliest class"
    without = inputs.graph.num_classes - len(scores.classes)
    left_out = f"; {count_text(without)} more classes have no targets or more than these" if without > 0 else ""
    rows = [_row(inputs, each) for each in scores.classes]
    few = [inputs.class_name(each.number) for each in scores.classes if each.targets < FEWEST_OF_CLASS]
    never = [inputs.class_name(each.number) for each in scores.classes if each.precision is None]
    verb, split = "decided" if by_decision else "predicted", scores.split
    warnings = []
    if few:
        has = f"Fewer than {FEWEST_OF_CLASS} {split} targets have class {listed(few)}"
        warnings.append(f"{has}: another {split} split may score very differently.")
    if never:
        warnings.append(f"No {split} target is {verb} as {listed(never)}, so there is no precision.")
    caption = f"Each class against the others, the rarest first, by {how} of {scores.split} targets{left_out}"
    return ClassTable(caption, rows[:_MOST_ROWS], rows[_MOST_ROWS:], " ".join(warnings))


def _row(inputs: ReportInputs, each: ClassScores) -> tuple[str, ...]:
    """Return a class's figures; one that is undefined is left empty."""
    figures = (each.precision, each.recall, each.f1, each.average_precision)
    return (
        inputs.class_name(each.number),
        count_text(each.targets),
        *("" if figure is None else score_text(figure) for figure in figures),
    )


def class_pictures(inputs: ReportInputs) -> tuple[Picture, ...]:
    """Return the pictures of more than two classes; empty where labels are of other kinds, or an older run."""
    scores = inputs.scores
    if scores is None or not scores.classes:
        return ()
    found = [] if inputs.confusion is None else [_confusion(inputs, scores)]
    found.append(_curves(inputs, scores))
    if scores.steps:
        found += [threshold_picture(inputs, scores, key="decision"), gains_picture(inputs, scores)]
    return tuple(found)


def mean_costs(inputs: ReportInputs) -> tuple[float, float] | None:
    """Return the mean cost of decisions and of the likeliest classes; None where decisions have no costs."""
    scores, decision = inputs.scores, inputs.decision
    if scores is None or decision is None or not decision.costs or not scores.decided or inputs.confusion is None:
        return None
    costs = np.array(decision.costs)
    decided, likeliest = ((costs * counts).sum() / scores.targets for counts in (scores.decided, inputs.confusion))
    return float(decided), float(likeliest)


def _confusion(inputs: ReportInputs, scores: ScoreFacts) -> Picture:
    """Return the confusion of decided classes, of the likeliest where one class is decided for or against."""
    if (costs := mean_costs(inputs)) is None:
        return confusion_picture(inputs, split=scores.split)
    decided, likeliest = map(score_text, costs)
    right = percent_text(float(np.trace(np.asarray(inputs.confusion))) / scores.targets)
    more = (
        f"A decision costs {decided} on average. The likeliest class, which accuracy counts, would cost {likeliest} "
        f"and be correct for {right}."
    )
    shown = replace(inputs, confusion=np.array(scores.decided))
    return confusion_picture(shown, split=scores.split, verb="decided", more=more)


def _curves(inputs: ReportInputs, scores: ScoreFacts) -> Picture:
    drawn = [each for each in scores.classes if each.steps and each.average_precision is not None]
    title = "Precision and recall of each class"
    if not drawn:
        words = f"All {scores.split} targets have one class, and precision and recall need two."
        return Picture(key="precision", title=title, missing=words)
    names = [inputs.class_name(each.number) for each in drawn]
    of = "all classes"
    if len(drawn) < len(scores.classes):
        rarest = [f"the {MOST_CURVES} rarest of {len(scores.classes)} classes", *names[MOST_CURVES:]]
        of = " and ".join(rarest)
    areas = ", ".join(
        f"{name} {score_text(each.average_precision or 0.0)} (in random order "
        f"{score_text(each.targets / scores.targets)})"
        for name, each in zip(names, drawn, strict=True)
    )
    caption = f"Drawn are {of}, each against the others. Average precision: {areas}."
    return Picture(
        key="precision",
        title=title,
        alt=f"Precision by recall over {count_text(scores.targets)} {scores.split} targets. {caption}",
        caption=caption,
        svg=draw("precision", partial(_paint_curves, drawn=drawn), width=HALF_WIDTH, height=_HEIGHT),
        legend=[Swatch(_role(place), "line", name) for place, name in enumerate(names)],
    )


def _role(place: int) -> str:
    return f"class{place % NUM_CLASS_COLOURS}"


def _paint_curves(figure: Figure, *, drawn: Sequence[ClassScores]) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="recall (share)", y_label="precision (share)", grid="both")
    for place, each in enumerate(drawn):
        flagged, hits = np.array(each.steps, dtype=float).T
        axes.plot(hits / each.targets, hits / flagged, color=colour(_role(place)), linewidth=2.0)
    axes.set_xlim(-0.01, 1.02)
    axes.set_ylim(-0.01, 1.04)
