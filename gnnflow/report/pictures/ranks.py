"""Pictures of ranked links and of errors of predicted numbers, from counts over every target of the split."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.score_facts import BINS, ScoreFacts
from gnnflow.report.formats import count_text, percent_text, score_text, short_count
from gnnflow.report.inputs import FloatArray, ReportInputs
from gnnflow.report.pictures.canvas import HALF_WIDTH, Picture, Swatch, Table, colour, draw, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 260.0
_FIRST = 10


def link_pictures(inputs: ReportInputs) -> tuple[Picture, ...]:
    """Return the ranks of links, and the links found among the first k; empty without ranks."""
    scores = inputs.scores
    if scores is None or not scores.ranks:
        return ()
    return (_rank_picture(scores), _hits_picture(scores))


def _rank_picture(scores: ScoreFacts) -> Picture:
    ends = [2**step for step in range(len(scores.ranks))]
    names = [
        str(low) if low == high else f"{low}–{high}"  # noqa: RUF001 - a range of numbers
        for low, high in ((low, min(2 * low - 1, scores.candidates)) for low in ends)
    ]
    first = scores.ranks[0]
    caption = (
        f"{count_text(first)} of {count_text(scores.targets)} {scores.split} links "
        f"({percent_text(first / scores.targets)}) come first among {count_text(scores.candidates)} candidates, the "
        "link itself included. Further left is better."
    )
    rows = [
        (name, count_text(count), percent_text(count / scores.targets))
        for name, count in zip(names, scores.ranks, strict=True)
    ]
    return Picture(
        key="quality",
        title="Ranks of links that exist",
        alt=f"Histogram of ranks. {caption}",
        caption=caption,
        svg=draw("quality", partial(_paint_ranks, scores=scores, names=names), width=HALF_WIDTH, height=_HEIGHT),
        table=Table(summary="Ranks in figures", head=("rank", "links", "share"), rows=rows),
    )


def _paint_ranks(figure: Figure, *, scores: ScoreFacts, names: list[str]) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="rank of the link", y_label="share of the links")
    axes.bar(range(len(names)), np.array(scores.ranks) / scores.targets, width=0.84, color=colour("accent"))
    axes.set_xticks(range(len(names)), names)


def _hits_picture(scores: ScoreFacts) -> Picture:
    known = [(k, hits) for k, hits in scores.hits if k <= _FIRST]
    k, hits = known[-1]
    caption = (
        f"{count_text(hits)} of {count_text(scores.targets)} links ({percent_text(hits / scores.targets)}) are among "
        f"the first {k} of {count_text(scores.candidates)} candidates; in random order "
        f"{percent_text(k / scores.candidates)} would be."
    )
    return Picture(
        key="hits",
        title="Links among the first k",
        alt=f"Share of links that are found, by the length of the list. {caption}",
        caption=caption,
        svg=draw("hits", partial(_paint_hits, scores=scores), width=HALF_WIDTH, height=_HEIGHT),
        legend=(Swatch("accent", "line", "model"), Swatch("quiet", "dash", "random order")),
    )


def _paint_hits(figure: Figure, *, scores: ScoreFacts) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="k (candidates)", y_label="found (share of the links)", grid="both")
    numbers, hits = np.array(scores.hits, dtype=float).T
    axes.plot(numbers, numbers / scores.candidates, color=colour("quiet"), linestyle=(0, (3, 2)), linewidth=1.4)
    axes.plot(numbers, hits / scores.targets, color=colour("accent"), linewidth=2.2)
    axes.set_ylim(-0.01, 1.04)


def error_picture(inputs: ReportInputs) -> tuple[Picture, ...]:
    """Return the histogram of errors of predicted numbers; empty without them."""
    scores = inputs.scores
    if scores is None or not scores.errors:
        return ()
    ends = np.linspace(-scores.largest_error, scores.largest_error, BINS + 1)
    middle = sum(scores.errors[BINS // 4 : -BINS // 4]) / scores.targets
    caption = (
        f"{percent_text(middle)} of {count_text(scores.targets)} {scores.split} targets are within "
        f"{score_text(scores.largest_error / 2)} of their label. Right of zero the prediction is too high. Errors "
        f"above {score_text(scores.largest_error)}, one in a hundred, are in the outermost bars."
    )
    rows = [
        (f"{short_count(low)} to {short_count(high)}", count_text(count), percent_text(count / scores.targets))
        for low, high, count in zip(ends[:-1], ends[1:], scores.errors, strict=True)
    ]
    return (
        Picture(
            key="errors",
            title="Errors: predicted minus true",
            alt=f"Histogram of errors. {caption}",
            caption=caption,
            svg=draw("errors", partial(_paint_errors, scores=scores, ends=ends), width=HALF_WIDTH, height=_HEIGHT),
            table=Table(summary="Errors in figures", head=("error", "targets", "share"), rows=rows),
        ),
    )


def _paint_errors(figure: Figure, *, scores: ScoreFacts, ends: FloatArray) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label="predicted minus true (label's unit)", y_label="share of the targets")
    share, width = np.array(scores.errors) / scores.targets, ends[1] - ends[0]
    axes.bar(ends[:-1], share, width=0.94 * width, align="edge", color=colour("accent"))
    axes.axvline(0, color=colour("muted"), linewidth=1.0, linestyle=(0, (3, 2)))
