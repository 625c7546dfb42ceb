"""Test accuracy and time to accuracy of one model by each training strategy, on the public graphs.

    GNNFLOW_DATA=data python benchmarks/strategies.py [--seeds 10] [--only cora,citeseer] [--by store,cluster]
    GNNFLOW_DATA=data python benchmarks/strategies.py --times [--seeds 3] [--plots docs/images]
    GNNFLOW_DATA=data python benchmarks/strategies.py --alike [--only amazon_photo] [--by store]
    GNNFLOW_DATA=data python benchmarks/strategies.py --choose [--seeds 3] [--only amazon_photo]

Layers and dropout are those of configs/<graph>.yaml, and so is the neighbours' sample of mini-batch, unless its
settings read every neighbour as the other strategies do. The rest is in `strategies_settings.py`.

Without a flag: test accuracy of the weights that validation kept, and by how much it is above the first strategy's on
the same seeds, with a 95 % interval (Student's t). With --alike cluster-batch also has mini-batch's own targets per
update, updates and rates, which no search decides. With --times the same training, with its validation accuracy after
every epoch: `prepared` is the seconds of the stages that one strategy has and the others do not (flat, partition),
`epoch` those of training alone; `to 99 %` is when validation first reached 99 % of the best that the first strategy
reached with that seed, preparation included. With --plots one picture per graph. With --choose the settings of
mini-batch and cluster-batch are compared on seeds of their own, by the valid split; the test split is not looked at.
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
from scipy import stats
from strategies_settings import CHOICES, GRAPHS, STRATEGIES, Graph, overrides

from gnnflow.config import Config, load_config
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact

_OWN_STAGES = ("flat", "partition")
_ENOUGH = 0.99
_CHOOSING = 100
"""The first seed of --choose."""


@dataclass(frozen=True)
class Run:
    """One seed of one strategy: seconds before training, and what training told."""

    prepared: float
    facts: TrainFacts

    @property
    def accuracy(self) -> float:
        """Test accuracy of the kept weights."""
        return self.facts.metrics["test.accuracy"]

    @property
    def seconds(self) -> list[float]:
        """Seconds from the beginning of training to the end of each epoch."""
        return np.cumsum([row["seconds"] for row in self.facts.history]).tolist()

    @property
    def valid(self) -> list[float]:
        """Validation accuracy after each epoch."""
        return [row["valid_accuracy"] for row in self.facts.history]

    def reaches(self, value: float) -> float | None:
        """Return the seconds until validation is as good as a value; None where it never is."""
        found = np.flatnonzero(np.array(self.valid) >= value)
        return None if not len(found) else self.prepared + self.seconds[found[0]]


def run_once(name: str, changes: list[str], *, seed: int, data: str, workspace: str) -> Run:
    """Make what training of one seed needs, and train."""
    context, prepared = StageContext.of(config_of(name, changes, seed=seed, data=data, workspace=workspace)), 0.0
    for stage in context.run.stages[: context.run.stages.index("train")]:
        made = make_artifact(context, stage)
        prepared += made.manifest.timings["seconds"] if stage in _OWN_STAGES else 0.0
    return Run(prepared, make_artifact(context, "train").facts(TrainFacts))


def config_of(name: str, changes: list[str], *, seed: int, data: str, workspace: str) -> Config:
    """Return the run of one seed."""
    path = CONFIGS / f"{name}.yaml"
    return load_config(
        path.read_text(),
        overrides=["cluster={kind: synchronous}", *changes, f"seed={seed}"],
        workspace=workspace,
        source=str(path),
        environment={**os.environ, "GNNFLOW_DATA": data},
    )


def measure(name: str, chosen: argparse.Namespace, workspace: str) -> dict[str, list[Run]]:
    """Return the runs of every seed by strategy, strategies in turns."""
    found: dict[str, list[Run]] = {}
    graph = replace(GRAPHS[name], metric="accuracy") if chosen.times else GRAPHS[name]
    for seed in range(chosen.seeds):
        for strategy, changes in compared(graph, chosen):
            run = run_once(name, changes, seed=seed, data=chosen.data, workspace=workspace)
            found.setdefault(strategy, []).append(run)
            said = {"graph": name, "strategy": strategy, "seed": seed, "accuracy": run.accuracy}
            print(json.dumps(said), flush=True)
    return found


def compared(graph: Graph, chosen: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each way to train that is compared, and what it changes in the graph's config."""
    for strategy in chosen.by.split(","):
        yield STRATEGIES[strategy], overrides(graph, strategy)
    for setting in graph.alike if chosen.alike else ():
        yield str(setting), overrides(graph, setting.strategy, setting)


