"""Loss and metric by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.report.formats import (
    metric_name,
    score_text,
    seconds_text,
    sentence,
    short_count,
)
from gnnflow.report.inputs import Array, FloatArray, ReportInputs
from gnnflow.report.pictures.canvas import HALF_WIDTH, Picture, Swatch, Table, colour, draw, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_POINTS = 400
_MOST_TABLE_ROWS = 60
_CURVE_HEIGHT = 250.0
_SERIES = {"train": ("quiet", "dash"), "valid": ("accent", "line"), "test": ("warm", "line")}
_RATE = "lr"
_NOT_SCORES = frozenset({"epoch", "samples_per_second", _RATE})


def learning_curves(inputs: ReportInputs) -> tuple[Picture, ...]:
    """Return the loss of each epoch and the metric, where epochs carry one; both mark the best epoch.

    The learning rate follows where it changed.
    """
    return epoch_curves(inputs.curves, metric=inputs.metric, best_epoch=inputs.best_epoch)


def epoch_curves(curves: Sequence[Mapping[str, float]], *, metric: str, best_epoch: int | None) -> tuple[Picture, ...]:
    """Return the pictures of `learning_curves` from the figures of each epoch alone."""
    rows = [row for row in curves if "epoch" in row]
    if not rows:
        words = "No epochs were recorded: the model was not trained in this run, or stopped before its first one."
        return (Picture(key="loss", title="Loss by epoch", missing=words),)
    keys = _score_keys(rows)
    losses = [key for key in keys if key.endswith("loss")]
    scores = _metric_columns([key for key in keys if key not in losses], metric=metric)
    loss = _curve(rows, losses, key="loss", label="loss", best_epoch=best_epoch)
    rate = _rate_curve(rows)
    if not scores:
        return (loss, *rate)
    label = metric_name(scores[0].partition("_")[2])
    return (loss, _curve(rows, scores, key="metric", label=label, best_epoch=best_epoch, table=True), *rate)


def _score_keys(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the losses and metrics of rows, without their seconds."""
    keys = dict.fromkeys(key for row in rows for key in row if key not in _NOT_SCORES)
    return [key for key in keys if not key.endswith("seconds")]


def _metric_columns(keys: Sequence[str], *, metric: str) -> list[str]:
    """Return the columns of one metric: the configured one, else the first one."""
    if any(key.endswith(f"_{metric}") for key in keys if metric):
        return [key for key in keys if key.endswith(f"_{metric}")]
    first = next((key.partition("_")[2] for key in keys), "")
    return [key for key in keys if first and key.endswith(f"_{first}")]


def _curve(
    rows: Sequence[Mapping[str, float]],
    columns: Sequence[str],
    *,
    key: str,
    label: str,
    best_epoch: int | None,
    table: bool = False,
) -> Picture:
    title = f"{sentence(label)} by epoch"
    epochs = np.array([row["epoch"] for row in rows], dtype=float)
    series = {name: np.array([row.get(name, math.nan) for row in rows], dtype=float) for name in sorted(columns)}
    series = {name: values for name, values in series.items() if np.isfinite(values).any()}
    if not series:
        words = f"The epochs carry no finite {label}, so there is no curve to draw."
        return Picture(key=key, title=title, missing=words)
    painter = partial(_paint_curve, epochs=epochs, series=series, label=label, best_epoch=best_epoch)
    ends = {name: score_text(float(values[np.isfinite(values)][-1])) for name, values in series.items()}
    summary = [f"{metric_name(name.replace('_', '.', 1))} ends at {end}" for name, end in ends.items()]
    best = "" if best_epoch is None else f" The kept model is from epoch {best_epoch}."
    return Picture(
        key=key,
        title=title,
        alt=f"Line chart over {len(rows)} epochs: {', '.join(summary)}.{best}",
        caption=f"{sentence(', '.join(summary))}.{best}",
        svg=draw(key, painter, width=HALF_WIDTH, height=_CURVE_HEIGHT),
        legend=tuple(Swatch(*_SERIES.get(_split(name), ("accent", "line")), _split(name)) for name in series),
        table=_epoch_table(rows) if table else None,
    )


