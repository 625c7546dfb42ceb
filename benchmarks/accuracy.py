"""Test scores on the public graphs over several seeds, by paths through the code and by training strategies.

    python benchmarks/accuracy.py --data DIR --seeds 10 [--only cora_gcn,cora_gat] [--set "train.lr=0.02"]
    python benchmarks/accuracy.py --only cora_gcn --forms "as configured; torch kernels; 2 ranks; 4 ranks"
    python benchmarks/accuracy.py --only citeseer_gcn --forms "shards; store; cluster-batch; global-batch"
    python benchmarks/accuracy.py --only facebook_pages_sage --forms "as configured; 2 ranks; 4 ranks" --seeds 1
        --set "train.batch_size=512; train.lr=0.001; train.epochs=20; train.patience=0" [--plot FILE]

Each run takes the stages up to training, of a file of configs/, with tasks one after another; forms take turns. The
test score belongs to the weights that validation picked. Targets per step over all ranks are the config's, so every
path trains the same model on batches of the same size. `shards`, `store`, `cluster-batch` and `global-batch` train with
the settings of `STRATEGIES`, and `alike` is cluster-batch with the targets per update, updates and rates of mini-batch.

The difference is to the first form on the same seeds, with a 95 % interval (Student's t). `prepared` are the seconds of
stages that not every form has (flat, partition); `to 99 %` are seconds until validation first reached 99 % of the best
that the first form reached with that seed, preparation included. The plot has the validation score of each form's first
seed, by epochs or seconds. Ends with 1 where a mean falls short of what its case requires.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from harness import DATA, PLOT, Benchmark, Chosen, Option, Spread, draw_lines, folder_of, run, tell
from scipy import stats

from gnnflow.cluster import Cluster
from gnnflow.config import Config, MiniBatchConfig, load_config
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
OWN_STAGES = ("flat", "partition")
ENOUGH = 0.99
_EVERY_NEIGHBOUR = "neighbors={sampling: {kind: none}}"


@dataclass(frozen=True)
class Case:
    """A config and the mean test score it must reach; `required` None means the score is only reported."""

    config: str
    required: float | None
    metric: str = "accuracy"


CASES = {
    "cora_gcn": Case("cora", 0.811),
    "cora_gat": Case("cora_gat", 0.82),
    "cora_sage": Case("cora_sage", 0.80),
    "citeseer_gcn": Case("citeseer", 0.70),
    "amazon_photo_gcn": Case("amazon_photo", 0.90),
    "facebook_pages_sage": Case("facebook_pages", 0.93),
    "twitch_sage": Case("twitch", None, "roc_auc"),
}
_SERVER = "train.updater={{kind: parameter_server, servers: 1, mode: {}}}"
PATHS: dict[str, tuple[int, tuple[str, ...]]] = {
    "as configured": (1, ()),
    "torch kernels": (1, ()),
    "bfloat16": (1, ("train.precision=bfloat16",)),
    "2 ranks": (2, ()),
    "4 ranks": (4, ()),
    "2 ranks, synchronous server": (2, (_SERVER.format("synchronous"),)),
    "2 ranks, bounded server": (2, (_SERVER.format("bounded"),)),
    "2 ranks, asynchronous server": (2, (_SERVER.format("asynchronous"),)),
}
"""What each path overrides, after its number of ranks."""


@dataclass(frozen=True)
class Strategies:
    """The training keys of each strategy on a graph, and the keys that all have.

    On Cora and Citeseer all have Kipf and Welling's rates. On the other graphs mini-batch and cluster-batch had equally
    many settings to choose from, of about as many updates of the weights; the lowest validation loss was chosen.
    """

    mini: str
    cluster: str
    clusters: int
    epochs: int
    all: str = "metric: accuracy"
    every_neighbour: bool = False
    alike: str = ""

    def overrides(self, form: str) -> list[str]:
        """Return what a strategy changes in the graph's config."""
        if form in {"shards", "store"}:
            keys = f"source: {form}, eval_batch_size: 1000, patience: 0, {self.mini}, {self.all}"
            return [f"train={{strategy: mini-batch, {keys}}}", *([_EVERY_NEIGHBOUR] if self.every_neighbour else [])]
        if form == "global-batch":
            keys = f"epochs: {self.epochs}, patience: 0, lr: 0.01, weight_decay: 5.0e-4, {self.all}"
            return [f"train={{strategy: global-batch, {keys}}}", "partition={kind: metis}", _EVERY_NEIGHBOUR]
        own, clusters = (self.alike, 16) if form == "alike" else (self.cluster, self.clusters)
        train = f"train={{strategy: cluster-batch, patience: 0, {own}, {self.all}}}"
        return [train, f"partition={{kind: metis, clusters: {clusters}}}", _EVERY_NEIGHBOUR]


