"""Test accuracy and time to accuracy of one model by each training strategy, on the public graphs.

    GNNFLOW_DATA=data python benchmarks/strategies.py [--seeds 10] [--only cora,citeseer] [--plots docs/images]
    GNNFLOW_DATA=data python benchmarks/strategies.py --choose [--seeds 10] [--only amazon_photo]

Layers, learning rate, decay and dropout are those of configs/<graph>.yaml, and so is the neighbours' sample of
mini-batch; the other strategies take every neighbour. The first rows are `mini-batch` from GraphFlat's shards and from
the store in memory; `global-batch` is there where this gnnflow has it. All train for as many epochs, and the weights of
the best validation accuracy are tested. `prepared` is the seconds of the stages that one strategy has and the others
do not (flat, partition), `epoch` those of training alone; `to 99 %` is when validation first reached 99 % of the best
that mini-batch from shards reached with that seed, preparation included. With --plots one picture per graph.

With --choose, the mean over seeds of the best validation accuracy of cluster-batch, for several cluster counts, shares
of them in a batch and boundaries: what `GRAPHS` holds of them is chosen by. The test split is not looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import CONFIGS
from plots import draw_lines

from gnnflow.config import PIPELINES, Config, load_config
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact

_OWN_STAGES = ("flat", "partition")
_ENOUGH = 0.99


@dataclass(frozen=True)
class Graph:
    """A graph: its epochs, its batches of targets, and how many of how many clusters are a batch."""

    epochs: int
    batch_size: int
    clusters: int
    per_batch: int
    boundary_hops: int
    weight_decay: float = 5e-4


GRAPHS = {
    "cora": Graph(200, 140, 16, 4, 1),
    "citeseer": Graph(200, 120, 16, 4, 1),
    "amazon_photo": Graph(100, 160, 32, 16, 0),
    "facebook_pages": Graph(15, 512, 64, 4, 1),
}
CHOICES = (8, 16, 32), (2, 4), (0, 1)
"""Numbers of clusters, the parts of them that are a batch, and boundary hops to choose from."""


@dataclass(frozen=True)
class Run:
    """One seed of one strategy: test accuracy, seconds before training, and validation accuracy by seconds."""

    accuracy: float
    prepared: float
    seconds: list[float]
    valid: list[float]

    def reaches(self, value: float) -> float | None:
        """Return the seconds until validation is as good as a value; None where it never is."""
        found = np.flatnonzero(np.array(self.valid) >= value)
        return None if not len(found) else self.prepared + self.seconds[found[0]]


def strategies(graph: Graph) -> dict[str, list[str]]:
    """Return the overrides of each strategy, by its name."""
    shared = f"epochs: {graph.epochs}, lr: 0.01, weight_decay: {graph.weight_decay}, metric: accuracy"
    mini = f"strategy: mini-batch, batch_size: {graph.batch_size}, eval_batch_size: 1000, {shared}"
    clusters = f"clusters_per_batch: {graph.per_batch}, boundary_hops: {graph.boundary_hops}"
    found = {
        "mini-batch, shards": [f"train={{{mini}}}"],
        "mini-batch, store": [f"train={{{mini}, source: store}}"],
        "cluster-batch": [
            f"train={{strategy: cluster-batch, {clusters}, {shared}}}",
            f"partition={{kind: metis, clusters: {graph.clusters}}}",
            "neighbors={sampling: {kind: none}}",
        ],
    }
    if "global-batch" in PIPELINES:
        found["global-batch"] = [
            f"train={{strategy: global-batch, {shared}}}",
            "partition={kind: metis}",
            "neighbors={sampling: {kind: none}}",
        ]
    return found


def config_of(name: str, overrides: list[str], *, seed: int, data: str, workspace: str) -> Config:
    """Return the run of one seed."""
    path = CONFIGS / f"{name}.yaml"
    return load_config(
        path.read_text(),
        overrides=["cluster={kind: synchronous}", *overrides, f"seed={seed}"],
        workspace=workspace,
        source=str(path),
        environment={**os.environ, "GNNFLOW_DATA": data},
    )


def run_once(config: Config) -> Run:
    """Make what training needs, and train."""
    context, prepared = StageContext.of(config), 0.0
    for stage in context.run.stages[: context.run.stages.index("train")]:
        made = make_artifact(context, stage)
        prepared += made.manifest.timings["seconds"] if stage in _OWN_STAGES else 0.0
    facts = make_artifact(context, "train").facts(TrainFacts)
    seconds = np.cumsum([row["seconds"] for row in facts.history]).tolist()
    return Run(facts.metrics["test.accuracy"], prepared, seconds, [row["valid_accuracy"] for row in facts.history])


def measure(name: str, chosen: argparse.Namespace, workspace: str) -> dict[str, list[Run]]:
    """Return the runs of every seed by strategy, strategies in turns."""
    found: dict[str, list[Run]] = {}
    for seed in range(chosen.seeds):
        for strategy, overrides in strategies(GRAPHS[name]).items():
            run = run_once(config_of(name, overrides, seed=seed, data=chosen.data, workspace=workspace))
            found.setdefault(strategy, []).append(run)
            said = {"graph": name, "strategy": strategy, "seed": seed, "accuracy": run.accuracy}
            print(json.dumps(said), flush=True)
    return found


def rows(name: str, found: dict[str, list[Run]]) -> Iterator[str]:
    """Yield a line of the table per strategy."""
    first = next(iter(found.values()))
    wanted = [_ENOUGH * max(run.valid) for run in first]
    for strategy, runs in found.items():
        values = [run.accuracy for run in runs]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        reached = [run.reaches(value) for run, value in zip(runs, wanted, strict=True)]
        times = [seconds for seconds in reached if seconds is not None]
        epoch = statistics.median(run.seconds[-1] / len(run.seconds) for run in runs)
        prepared = statistics.median(run.prepared for run in runs)
        to = f"{statistics.median(times):.2f} s ({len(times)} of {len(runs)})" if times else "never"
        mean = statistics.mean(values)
        yield f"| {name} | {strategy} | {mean:.4f} +- {spread:.4f} | {prepared:.2f} s | {1e3 * epoch:.1f} ms | {to} |"


def choices(name: str, chosen: argparse.Namespace, workspace: str) -> Iterator[str]:
    """Yield a line of the table per way of making clusters and batches of them."""
    for clusters, share, hops in product(*CHOICES):
        graph = replace(GRAPHS[name], clusters=clusters, per_batch=clusters // share, boundary_hops=hops)
        overrides, best = strategies(graph)["cluster-batch"], []
        for seed in range(chosen.seeds):
            run = run_once(config_of(name, overrides, seed=seed, data=chosen.data, workspace=workspace))
            best.append(max(run.valid))
        mean, spread = statistics.mean(best), statistics.stdev(best) if len(best) > 1 else 0.0
        yield f"| {name} | {graph.per_batch} of {clusters}, {hops} hops | {mean:.4f} +- {spread:.4f} |"


def lines_of(found: dict[str, list[Run]]) -> dict[str, Any]:
    """Return the curve of each strategy's first seed: the best validation accuracy so far by seconds."""
    return {
        strategy: (
            [runs[0].prepared + seconds for seconds in runs[0].seconds],
            np.maximum.accumulate(runs[0].valid).tolist(),
        )
        for strategy, runs in found.items()
    }


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("GNNFLOW_DATA", "data"), help="folder of the public graphs")
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 .. N-1")
    parser.add_argument("--only", default=",".join(GRAPHS), help="graphs")
    parser.add_argument("--workspace", help="a folder that is kept, so that a run of this goes on where one stopped")
    parser.add_argument("--choose", action="store_true", help="compare clusters and boundaries by validation accuracy")
    parser.add_argument("--plots", type=Path, help="folder of the pictures")
    return parser.parse_args()


def main() -> None:
    """Train, draw and print."""
    chosen = arguments()
    table = ["| graph | strategy | test accuracy | prepared | epoch | to 99 % |", "|---" * 6 + "|"]
    with tempfile.TemporaryDirectory(prefix="gnnflow-strategies-") as folder:
        for name in chosen.only.split(","):
            if chosen.choose:
                for line in choices(name, chosen, chosen.workspace or folder):
                    print(line, flush=True)
                continue
            found = measure(name, chosen, chosen.workspace or folder)
            table += rows(name, found)
            if chosen.plots:
                path = chosen.plots / f"strategies_{name}.png"
                draw_lines(path, lines_of(found), x_label="seconds", y_label=f"best validation accuracy so far, {name}")
    if not chosen.choose:
        print("\n".join(table))


if __name__ == "__main__":
    main()