def accuracies(name: str, found: dict[str, list[Run]]) -> Iterator[str]:
    """Yield a line of the table per strategy: mean, deviation, and how far above the first one."""
    first = [run.accuracy for run in next(iter(found.values()))]
    for strategy, runs in found.items():
        values = [run.accuracy for run in runs]
        more = [value - other for value, other in zip(values, first, strict=True)]
        yield f"| {name} | {strategy} | {_spread(values)} | {_interval(more) if any(more) else ''} |"


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} +- {statistics.stdev(values) if len(values) > 1 else 0.0:.4f}"


def _interval(values: list[float]) -> str:
    """Return a mean with its 95 % interval, which one value does not have."""
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:+.4f}"
    margin = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.4f} ({mean - margin:+.4f} to {mean + margin:+.4f})"


def times(name: str, found: dict[str, list[Run]]) -> Iterator[str]:
    """Yield a line of the table of times per strategy."""
    wanted = [_ENOUGH * max(run.valid) for run in next(iter(found.values()))]
    for strategy, runs in found.items():
        reached = [run.reaches(value) for run, value in zip(runs, wanted, strict=True)]
        seconds = [each for each in reached if each is not None]
        epoch = statistics.median(run.seconds[-1] / len(run.seconds) for run in runs)
        prepared = statistics.median(run.prepared for run in runs)
        to = f"{statistics.median(seconds):.2f} s ({len(seconds)} of {len(runs)})" if seconds else "never"
        yield f"| {name} | {strategy} | {prepared:.2f} s | {1e3 * epoch:.1f} ms | {to} |"


def choose(name: str, chosen: argparse.Namespace, workspace: str) -> Iterator[str]:
    """Yield a line of the table per setting of mini-batch and of cluster-batch: validation of the kept weights."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed, setting in product(range(_CHOOSING, _CHOOSING + chosen.seeds), CHOICES[name]):
        changes = overrides(GRAPHS[name], setting.strategy, setting)
        facts = run_once(name, changes, seed=seed, data=chosen.data, workspace=workspace).facts
        valid = facts.metrics["valid.accuracy"], min(row["valid_loss"] for row in facts.history)
        found.setdefault(str(setting), []).append(valid)
        print(json.dumps({"graph": name, "setting": str(setting), "seed": seed, "valid": valid}), flush=True)
    for said, values in found.items():
        accuracy, loss = (list(each) for each in zip(*values, strict=True))
        yield f"| {name} | {said} | {_spread(accuracy)} | {statistics.mean(loss):.4f} |"


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
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 .. N-1; of --choose, 100 .. 99+N")
    parser.add_argument("--only", default=",".join(GRAPHS), help="graphs")
    parser.add_argument("--by", default=",".join(STRATEGIES), help="strategies; the first is what others are held to")
    parser.add_argument("--alike", action="store_true", help="cluster-batch with the rates of mini-batch as well")
    parser.add_argument("--workspace", help="a folder that is kept, so that a run of this goes on where one stopped")
    parser.add_argument("--choose", action="store_true", help="compare settings by the valid split")
    parser.add_argument("--times", action="store_true", help="report seconds; the accuracy picks the weights then")
    parser.add_argument("--plots", type=Path, help="folder of the pictures, of --times")
    return parser.parse_args()


def main() -> None:
    """Train, draw and print."""
    chosen = arguments()
    columns: tuple[str, ...] = ("graph", "strategy", "test accuracy", "difference")
    if chosen.choose:
        columns = ("graph", "setting", "valid accuracy", "valid loss")
    elif chosen.times:
        columns = ("graph", "strategy", "prepared", "epoch", "to 99 %")
    table = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    with tempfile.TemporaryDirectory(prefix="gnnflow-strategies-") as folder:
        workspace = chosen.workspace or folder
        for name in chosen.only.split(","):
            if chosen.choose:
                table += choose(name, chosen, workspace)
                continue
            found = measure(name, chosen, workspace)
            table += (times if chosen.times else accuracies)(name, found)
            if chosen.plots and chosen.times:
                path = chosen.plots / f"strategies_{name}.png"
                draw_lines(path, lines_of(found), x_label="seconds", y_label=f"best validation accuracy so far, {name}")
    print("\n".join(table))


if __name__ == "__main__":
    main()