_RATES = "lr: 0.01, weight_decay: 5.0e-4"
_FALLING = "metric: loss, schedule: {kind: cosine}"
STRATEGIES = {
    "cora": Strategies(
        f"batch_size: 140, epochs: 200, {_RATES}",
        f"clusters_per_batch: 4, boundary_hops: 1, epochs: 200, {_RATES}",
        clusters=16,
        epochs=200,
    ),
    "citeseer": Strategies(
        f"batch_size: 120, epochs: 200, {_RATES}",
        f"clusters_per_batch: 4, boundary_hops: 1, epochs: 200, {_RATES}",
        clusters=16,
        epochs=200,
    ),
    "amazon_photo": Strategies(
        "batch_size: 160, epochs: 200, lr: 0.01, weight_decay: 1.0e-3",
        f"clusters_per_batch: 48, boundary_hops: 1, accumulate: 2, epochs: 200, {_RATES}",
        clusters=128,
        epochs=200,
        all=_FALLING,
        alike="clusters_per_batch: 8, boundary_hops: 2, accumulate: 2, epochs: 200, lr: 0.01, weight_decay: 1.0e-3",
    ),
    "facebook_pages": Strategies(
        "batch_size: 1024, epochs: 29, lr: 0.02, weight_decay: 5.0e-4",
        "clusters_per_batch: 4, boundary_hops: 2, epochs: 20, lr: 0.02, weight_decay: 5.0e-4",
        clusters=64,
        epochs=320,
        all=_FALLING,
        every_neighbour=True,
    ),
}


@dataclass(frozen=True)
class Run:
    """One seed of one form: seconds before training, and the results of training."""

    prepared: float
    facts: TrainFacts

    @property
    def seconds(self) -> list[float]:
        """Seconds from the beginning of training to the end of each epoch."""
        return list(np.cumsum([row["seconds"] for row in self.facts.history]).tolist())

    def valid(self, metric: str) -> list[float]:
        """Return the validation score after each epoch."""
        return [row[f"valid_{metric}"] for row in self.facts.history]

    def reaches(self, value: float, metric: str) -> float | None:
        """Return the seconds until validation is as good as a value; None if it never is."""
        found = np.flatnonzero(np.array(self.valid(metric)) >= value)
        return None if not len(found) else self.prepared + self.seconds[found[0]]


def config_of(chosen: Chosen, case: Case, form: str, *, seed: int, workspace: str) -> Config:
    """Return the run of one seed."""
    path = CONFIGS / f"{case.config}.yaml"
    given: Any = {
        "source": str(path),
        "environment": {**os.environ, "GNNFLOW_DATA": str(Path(chosen.data).resolve())},
        "workspace": workspace,
    }
    more = [each.strip() for each in chosen.set.split(";") if each.strip()]
    own = ["cluster={kind: synchronous}", f"seed={seed}"]
    if form not in PATHS:
        return load_config(path.read_text(), overrides=[*own, *STRATEGIES[case.config].overrides(form), *more], **given)
    ranks, overrides = PATHS[form]
    train = load_config(path.read_text(), overrides=more, **given).train
    if ranks > 1:
        assert isinstance(train, MiniBatchConfig)
        if train.batch_size % ranks:
            sys.exit(f"{train.batch_size} targets per step cannot be divided equally among {ranks} ranks")
        own[0] = f"cluster={{kind: local, workers: {ranks}, memory_limit: 0}}"
        more += [f"train.workers={ranks}", f"train.batch_size={train.batch_size // ranks}"]
    return load_config(path.read_text(), overrides=[*own, *overrides, *more], **given)


