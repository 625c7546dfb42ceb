"""Line plots for the documentation, drawn without pyplot and whatever the user's matplotlibrc says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

COLOURS = ("#2f5d8a", "#c4622d", "#4f8a5b", "#7a5ea8", "#8a8a8a", "#b03a5b")
Line = tuple[Sequence[float], Sequence[float]]


def draw_lines(
    path: Path, lines: Mapping[str, Line], *, x_label: str, y_label: str, logarithmic: bool = False, dashed: str = ""
) -> None:
    """Write a PNG of lines by name. logarithmic: both axes by powers of two; dashed: the line to compare with."""
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style.context(["default", {"font.size": 9.5, "axes.edgecolor": "#999999"}]):
        figure = Figure(figsize=(6.4, 4.0), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for number, (name, (x, y)) in enumerate(lines.items()):
            colour, shape = ("#555555", "--") if name == dashed else (COLOURS[number % len(COLOURS)], "-")
            axes.plot(x, y, shape, color=colour, label=name, linewidth=1.5, marker="" if name == dashed else ".")
        if logarithmic:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.grid(visible=True, color="#e4e4e4", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Software": None})
