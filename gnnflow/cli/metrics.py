"""A run's metrics as a person reads them: scores by split, then the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

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
    shown: set[str] = set()
    typer.echo(" " * _NAME_WIDTH + "".join(f"{split:>{_WIDTH}}" for split in present))
    for prefix, note in (("", ""), ("baseline.", " without edges")):
        for name in names:
            keys = [f"{prefix}{split}.{name}" for split in present]
            if any(key in metrics for key in keys):
                cells = "".join(f"{metrics[key]:>{_WIDTH}.4f}" if key in metrics else " " * _WIDTH for key in keys)
                bounds = [metrics[key] for key in (f"{prefix}test.{name}{side}" for side in BOUNDS) if key in metrics]
                interval = f"  ({' to '.join(f'{bound:.4f}' for bound in bounds)})" if bounds else ""
                typer.echo(f"{name + note:<{_NAME_WIDTH}}{cells}{interval}")
            shown.update(keys)
    for key, value in sorted(metrics.items()):
        if key not in shown and not is_bound(key):
            width = max(0, _NAME_WIDTH + _WIDTH - len(key) - 2)  # a long name stands apart from its figure too
            typer.echo(f"{key}  {value:>{width},.4g}")
