"""Test accuracy on the public graphs, over several seeds, through the whole pipeline.

    python benchmarks/accuracy.py --data DIR --seeds 10
    python benchmarks/accuracy.py --data DIR --only cora_gcn,cora_gat --set train.lr=0.02

Each run is `gnnflow run` on a file of configs/ in this process, with tasks one after another and no embeddings. Ingest
and GraphFlat are reused from one seed to the next where nothing is sampled. The test figure is that of the weights
which validation picked. Prints a table; with --json one line per run and one per case instead. Exits with 1 where a
mean falls short of what its case requires.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnflow.config import load_config
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
_OVERRIDES = ("cluster={kind: synchronous}", "infer.embeddings=false")


@dataclass(frozen=True)
class Case:
    """A config and the mean test metric it must reach; `required` None means the figure is only reported."""

    name: str
    config: str
    required: float | None
    metrics: tuple[str, ...] = ("accuracy",)


CASES = (
    Case("cora_gcn", "cora", 0.811),
    Case("cora_gat", "cora_gat", 0.82),
    Case("cora_sage", "cora_sage", 0.80),
    Case("citeseer_gcn", "citeseer", 0.70),
    Case("amazon_photo_gcn", "amazon_photo", 0.90),
    Case("facebook_pages_sage", "facebook_pages", 0.93),
    Case("twitch_sage", "twitch", None, ("accuracy", "roc_auc")),
)


@dataclass(frozen=True)
class Summary:
    """A case over its seeds: one line of the table per metric."""

    case: Case
    runs: Sequence[dict[str, Any]]

    def values(self, metric: str, split: str = "test") -> list[float]:
        """Return a metric of every run."""
        return [run["metrics"][f"{split}.{metric}"] for run in self.runs]

    @property
    def passed(self) -> bool | None:
        """Whether the mean of the case's first metric reaches what is required; None where nothing is."""
        if self.case.required is None:
            return None
        return statistics.mean(self.values(self.case.metrics[0])) >= self.case.required

    def figures(self) -> Iterator[dict[str, Any]]:
        """Yield one record per metric."""
        for metric in self.case.metrics:
            values = self.values(metric)
            yield {
                "case": self.case.name,
                "metric": metric,
                "runs": len(values),
                "mean": statistics.mean(values),
                "std": statistics.stdev(values) if len(values) > 1 else 0.0,
                "valid": statistics.mean(self.values(metric, "valid")),
                "epochs": statistics.mean(run["metrics"]["train.epochs"] for run in self.runs),
                "seconds": statistics.median(run["seconds"] for run in self.runs),
                "required": self.case.required if metric == self.case.metrics[0] else None,
                "passed": self.passed,
            }


def run_once(case: Case, seed: int, *, data: str, workspace: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Run a case's pipeline for one seed."""
    path = CONFIGS / f"{case.config}.yaml"
    config = load_config(
        path.read_text(),
        overrides=[*_OVERRIDES, *overrides, f"seed={seed}"],
        workspace=workspace,
        source=str(path),
        environment={**os.environ, "GNNFLOW_DATA": data},
    )
    begin = time.perf_counter()
    result = pipeline.run(StageContext.of(config))
    seconds = time.perf_counter() - begin
    return {"case": case.name, "seed": seed, "seconds": round(seconds, 2), "metrics": result.metrics}


def measure(case: Case, options: argparse.Namespace, workspace: str) -> Summary:
    """Run a case for every seed."""
    runs = []
    for seed in range(options.seeds):
        run = run_once(case, seed, data=options.data, workspace=workspace, overrides=options.overrides)
        runs.append(run)
        if options.json:
            print(json.dumps(run, sort_keys=True), flush=True)
        else:
            figures = "  ".join(f"{name} {run['metrics'][f'test.{name}']:.3f}" for name in case.metrics)
            print(f"{case.name} seed {seed}: {figures}  {run['seconds']:.1f} s", file=sys.stderr, flush=True)
    return Summary(case, runs)


def table(summaries: Sequence[Summary]) -> str:
    """Return the summaries as a Markdown table."""
    rows = ["| case | metric | test, mean +- std | valid | runs | epochs | s/run | required | |", "|---" * 9 + "|"]
    verdict = {True: "pass", False: "FAIL", None: ""}
    for summary in summaries:
        for row in summary.figures():
            required = "" if row["required"] is None else f"{row['required']:.3f}"
            rows.append(
                f"| {row['case']} | {row['metric']} | {row['mean']:.4f} +- {row['std']:.4f} | {row['valid']:.4f} "
                f"| {row['runs']} | {row['epochs']:.0f} | {row['seconds']:.1f} | {required} "
                f"| {verdict[row['passed']] if required else ''} |"
            )
    return "\n".join(rows)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("GNNFLOW_DATA", "data"), help="folder of the public graphs")
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 .. N-1")
    parser.add_argument("--only", default="", help="cases, comma-separated: " + ", ".join(case.name for case in CASES))
    parser.add_argument("--workspace", default="", help="where artifacts lie; a temporary folder by default")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of the table")
    options = parser.parse_args()
    unknown = {name for name in options.only.split(",") if name} - {case.name for case in CASES}
    if unknown or options.seeds < 1:
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}" if unknown else "--seeds must be at least 1")
    return options


def main() -> int:
    """Measure the chosen cases. Returns the exit status."""
    options = arguments()
    chosen = [case for case in CASES if not options.only or case.name in options.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="gnnflow-accuracy-") as scratch:
        summaries = [measure(case, options, options.workspace or scratch) for case in chosen]
    if options.json:
        for summary in summaries:
            for figures in summary.figures():
                print(json.dumps(figures, sort_keys=True))
    else:
        print(table(summaries))
        print(f"\nload average {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")
    return 1 if any(summary.passed is False for summary in summaries) else 0


if __name__ == "__main__":
    sys.exit(main())
