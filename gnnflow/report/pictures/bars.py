"""Horizontal bars of one figure per row, with its text and where known a spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gnnflow.report.pictures.canvas import HALF_WIDTH, colour, draw, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROW = 34.0
_LONGEST = 34
_MOST_LINES = 3


@dataclass(frozen=True)
class Bar:
    """One row: its name, figure, the figure as text, colour role, and the ends of a thin line over the bar."""

    name: str
    value: float
    text: str
    role: str = "accent"
    spread: tuple[float, float] | None = None


def draw_bars(key: str, bars: Sequence[Bar], *, label: str) -> str:
    """Return bars as inline SVG. label: of the axis."""
    return draw(key, partial(_paint, bars=bars, label=label), width=HALF_WIDTH, height=_ROW * (len(bars) + 2))


def _paint(figure: Figure, *, bars: Sequence[Bar], label: str) -> None:
    axes = figure.add_subplot()
    plain_axes(axes, x_label=label, y_label="", grid="x")
    rows = range(len(bars))
    axes.barh(rows, [bar.value for bar in bars], height=0.6, color=[colour(bar.role) for bar in bars])
    for row, bar in zip(rows, bars, strict=True):
        if bar.spread is not None:
            axes.plot(bar.spread, [row, row], color=colour("ink"), linewidth=1.2)
        axes.annotate(
            bar.text,
            (max(bar.value, 0.0, *(bar.spread or ())), row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontweight="bold" if bar.role == "accent" else "normal",
        )
    axes.set_yticks(rows, [_cut(bar.name) for bar in bars])
    axes.invert_yaxis()
    axes.margins(x=0.18, y=0.06)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(left=min(0.0, *(bar.value for bar in bars)))


def _cut(name: str) -> str:
    """Return a name in a few short lines."""
    words, lines = name.split(), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= _LONGEST // 2 + 3:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    shown = [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in lines[:_MOST_LINES]]
    return "\n".join(shown)
