"""A run's metrics as a person reads them: scores by split, then the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gnnflow.graph.figures import metric_text
from gnnflow.graph.labels import BOUNDS, is_bound
from gnnflow.graph.splits import SPLITS

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_WIDTH = 28
_WIDTH = 9


def show_metrics(metrics: Mapping[str, float]) -> None:
    """Print one line per score with a column per split, the baseline's below its own, then all other figures.

    Behind a line stands the confidence interval of its test score.
    """
    present = [split for split in SPLITS if any(key.startswith(f"{split}.") for key in metrics)]
    scores = [key for key in metrics if key.startswith(("valid.", "test.")) and not is_bound(key)]
    names = sorted({key.partition(".")[2] for key in scores})
    rows = {
        f"{prefix}{{}}.{name}": f"{name}{note}"
        for prefix, note in (("", ""), ("baseline.", " without edges"))
        for name in names
    }
    # of each score, by its key: what is printed
    asked = [row.format(split) for row in rows for split in present]
    cells = {key: metric_text(metrics[key]) for key in asked if key in metrics}
    width = max([_WIDTH, *(len(cell) + 2 for cell in cells.values())])
    typer.echo(" " * _NAME_WIDTH + "".join(f"{split:>{width}}" for split in present))
    for row, name in rows.items():
        keys = [row.format(split) for split in present]
        if any(key in cells for key in keys):
            bounds = [metric_text(metrics[key]) for side in BOUNDS if (key := row.format("test") + side) in metrics]
            interval = f"  ({' to '.join(bounds)})" if bounds else ""
            line = "".join(cells.get(key, "").rjust(width) for key in keys)
            typer.echo(f"{name:<{_NAME_WIDTH}}{line}{interval}")
    for key, value in sorted(metrics.items()):
        if key not in cells and not is_bound(key):
            left = max(0, _NAME_WIDTH + _WIDTH - len(key) - 2)  # a long name stands apart from its figure too
            typer.echo(f"{key}  {value:>{left},.4g}")
