"""A sweep: the runs of an experiment one after another, and a comparison at the end, as in the experiments' DAG.

Runs share equal artifacts through the workspace. Completed runs are found there, so a killed sweep resumes. A failed
combination is listed, and the others continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import GnnflowError
from gnnflow.stages.comparison import compare_runs
from gnnflow.stages.pipeline import run_quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gnnflow.config import Config
    from gnnflow.config.experiments import Experiment
    from gnnflow.stages.comparison import ComparisonResult
    from gnnflow.stages.pipeline import RunResult


@dataclass(frozen=True)
class SweepResult:
    """The completed runs and the errors of the others, by label, and their comparison."""

    name: str
    runs: Mapping[str, RunResult]
    failed: Mapping[str, GnnflowError]
    comparison: ComparisonResult

    def summary(self) -> dict[str, Any]:
        """Return plain values for `--json`: runs best first, as in the table."""
        return {
            "experiment": self.name,
            "metric": self.comparison.metric,
            "runs": [{"label": label, **self._run(label)} for label in self.comparison.order],
            "failed": [{"label": label, "error": error.document()} for label, error in self.failed.items()],
            "table": self.comparison.table,
            "plot": self.comparison.plot,
            "page": self.comparison.page,
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


def run_sweep(
    experiment: Experiment,
    *,
    run: Callable[[Config], RunResult] = run_quietly,
    say: Callable[[str], None] = lambda _: None,
) -> SweepResult:
    """Run every combination, compare those that complete, and write table, plot and page into the workspace.

    run: runs one config to its end. say: receives progress messages. Raises the error of the first combination if none
    completes.
    """
    runs: dict[str, RunResult] = {}
    failed: dict[str, GnnflowError] = dict(experiment.refused)
    for label, error in failed.items():
        say(f"{label}: refused: {error}")
    for number, variant in enumerate(experiment.variants, 1):
        say(f"run {number} of {len(experiment.variants)}: {variant.label}")
        try:
            runs[variant.label] = run(variant.config)
        except GnnflowError as error:
            failed[variant.label] = error
            say(f"{variant.label}: failed: {error}")
    if not runs:
        raise next(iter(failed.values()))
    comparison = compare_runs(
        {label: result.uri for label, result in runs.items()},
        name=experiment.name,
        workspace=experiment.variants[0].config.workspace,
        failed={label: str(error) for label, error in failed.items()},
    )
    return SweepResult(experiment.name, runs, failed, comparison)