def run_once(config: Config, form: str) -> Run:
    """Make the inputs of training, and train."""
    with (
        # as if the native core were not built
        patch("gnnflow.kernels.core.kernels", lambda: None) if form == "torch kernels" else nullcontext(),
        Cluster(config.cluster) if config.train.workers > 1 else nullcontext() as cluster,
    ):
        context, prepared = StageContext.of(config, cluster), 0.0
        for stage in context.run.stages[: context.run.stages.index("train")]:
            made = make_artifact(context, stage)
            prepared += made.manifest.timings["seconds"] if stage in OWN_STAGES else 0.0
        return Run(prepared, make_artifact(context, "train").facts(TrainFacts))


def difference(values: Sequence[float], first: Sequence[float]) -> str:
    """Return the mean difference of the values from the first form's, with a 95 % interval."""
    more = [value - other for value, other in zip(values, first, strict=True)]
    mean = statistics.mean(more)
    if len(more) == 1 or not any(more):
        return f"{mean:+.4f}"
    margin = float(stats.t.ppf(0.975, len(more) - 1)) * statistics.stdev(more) / len(more) ** 0.5
    return f"{mean:+.4f} ({mean - margin:+.4f} to {mean + margin:+.4f})"


def rows_of(name: str, case: Case, found: dict[str, list[Run]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row per form of a case."""
    scores = {form: [each.facts.metrics[f"test.{case.metric}"] for each in runs] for form, runs in found.items()}
    first, *_ = found
    wanted = [ENOUGH * max(each.valid(case.metric)) for each in found[first]]
    for form, runs in found.items():
        reached = [each.reaches(value, case.metric) for each, value in zip(runs, wanted, strict=True)]
        times = [each for each in reached if each is not None]
        epoch = statistics.median(each.seconds[-1] / len(each.seconds) for each in runs)
        prepared = statistics.median(each.prepared for each in runs)
        valid = Spread(each.facts.metrics[f"valid.{case.metric}"] for each in runs)
        passed = case.required is None or form not in PATHS or statistics.mean(scores[form]) >= case.required
        beside = difference(scores[form], scores[first]) if form != first else None
        to = f"{statistics.median(times):.2f} ({len(times)} of {len(runs)})" if times else "never"
        shown = (case.metric, Spread(scores[form]), beside, valid, prepared, 1e3 * epoch, to, case.required)
        yield (name, form, *shown, "" if passed else "FAIL")


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of each case, once all seeds are there."""
    lines: dict[str, Any] = {}
    with folder_of(chosen.workspace) as workspace:
        for name in chosen.only.split(","):
            case, found = CASES[name], dict[str, list[Run]]()
            for seed in range(chosen.seeds):
                for form in [each.strip() for each in chosen.forms.split(";")]:
                    ran = run_once(config_of(chosen, case, form, seed=seed, workspace=str(workspace)), form)
                    found.setdefault(form, []).append(ran)
                    tell(f"{name}, {form}, seed {seed}: {ran.facts.metrics[f'test.{case.metric}']:.4f}")
            yield from rows_of(name, case, found)
            for form, (each, *_) in found.items():
                valid, seconds = each.valid(case.metric), [each.prepared + second for second in each.seconds]
                lines[form] = (list(range(1, len(valid) + 1)), valid) if chosen.by == "epochs" else (seconds, valid)
    if chosen.plot:
        draw_lines(chosen.plot, lines, x_label=chosen.by, y_label=f"validation {case.metric}, {case.config}")


BENCH = Benchmark(
    columns=(
        "case",
        "form",
        "metric",
        "test",
        "above the first",
        "valid",
        "prepared s",
        "epoch ms",
        "s to 99 %",
        "required",
        "verdict",
    ),
    rows=rows,
    options={
        "data": DATA,
        "only": Option(",".join(CASES), "cases"),
        "forms": Option("as configured", f"separated by '; ': {'; '.join(PATHS)}; and strategies"),
        "seeds": Option(10, "seeds 0 .. N-1"),
        "set": Option("", "KEY=VALUE of the config, several separated by ';'"),
        "workspace": Option("", "folder for artifacts that are kept, so that a run goes on where one stopped"),
        "by": Option("epochs", "axis of the plot", choices=("epochs", "seconds")),
        "plot": PLOT,
    },
    small={"only": "twitch_sage", "seeds": 1, "set": "train.epochs=2", "forms": "as configured; bfloat16"},
    needs=("data/twitch",),
)


if __name__ == "__main__":
    run(BENCH)
