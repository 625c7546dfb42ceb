"""Line plots for the documentation, drawn without pyplot and whatever the user's matplotlibrc says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

COLOURS = ("#2f5d8a", "#c4622d", "#4f8a5b", "#7a5ea8", "#8a8a8a", "#b03a5b")
MARKERS = (".", "x", "^")
Line = tuple[Sequence[float], Sequence[float]]


def draw_lines(
    path: Path, lines: Mapping[str, Line], *, x_label: str, y_label: str, logarithmic: str = "", dashed: str = ""
) -> None:
    """Write a PNG of lines by name. logarithmic: axes by powers of two ("x"); dashed: the line to compare with.

    More lines than there are colours are told apart by their markers, and named beside the plot.
    """
    many = len(lines) > len(COLOURS)
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(["default", {"font.size": 9.5, "axes.edgecolor": "#999999"}]):
        figure = Figure(figsize=(9.6, 4.4) if many else (6.4, 4.0), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for number, (name, (x, y)) in enumerate(lines.items()):
            colour, shape = ("#555555", "--") if name == dashed else (COLOURS[number % len(COLOURS)], "-")
            marker = "" if name == dashed else MARKERS[number // len(COLOURS) % len(MARKERS)]
            axes.plot(x, y, shape, color=colour, label=name, linewidth=1.5, marker=marker, markersize=5)
        for each in logarithmic:
            getattr(axes, f"set_{each}scale")("log", base=2)
            getattr(axes, f"{each}axis").set_major_formatter("{x:g}")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.grid(visible=True, color="#e4e4e4", linewidth=0.7)
        axes.set_axisbelow(True)
        if many:
            figure.legend(frameon=False, loc="outside right upper", fontsize=8)
        else:
            axes.legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})
