"""The time of stages and their rounds on one axis, with reused work hatched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.report.formats import seconds_text
from gnnflow.report.inputs import ReportInputs, StageRow
from gnnflow.report.pictures.canvas import FULL_WIDTH, Picture, Swatch, colour, draw, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STAGE_HEIGHT = 25.0  # units of the picture
_ROUND_HEIGHT = 15.0
_AXIS_HEIGHT = 50.0
_MOST_ROUNDS = 60
_LONGEST_NAME = 34
_THINNEST = 0.0025  # of the axis: a bar of no time is still visible


@dataclass(frozen=True)
class _Bar:
    label: str
    start: float
    seconds: float
    is_stage: bool
    reused: bool


def stage_timeline(inputs: ReportInputs) -> Picture:
    """Return the stages one after another with their rounds below them; reused work is hatched."""
    title = "Time of the stages"
    bars = _bars(inputs.stages)
    if not bars:
        return Picture(key="timeline", title=title, missing="No stage recorded its time.", wide=True)
    summary = ", ".join(
        f"{stage.name} {seconds_text(stage.seconds)}{' (reused)' if stage.reused else ''}" for stage in inputs.stages
    )
    legend = [Swatch("accent", "area", "done in this run")]
    if any(bar.reused for bar in bars):
        legend.append(Swatch("quiet", "hatch", "reused: done by an earlier run, no cost for this one"))
    height = sum(_STAGE_HEIGHT if bar.is_stage else _ROUND_HEIGHT for bar in bars) + _AXIS_HEIGHT
    return Picture(
        key="timeline",
        title=title,
        alt=f"Timeline of the stages: {summary}.",
        caption=(
            "Stages run one after another; the thin bars are their rounds, each a map over partitions and its exchange."
        ),
        svg=draw("timeline", partial(_paint, bars=bars), width=FULL_WIDTH, height=height),
        legend=legend,
        wide=True,
    )


def _bars(stages: Sequence[StageRow]) -> list[_Bar]:
    bars: list[_Bar] = []
    start = 0.0
    rounds_left = _MOST_ROUNDS
    for stage in stages:
        bars.append(_Bar(stage.name, start, stage.seconds, is_stage=True, reused=stage.reused))
        for entry in stage.rounds[:rounds_left]:
            begin = start + entry.start
            bars.append(_Bar(entry.name, begin, entry.seconds, is_stage=False, reused=stage.reused))
        rounds_left -= min(rounds_left, len(stage.rounds))
        start += max(stage.seconds, 0.0)
    return bars


def _paint(figure: Figure, *, bars: Sequence[_Bar]) -> None:
    axes = figure.add_subplot()
    unit, divisor = _unit(max(bar.start + bar.seconds for bar in bars))
    plain_axes(axes, x_label=f"one stage after another ({unit})", y_label="", grid="x")
    heights = np.array([_STAGE_HEIGHT if bar.is_stage else _ROUND_HEIGHT for bar in bars])
    centres = np.cumsum(heights) - heights / 2
    end = max(max(bar.start + bar.seconds for bar in bars) / divisor, 1e-9)
    for bar, centre in zip(bars, centres, strict=True):
        _paint_bar(axes, bar, centre=float(centre), divisor=divisor, end=end)
    axes.set_xlim(0, end * 1.1)
    axes.set_ylim(float(heights.sum()), 0)
    names = [bar.label if len(bar.label) <= _LONGEST_NAME else f"{bar.label[: _LONGEST_NAME - 1]}…" for bar in bars]
    axes.set_yticks(centres, names)
    for label, bar in zip(axes.get_yticklabels(), bars, strict=True):
        label.set_fontsize(9.5 if bar.is_stage else 8)
        label.set_fontweight("bold" if bar.is_stage else "normal")
        label.set_color(colour("ink" if bar.is_stage else "muted"))
    axes.spines["left"].set_visible(False)


def _paint_bar(axes: Axes, bar: _Bar, *, centre: float, divisor: float, end: float) -> None:
    width = max(bar.seconds / divisor, end * _THINNEST)
    start = bar.start / divisor
    axes.barh(
        centre,
        width,
        left=start,
        height=14 if bar.is_stage else 6,
        color=colour("quiet" if bar.reused else "accent"),
        alpha=None if bar.is_stage or bar.reused else 0.55,
        hatch="////" if bar.reused else None,
        edgecolor=colour("paper"),
        linewidth=0,
    )
    words = seconds_text(bar.seconds) if bar.seconds > 0 or not bar.reused else ""
    if bar.reused and bar.is_stage:
        words = f"{words} reused".strip()
    axes.annotate(
        words,
        (start + width, centre),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=9.5 if bar.is_stage else 7.5,
        color=colour("ink" if bar.is_stage else "muted"),
    )


def _unit(seconds: float) -> tuple[str, float]:
    """Return the unit of the time axis and its seconds."""
    minute, hour = 60.0, 3600.0
    if seconds < 3 * minute:
        return "seconds", 1.0
    return ("minutes", minute) if seconds < 3 * hour else ("hours", hour)
