"""A sweep: the runs of an experiment one after another, and a comparison at the end, as in the experiments' DAG.

Runs share equal artifacts through the workspace. Completed runs are found there, so a killed sweep resumes. A failed
combination is listed, and the others continue.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import GnnflowError
from gnnflow.stages.comparison import compare_runs
from gnnflow.stages.pipeline import run_quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gnnflow.config import Config
    from gnnflow.config.experiments import Experiment
    from gnnflow.config.matrix import RunRow
    from gnnflow.report.comparison import ComparedVariant
    from gnnflow.stages.comparison import ComparisonResult
    from gnnflow.stages.pipeline import RunResult


@dataclass(frozen=True)
class SweepResult:
    """The completed runs and the errors of the others, by label, the rows of all of them, and their comparison."""

    name: str
    rows: Sequence[RunRow]
    runs: Mapping[str, RunResult]
    failed: Mapping[str, GnnflowError]
    comparison: ComparisonResult

    def summary(self) -> dict[str, Any]:
        """Return plain values for `--json`: variants and their runs best first, as in the table."""
        compared, rows = self.comparison, {row.label: row for row in self.rows}
        completed = [run.row.label for variant in compared.variants for run in variant.completed]
        return {
            "experiment": self.name,
            "metric": compared.metric,
            "verdict": compared.verdict,
            "variants": [_variant(variant) for variant in compared.variants],
            "difference": compared.difference
            and {
                **asdict(compared.difference),
                "beyond_noise": compared.difference.beyond_noise,
            },
            "runs": [{**asdict(rows[label]), **self._run(label)} for label in completed],
            "failed": [{**asdict(rows[label]), "error": error.document()} for label, error in self.failed.items()],
            "table": compared.table,
            "runs_table": compared.runs_table,
            "plot": compared.plot,
            "page": compared.page,
        }

    def _run(self, label: str) -> dict[str, Any]:
        result = self.runs[label]
        return {
            "run": result.uri,
            "metrics": result.metrics,
            "report": result.report,
            "reused": result.reused,
            "seconds": round(result.seconds, 3),
        }


def _variant(variant: ComparedVariant) -> dict[str, Any]:
    """Return a variant's keys and seeds, and each metric's mean and standard deviation, null for one seed."""
    keys = dict.fromkeys(key for run in variant.completed for key in run.metrics)
    spreads = {key: spread for key in keys if (spread := variant.spread(key))}
    return {
        "variant": variant.label,
        "keys": variant.keys,
        "seeds": [run.row.seed for run in variant.completed],
        "failed_seeds": [run.row.seed for run in variant.runs if run.failed],
        "mean": {key: spread.mean for key, spread in spreads.items()},
        "deviation": {key: spread.deviation for key, spread in spreads.items()},
    }


def run_sweep(
    experiment: Experiment,
    *,
    run: Callable[[Config], RunResult] = run_quietly,
    say: Callable[[str], None] = lambda _: None,
) -> SweepResult:
    """Run every combination, compare those that complete, and write tables, plot and page into the workspace.

    run: runs one config to its end. say: receives progress messages. Raises the error of the first combination if none
    completes.
    """
    runs: dict[str, RunResult] = {}
    failed: dict[str, GnnflowError] = dict(experiment.refused)
    for label, error in failed.items():
        say(f"{label}: refused: {error}")
    for number, planned in enumerate(experiment.runs, 1):
        say(f"run {number} of {len(experiment.runs)}: {planned.label}")
        try:
            runs[planned.label] = run(planned.config)
        except GnnflowError as error:
            failed[planned.label] = error
            say(f"{planned.label}: failed: {error}")
    if not runs:
        raise next(iter(failed.values()))
    comparison = compare_runs(
        experiment.rows,
        {label: result.uri for label, result in runs.items()},
        name=experiment.name,
        workspace=experiment.runs[0].config.workspace,
        failed={label: str(error) for label, error in failed.items()},
    )
    return SweepResult(experiment.name, experiment.rows, runs, failed, comparison)
