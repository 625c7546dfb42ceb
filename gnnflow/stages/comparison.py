"""Compare the runs of an experiment: tables, a plot and a page in the workspace."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from gnnflow.graph.errors import listed
from gnnflow.report.comparison import (
    ComparedRun,
    ComparedVariant,
    choose_columns,
    compare_best,
    comparison_bars,
    name_columns,
    rank_variants,
    render_comparison,
    spread_text,
    tell_verdict,
    test_metric,
)
from gnnflow.report.render import image_file
from gnnflow.stages.measured_runs import unlike_metrics, without
from gnnflow.storage.filesystem import join
from gnnflow.storage.run_folder import REPORT, metric_of, read_metrics, read_run
from gnnflow.storage.workspace import Workspace
from gnnflow.storage.writing import write_atomic

if TYPE_CHECKING:
    from gnnflow.config.matrix import RunRow
    from gnnflow.report.spread import PairedDifference


@dataclass(frozen=True)
class ComparisonResult:
    """The files of a comparison, the metric that ranks, and the variants, best first.

    table: a row for each variant, with mean and standard deviation. runs_table: a row for each run, with its seed.
    difference: the best against the second by their seeds. verdict: the same in words. lines: the table for a log,
    failed runs and the verdict last.
    """

    page: str
    table: str
    runs_table: str
    plot: str
    metric: str
    variants: tuple[ComparedVariant, ...]
    difference: PairedDifference | None
    verdict: str
    lines: tuple[str, ...]


def compare_runs(
    rows: Sequence[RunRow],
    runs: Mapping[str, str],
    *,
    name: str,
    workspace: str,
    failed: Mapping[str, str] | None = None,
) -> ComparisonResult:
    """Write comparisons/<name>/<runs' hash>/ with comparison.csv, runs.csv, comparison.svg and comparison.html.

    rows: the runs of an experiment. Each is in runs, which maps labels to URIs of completed runs, or in failed, which
    maps labels to reasons. The mean over seeds of the metric on the validation split ranks variants; the test score is
    only reported, since a score that chooses is no longer one on unseen targets. Without validation scores no variant
    is called best. Raises StorageError if a run is not complete.
    """
    others = failed or {}
    told = [ComparedRun(row, "", {}, others[row.label]) for row in rows if row.label in others]
    found = [ComparedRun(row, runs[row.label], read_metrics(runs[row.label])) for row in rows if row.label in runs]
    records = [read_run(run.uri) for run in found]
    # another class of the same name would rank runs that cannot be ranked by it
    unlike = unlike_metrics(records)
    found = [replace(run, metrics=without(run.metrics, unlike)) for run in found]
    metric = _metric(found, metric_of(records[0]))
    # rows: names of bundles are on the page too
    content = json.dumps([sorted(runs.items()), sorted(others), [asdict(row) for row in rows]])
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    place = Workspace.at(workspace)
    folder = join(place.uri, "comparisons", name, key)
    found = [replace(run, report=place.link(join(run.uri, REPORT), folder=folder)) for run in found]
    compared = [*found, *told]
    page, table, plot = (join(folder, f"comparison.{kind}") for kind in ("html", "csv", "svg"))
    runs_table = join(folder, "runs.csv")
    variants, columns = rank_variants(compared, metric), choose_columns(found, metric)
    write_atomic(table, _variants_csv(variants, columns).encode())
    write_atomic(runs_table, _runs_csv(variants, columns).encode())
    write_atomic(plot, image_file(comparison_bars(variants, metric).svg).encode())
    write_atomic(page, render_comparison(compared, name=name, metric=metric).encode())
    verdict = tell_verdict(variants, metric)
    if unlike:
        verdict += f" Not compared, since runs measure another class or other costs: {listed([*unlike])}."
    return ComparisonResult(
        page,
        table,
        runs_table,
        plot,
        metric,
        tuple(variants),
        compare_best(variants, metric),
        verdict,
        (*_lines(variants, metric), *(f"{run.row.label}  failed: {run.failed}" for run in told), "", verdict),
    )


def _metric(runs: Sequence[ComparedRun], wanted: str) -> str:
    """Return the validation metric that ranks: the wanted one, or the first that all runs have."""
    if all(f"valid.{wanted}" in run.metrics for run in runs):
        return f"valid.{wanted}"
    return next(
        (key for key in choose_columns(runs, f"valid.{wanted}")[1:] if key.startswith("valid.")), f"valid.{wanted}"
    )


def _variants_csv(variants: Sequence[ComparedVariant], metrics: Sequence[str]) -> str:
    """Return a row for each variant: its keys, the seeds that completed and failed, and mean and deviation."""
    figures = [column for key in metrics for column in (key, f"{key} deviation")]
    rows = []
    for variant in variants:
        spreads = [variant.spread(key) for key in metrics]
        cells = [cell for each in spreads for cell in ((each.mean, each.deviation) if each else (None, None))]
        done = len(variant.completed)
        rows.append([variant.label, *variant.keys.values(), done, len(variant.runs) - done, *cells])
    return _csv(["variant", *variants[0].keys, "seeds", "failed", *figures], rows)


def _runs_csv(variants: Sequence[ComparedVariant], metrics: Sequence[str]) -> str:
    """Return a row for each run, in the order of variants: its keys and seed, its metrics, and why it failed."""
    rows = [
        [
            *(run.row.label, run.row.variant, *run.row.keys.values(), run.row.seed),
            *(run.metrics.get(key) for key in metrics),
            *(run.uri, run.failed),
        ]
        for variant in variants
        for run in variant.runs
    ]
    return _csv(["run", "variant", *variants[0].keys, "seed", *metrics, "uri", "failed"], rows)


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def _lines(variants: Sequence[ComparedVariant], metric: str) -> list[str]:
    """Return the variants as a table for a log."""
    columns = name_columns(variants)
    for key in (metric, test_metric(metric)):
        columns[key] = [spread_text(variant.spread(key), sign="+-") for variant in variants]
    columns["seeds"] = [variant.seeds_text for variant in variants]
    widths = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths.values(), strict=True)).rstrip() for row in rows
    ]
