"""Test scores with other values of lr, dropout, hidden and patience than the defaults, on ten graphs.

    python benchmarks/defaults.py --data DIR --seeds 2 --workspace FOLDER
    python benchmarks/defaults.py --data DIR --seeds 2 --workspace FOLDER --only cora,citeseer

Each form changes one key of `BASE`, which every run states whole, so the table means the same whatever the defaults of
today are. Six graphs are public, four are generated. The test score is of the epoch that validation chose, by the
metric that `train.metric: auto` stands for. A form's regret on a graph is how far its mean test score over the seeds
is below the best form's, in hundredths; its rank is its place among the forms. `above base` is the mean over graphs of
its score minus the base's, with a 95 % interval (Student's t over graphs). With a workspace, artifacts are kept: a
benchmark that was stopped goes on where it was, and graphs may be measured in several runs, the last one with all.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from harness import DATA, Benchmark, Chosen, Option, folder_of, run, tell
from scipy import stats

from gnnflow.config import Config, load_config
from gnnflow.datasets import write_accounts, write_payments, write_shop, write_typed_payments
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.draft import draft_config
from gnnflow.stages.running import make_artifact

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
BASE = {"lr": 0.01, "dropout": 0.5, "hidden": 64, "patience": 20}
VALUES: Mapping[str, tuple[float, ...]] = {
    "lr": (0.003, 0.03),
    "dropout": (0.0, 0.2),
    "hidden": (32, 128),
    "patience": (0, 10),
}
MODEL_KEYS = ("hidden", "dropout")


@dataclass(frozen=True)
class Case:
    """A graph: the config whose tables are read, the layer's kind, and the size of training.

    tables: writes the generated tables to a folder and returns a config's text, or overrides for the config's file.
    """

    kind: str
    batch_size: int
    epochs: int = 60
    config: str = ""
    tables: Callable[[Path], tuple[str, list[str]]] | None = None


def _drafted(write: Callable[[str], list[str]]) -> Callable[[Path], tuple[str, list[str]]]:
    def tables(folder: Path) -> tuple[str, list[str]]:
        return draft_config(write(str(folder)), name="tables").text, []

    return tables


def _payments(folder: Path) -> tuple[str, list[str]]:
    nodes, edges = write_payments(str(folder), num_nodes=5_000, num_edges=50_000)
    return (CONFIGS / "quickstart.yaml").read_text(), [f"graph.nodes={nodes}", f"graph.edges={edges}"]


def _typed_payments(folder: Path) -> tuple[str, list[str]]:
    graph = write_typed_payments(str(folder), num_nodes=5_000, num_edges=50_000)
    places = [f"graph.{key}.{name}={uri}" for key in ("nodes", "edges") for name, uri in graph[key].items()]
    return (CONFIGS / "payments_typed.yaml").read_text(), places


CASES: Mapping[str, Case] = {
    "cora": Case("gcn", 140, config="cora"),
    "citeseer": Case("gcn", 120, config="citeseer"),
    "amazon_photo": Case("gcn", 160, config="amazon_photo"),
    "facebook_pages": Case("sage", 512, epochs=30, config="facebook_pages"),
    "twitch": Case("sage", 1024, epochs=12, config="twitch"),
    "imdb": Case("rgcn", 400, config="imdb"),
    "payments": Case("sage", 256, tables=_payments),
    "payments_typed": Case("sage", 256, tables=_typed_payments),
    "accounts": Case("sage", 256, tables=_drafted(write_accounts)),
    "shop": Case("sage", 256, tables=_drafted(write_shop)),
}


def forms() -> dict[str, dict[str, float]]:
    """Return the values of each form by its name, the base first."""
    varied = {f"{key} {value:g}": {**BASE, key: value} for key, values in VALUES.items() for value in values}
    return {"base": dict(BASE)} | varied


@cache
def source_of(name: str, workspace: Path) -> tuple[str, list[str]]:
    """Return the text of a graph's config and overrides with the places of its tables, which are generated once."""
    case = CASES[name]
    if case.tables is None:
        return (CONFIGS / f"{case.config}.yaml").read_text(), []
    return case.tables(workspace / "tables" / name)


