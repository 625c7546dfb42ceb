"""Several runs on one page: a picture of the metric that ranks them, and a table of their common figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gnnflow.graph.labels import is_bound, lower_is_better
from gnnflow.report.formats import metric_name, score_text
from gnnflow.report.pictures.canvas import FULL_WIDTH, Picture, colour, draw, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR_HEIGHT, _MARGIN = 26.0, 60.0


@dataclass(frozen=True)
class ComparedRun:
    """One run: its label among the others, its location, and its metrics."""

    label: str
    uri: str
    metrics: Mapping[str, float]


def rank_runs(runs: Sequence[ComparedRun], metric: str) -> list[ComparedRun]:
    """Return the runs, best first; runs without the metric are last."""
    sign = 1 if lower_is_better(metric) else -1
    return sorted(runs, key=lambda run: (metric not in run.metrics, sign * run.metrics.get(metric, 0.0), run.label))


def test_metric(metric: str) -> str:
    """Return the same metric on the test split, which is test_metric and never chooses a run."""
    return f"test.{metric.partition('.')[2]}"


def choose_columns(runs: Sequence[ComparedRun], metric: str) -> list[str]:
    """Return the ranking metric, then the figures of every run: the same metric on test, other scores, the rest."""
    shared = set.intersection(*(set(run.metrics) for run in runs))
    scores = sorted(key for key in shared if key.startswith(("test.", "valid.")) and not is_bound(key))
    first = [key for key in [test_metric(metric)] if key in shared]
    rest = sorted(key for key in shared if key.endswith(".seconds_per_epoch"))
    return list(dict.fromkeys([metric, *first, *scores, *rest]))


def comparison_bars(runs: Sequence[ComparedRun], metric: str) -> Picture:
    """Return one bar per run, the best on top."""
    order = [run for run in rank_runs(runs, metric) if metric in run.metrics]
    title = f"{metric_name(metric)} by run"
    if not order:
        return Picture(key="runs", title=title, missing=f"No run has {metric}.")
    summary = "; ".join(f"{run.label} {score_text(run.metrics[metric])}" for run in order)
    better = "Lower is better." if lower_is_better(metric) else "Higher is better."
    svg = draw(
        "runs",
        partial(_paint, runs=order, metric=metric),
        width=FULL_WIDTH,
        height=_MARGIN + _BAR_HEIGHT * len(order),
    )
    return Picture(key="runs", title=title, alt=f"Bars: {summary}.", caption=better, svg=svg, wide=True)


def _paint(figure: Figure, *, runs: Sequence[ComparedRun], metric: str) -> None:
    axes = figure.add_subplot()
    values = [run.metrics[metric] for run in runs]
    heights = range(len(runs) - 1, -1, -1)
    axes.barh(list(heights), values, height=0.62, color=[colour("accent"), *[colour("quiet")] * (len(runs) - 1)])
    axes.set_yticks(list(heights), [run.label for run in runs])
    for height, value in zip(heights, values, strict=True):
        axes.annotate(
            score_text(value), (value, height), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.margins(x=0.12)
    plain_axes(axes, x_label=metric_name(metric), y_label="", grid="x")


def _verdict(first: ComparedRun, metric: str, num_runs: int) -> str:
    if metric not in first.metrics:
        return f"No run is called best of {num_runs}: none has a score on a validation split, and test must not choose."
    test = test_metric(metric)
    told = f"; {metric_name(test)} is {score_text(first.metrics[test])}" if test in first.metrics else ""
    chosen = f"{metric_name(metric)} is {score_text(first.metrics[metric])}"
    return f"{first.label} is best of {num_runs} runs: its {chosen}{told}."


def render_comparison(runs: Sequence[ComparedRun], *, name: str, metric: str, failed: Mapping[str, str]) -> str:
    """Return the page. failed: the reasons of runs that did not complete, by label."""
    from gnnflow.report.render import environment, template_source

    columns = choose_columns(runs, metric)
    rows = [
        (run, [score_text(run.metrics[key]) if key in run.metrics else "" for key in columns])
        for run in rank_runs(runs, metric)
    ]
    page = (
        environment()
        .get_template("comparison.html.j2")
        .render(
            name=name,
            picture=comparison_bars(runs, metric),
            verdict=_verdict(rows[0][0], metric, len(rows)),
            columns=columns,
            rows=rows,
            failed=failed,
            style=template_source("report.css"),
        )
    )
    return f"{page.rstrip()}\n"
