"""Compare completed runs: a table, a plot and a page in the workspace."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnflow.graph.labels import AUTO
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.report.comparison import (
    ComparedRun,
    choose_columns,
    comparison_bars,
    rank_runs,
    render_comparison,
    test_metric,
)
from gnnflow.report.formats import score_text
from gnnflow.storage.filesystem import absolute, join
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.run_folder import read_metrics, read_run
from gnnflow.storage.writing import write_atomic


@dataclass(frozen=True)
class ComparisonResult:
    """The files of a comparison, the metric that ranks, and the labels of completed runs, best first.

    lines: the table for a log, failed runs last.
    """

    page: str
    table: str
    plot: str
    metric: str
    order: tuple[str, ...]
    lines: tuple[str, ...]


def compare_runs(
    runs: Mapping[str, str], *, name: str, workspace: str, failed: Mapping[str, str] | None = None
) -> ComparisonResult:
    """Write comparisons/<name>/<runs' hash>/ with comparison.csv, comparison.svg and comparison.html.

    runs maps labels to URIs of completed runs; failed maps the other labels to reasons, and these are listed last. The
    runs' metric on the validation split ranks them; the test score is only reported, since a score that chooses is no
    longer one on unseen targets. Without validation scores no run is called best. Raises StorageError if a run is not
    complete.
    """
    found = [ComparedRun(label, uri, read_metrics(uri)) for label, uri in runs.items()]
    first = read_run(found[0].uri)
    metric = _metric(found, _trained_by(first))
    # failed runs are on the page too
    content = json.dumps([sorted(runs.items()), sorted(failed or {})])
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    folder = join(absolute(workspace), "comparisons", name, key)
    page, table, plot = (join(folder, f"comparison.{kind}") for kind in ("html", "csv", "svg"))
    others = dict(failed or {})
    write_atomic(table, _csv(found, metric, others).encode())
    write_atomic(plot, comparison_bars(found, metric).svg.encode())
    write_atomic(page, render_comparison(found, name=name, metric=metric, failed=others).encode())
    order = tuple(run.label for run in rank_runs(found, metric))
    return ComparisonResult(page, table, plot, metric, order, tuple(_lines(found, metric, others)))


def _trained_by(record: Mapping[str, Any]) -> str:
    """Return the metric that chose a run's best epoch; the facts have the one that `auto` stood for."""
    metric: str = record["config"]["train"]["metric"]
    if metric != AUTO:
        return metric
    trained = record["artifacts"]["train"]
    return read_facts(trained, read_manifest(trained), TrainFacts).metric


def _metric(runs: Sequence[ComparedRun], wanted: str) -> str:
    """Return the validation metric that ranks: the wanted one, or the first that all runs have."""
    if all(f"valid.{wanted}" in run.metrics for run in runs):
        return f"valid.{wanted}"
    return next(
        (key for key in choose_columns(runs, f"valid.{wanted}")[1:] if key.startswith("valid.")), f"valid.{wanted}"
    )


def _csv(runs: Sequence[ComparedRun], metric: str, failed: Mapping[str, str]) -> str:
    columns, text = choose_columns(runs, metric), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *columns, "uri", "failed"])
    writer.writerows(
        [run.label, *(run.metrics.get(key, "") for key in columns), run.uri, ""] for run in rank_runs(runs, metric)
    )
    writer.writerows([label, *[""] * len(columns), "", why] for label, why in failed.items())
    return text.getvalue()


def _lines(runs: Sequence[ComparedRun], metric: str, failed: Mapping[str, str]) -> list[str]:
    width = max(map(len, ["run", *failed, *(run.label for run in runs)]))
    keys = [metric, test_metric(metric)]
    rows = [
        (run.label, [score_text(run.metrics[key]) if key in run.metrics else "" for key in keys])
        for run in rank_runs(runs, metric)
    ]
    body = [f"{label:<{width}}  {chosen:<{len(metric)}}  {test}".rstrip() for label, (chosen, test) in rows]
    broken = [f"{label:<{width}}  failed: {why}" for label, why in failed.items()]
    return [f"{'run':<{width}}  {'  '.join(keys)}", *body, *broken]