def config_of(chosen: Chosen, name: str, values: Mapping[str, float], *, seed: int, workspace: Path) -> Config:
    """Return the run of one graph, form and seed."""
    case = CASES[name]
    text, places = source_of(name, workspace)
    epochs = min(case.epochs, chosen.epochs or case.epochs)
    model = ", ".join(f"{key}: {values[key]:g}" for key in MODEL_KEYS)
    train = ", ".join(f"{key}: {value:g}" for key, value in values.items() if key not in MODEL_KEYS)
    own = [
        f"model={{kind: {case.kind}, layers: 2, {model}}}",
        f"train={{epochs: {epochs}, batch_size: {case.batch_size}, {train}}}",
        "cluster={kind: synchronous}",
        f"seed={seed}",
    ]
    environment = {**os.environ, "GNNFLOW_DATA": str(Path(chosen.data).absolute())}
    return load_config(text, overrides=[*places, *own], workspace=str(workspace), environment=environment)


def trained(config: Config) -> TrainFacts:
    """Return the course of a run's training, made or found."""
    context = StageContext.of(config, None)
    for stage in context.run.stages[: context.run.stages.index("train")]:
        make_artifact(context, stage)
    return make_artifact(context, "train").facts(TrainFacts)


@dataclass(frozen=True)
class Found:
    """The results of a graph: by form, the test score of each seed, and the epochs it trained."""

    scores: Mapping[str, list[float]]
    epochs: Mapping[str, float]

    @property
    def means(self) -> dict[str, float]:
        """The mean score of each form."""
        return {form: statistics.mean(scores) for form, scores in self.scores.items()}

    def regret(self, form: str) -> float:
        """Return how far a form is below the best one, in hundredths."""
        means = self.means
        return 100 * (max(means.values()) - means[form])

    def rank(self, form: str) -> float:
        """Return a form's place, 1 for the best; forms with the same score share the mean of their places."""
        means = self.means
        return float(stats.rankdata([-mean for mean in means.values()])[list(means).index(form)])

    def above(self, form: str) -> float:
        """Return how far a form is above the base, in hundredths."""
        return 100 * (self.means[form] - self.means["base"])


def measure(chosen: Chosen, name: str, *, workspace: Path) -> Found:
    """Return the results of a graph."""
    scores: dict[str, list[float]] = {}
    epochs: dict[str, list[int]] = {}
    for form, values in forms().items():
        for seed in range(chosen.seeds):
            facts = trained(config_of(chosen, name, values, seed=seed, workspace=workspace))
            scores.setdefault(form, []).append(facts.metrics[f"test.{facts.metric}"])
            epochs.setdefault(form, []).append(len(facts.history))
            tell(f"{name}, {form}, seed {seed}: {facts.metric} {scores[form][-1]:.4f}, epochs {epochs[form][-1]}")
    return Found(scores, {form: statistics.mean(counts) for form, counts in epochs.items()})


def interval(values: list[float]) -> str:
    """Return the mean of values with a 95 % interval."""
    mean = statistics.mean(values)
    if len(values) == 1 or not any(values):
        return f"{mean:+.2f}"
    margin = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.2f} ({mean - margin:+.2f} to {mean + margin:+.2f})"


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield a row per form, once all graphs are there."""
    names = chosen.only.split(",")
    with folder_of(chosen.workspace) as workspace:
        found = {name: measure(chosen, name, workspace=workspace.absolute()) for name in names}
    for form in forms():
        regrets = {name: each.regret(form) for name, each in found.items()}
        yield (
            form,
            float(np.mean([each.rank(form) for each in found.values()])),
            f"{statistics.mean(regrets.values()):.2f}",
            interval([each.above(form) for each in found.values()]),
            float(np.mean([each.epochs[form] for each in found.values()])),
            "; ".join(f"{name} {regret:.1f}" for name, regret in regrets.items()),
        )


BENCH = Benchmark(
    columns=("form", "mean rank", "mean regret", "above base", "epochs", "regret by graph"),
    rows=rows,
    options={
        "data": DATA,
        "only": Option(",".join(CASES), "graphs"),
        "seeds": Option(2, "seeds 0 .. N-1"),
        "epochs": Option(0, "most epochs; 0 takes each graph's own"),
        "workspace": Option("", "folder for artifacts that are kept, so that a run goes on where one stopped"),
    },
    small={"only": "accounts", "seeds": 1, "epochs": 2},
)


if __name__ == "__main__":
    run(BENCH)