def _rate_curve(rows: Sequence[Mapping[str, float]]) -> tuple[Picture, ...]:
    """Return the learning rate by epoch; empty where it is constant."""
    rates = np.array([row.get(_RATE, math.nan) for row in rows], dtype=float)
    if not np.isfinite(rates).all() or (rates == rates[0]).all():
        return ()
    epochs = np.array([row["epoch"] for row in rows], dtype=float)
    label = "learning rate"
    said = f"The {label} goes from {rates[0]:.3g} to {rates[-1]:.3g}; it is at most {rates.max():.3g}."
    painter = partial(_paint_curve, epochs=epochs, series={_RATE: rates}, label=label, best_epoch=None)
    return (
        Picture(
            key="rate",
            title=f"{sentence(label)} by epoch",
            alt=f"Line chart over {len(rows)} epochs. {said}",
            caption=said,
            svg=draw("rate", painter, width=HALF_WIDTH, height=_CURVE_HEIGHT),
        ),
    )


def _split(column: str) -> str:
    return column.partition("_")[0]


def _paint_curve(
    figure: Figure,
    *,
    epochs: FloatArray,
    series: Mapping[str, FloatArray],
    label: str,
    best_epoch: int | None,
) -> None:
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    plain_axes(axes, x_label="epoch", y_label=label)
    kept = _thin(epochs, best_epoch=best_epoch)
    for name, values in series.items():
        role, shape = _SERIES.get(_split(name), ("accent", "line"))
        dash = (0, (3, 2)) if shape == "dash" else "solid"
        axes.plot(epochs[kept], values[kept], color=colour(role), linestyle=dash, linewidth=1.8)
    axes.margins(x=0.02, y=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))
    if best_epoch is not None and best_epoch in epochs:
        _mark_best(axes, epochs=epochs, series=series, best_epoch=best_epoch)


def _mark_best(axes: Axes, *, epochs: FloatArray, series: Mapping[str, FloatArray], best_epoch: int) -> None:
    axes.axvline(best_epoch, color=colour("muted"), linewidth=0.9, linestyle=(0, (1, 2)))
    name = next((column for column in series if _split(column) == "valid"), next(iter(series)))
    value = float(series[name][int(np.flatnonzero(epochs == best_epoch)[0])])
    if not math.isfinite(value):
        return
    role = _SERIES.get(_split(name), ("accent", "line"))[0]
    axes.plot([best_epoch], [value], "o", color=colour(role), markersize=6, markeredgecolor=colour("paper"))
    low, high = axes.get_xlim()
    left = best_epoch > (low + high) / 2
    bottom, top = axes.get_ylim()
    above = value < (bottom + top) / 2
    axes.annotate(
        f"epoch {best_epoch}: {score_text(value)}",
        (best_epoch, value),
        xytext=(-8 if left else 8, 12 if above else -16),
        textcoords="offset points",
        ha="right" if left else "left",
        fontweight="bold",
    )


def _thin(epochs: FloatArray, *, best_epoch: int | None) -> Array:
    """Return the rows to draw: evenly spaced, with the last and the best."""
    kept = np.zeros(len(epochs), dtype=bool)
    kept[np.linspace(0, len(epochs) - 1, min(len(epochs), _MOST_POINTS)).astype(int)] = True
    if best_epoch is not None:
        kept |= epochs == best_epoch
    return np.flatnonzero(kept)


def _epoch_table(rows: Sequence[Mapping[str, float]]) -> Table:
    columns = _score_keys(rows)
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST_TABLE_ROWS)).astype(int))
    head = ("epoch", *(metric_name(column.replace("_", ".", 1)) for column in columns), "time")
    body = []
    for row in (rows[index] for index in chosen):
        scores = [score_text(row[column]) if column in row else "" for column in columns]
        body.append([short_count(row["epoch"]), *scores, seconds_text(row["seconds"]) if "seconds" in row else ""])
    thinned = f" ({len(chosen)} of {len(rows)})" if len(chosen) < len(rows) else ""
    return Table(summary=f"Epochs in figures{thinned}", head=head, rows=body)
