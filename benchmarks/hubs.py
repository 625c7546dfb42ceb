"""Slowest and median task of select, GraphFlat and GraphInfer on a graph with a hub, whole or split.

    python benchmarks/hubs.py [--folder FOLDER] [--nodes 1000000 --edges 4000000 --partitions 8]

The graph has random edges, one node with an in-edge from every node and one with an out-edge to every node. select and
GraphFlat sample 15, then 10 in-edges; GraphInfer reads all, with an untrained model of 2 layers, with rows mapped and
with rows sent. Each stage runs with `neighbors.hub_threshold` at its default, and with one that no node reaches. Tasks
run one after the other in one process, in every other turn from the last one on, since the first one of a round also
pays for memory that the process has not had before; a task's processor seconds are the fewest of all turns, in which
the forms alternate. A row shows the round with the largest ratio of its slowest to its median task, among rounds that
count: with at least half of the slowest task of the stage; then the same ratio of the sums over all rounds. The last
column says how results differ from those without splitting: by a score at most, or whether files have the same bytes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import FOLDER, Benchmark, Chosen, Option, folder_of, run, tell
from scoring import untrained_job

from gnnflow.config import config_from_dict
from gnnflow.graph.sampling import Sampling
from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds as cut_neighborhoods
from gnnflow.infer.choice import Exchange
from gnnflow.infer.run import run_rounds as score_nodes
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.direct import SelectJob
from gnnflow.neighbors.direct import run_rounds as select_neighbors
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import from_matrix, to_matrix
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.tables import read_table
from gnnflow.storage.writing import FileEntry, remove_tree

FANOUTS = (15, 10)
WIDTH, OUTPUTS = 64, 16
NEVER = 10**12
COUNTS = 0.5
"""A round counts from this share of the slowest task of its stage on."""


@dataclass
class Timed(Synchronous):
    """Runs tasks one after another, and notes the processor seconds of each, round by round."""

    backwards: bool = False
    seconds: list[list[float]] = field(default_factory=list)

    def run(self, function: Callable[[int], Any], indices: Sequence[int]) -> Iterator[Any]:
        """Yield results in index order."""
        seconds, results = dict.fromkeys(indices, 0.0), {}
        for index in reversed(indices) if self.backwards else indices:
            begin = time.process_time()
            results[index] = function(index)
            seconds[index] = time.process_time() - begin
        self.seconds.append([*seconds.values()])
        yield from (results[index] for index in indices)


def store_of(chosen: Chosen) -> GraphStore:
    """Return the graph store; make it if it is missing."""
    nodes, edges = (Path(chosen.folder) / f"{name}.parquet" for name in ("nodes", "edges"))
    number = chosen.nodes
    if not nodes.exists():
        rng = np.random.default_rng(0)
        each, (source, target) = np.arange(number), rng.integers(0, number, (2, chosen.edges))
        # node 0 has an in-edge from every node, and the last node an out-edge to every one
        ends = {
            "src": np.concatenate([source, each, np.full(number, number - 1)]),
            "dst": np.concatenate([target, np.zeros(number, np.int64), each]),
        }
        x = rng.standard_normal((number, WIDTH), np.float32)
        # a tenth of the nodes are targets, a tenth of these for validation
        drawn = rng.integers(0, 100, number)
        split = pa.array(["train", "valid"]).take(pa.array((drawn == 0).astype(np.int8), mask=drawn >= 10))  # noqa: PLR2004
        pq.write_table(pa.table(ends), edges)
        label = pa.array(x[:, :OUTPUTS].argmax(1))
        pq.write_table(pa.table({"id": each, "x": from_matrix(x), "label": label, "split": split}), nodes)
    content = {
        "name": "hubs",
        "workspace": str(Path(chosen.folder) / "workspace"),
        "graph": {"nodes": str(nodes), "edges": str(edges), "partitions": chosen.partitions},
        "model": {"kind": "gcn"},
        "cluster": {"kind": "synchronous"},
    }
    made = make_artifact(StageContext.of(config_from_dict(content)), "ingest")
    return GraphStore.of(made.artifact, made.manifest)


@dataclass(frozen=True)
class Bench:
    """The stages over a store, with in-edges of hubs split above a threshold."""

    folder: Path
    store: GraphStore
    hidden: int
    shard_size: int

    def select(self, runner: RoundRunner, threshold: int) -> Sequence[FileEntry]:
        """Select in-edges."""
        artifact = str(self.folder / f"selected-{threshold}")
        job = SelectJob(artifact, self.store, "uniform", max(FANOUTS), 0, threshold)
        return select_neighbors(job, runner).files

    def flat(self, runner: RoundRunner, threshold: int) -> Sequence[FileEntry]:
        """Cut neighbourhoods over selected in-edges."""
        sampled = Neighbors(self.store, str(self.folder / f"selected-{threshold}"), Sampling("uniform", FANOUTS))
        job = FlatJob(str(self.folder / f"flat-{threshold}"), sampled, len(FANOUTS), "shared", None)
        return cut_neighborhoods(job, runner, shard_size=self.shard_size).files

    def infer(self, kind: str, *, mapped: bool) -> Callable[[RoundRunner, int], np.ndarray[Any, Any]]:
        """Return a function that scores all nodes."""

        def scores(runner: RoundRunner, threshold: int) -> np.ndarray[Any, Any]:
            keys = {"kind": kind, "hidden": self.hidden}
            job = untrained_job(self.folder, Neighbors(self.store), keys, name=kind)
            job = replace(job, exchange=Exchange(mapped=mapped), hub_threshold=threshold)
            files = [read_table(f"{job.artifact}/{each.name}") for each in score_nodes(job, runner).files]
            return np.concatenate([to_matrix(each["probabilities"]) for each in files])

        return scores


@dataclass
class Measured:
    """Of each round the processor seconds of its tasks, the fewest of all turns, and the last result."""

    tasks: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    result: Any = None

    def add(self, name: str, seconds: list[float]) -> None:
        """Add a turn of a round."""
        found = np.array(seconds)
        self.tasks[name] = np.minimum(self.tasks.get(name, found), found)

    @property
    def text(self) -> str:
        """The slowest and the median task of each round."""
        return ", ".join(f"{name} {each.max():.3f}/{np.median(each):.3f}" for name, each in self.tasks.items())

    @property
    def worst(self) -> tuple[str, float, float, float]:
        """The round with the largest ratio: its slowest task, its median, and the ratio."""
        most = max(each.max() for each in self.tasks.values())
        counting = {name: each for name, each in self.tasks.items() if each.max() >= COUNTS * most}
        name, tasks = max(counting.items(), key=lambda each: each[1].max() / np.median(each[1]))
        return name, float(tasks.max()), float(np.median(tasks)), float(tasks.max() / np.median(tasks))


def difference(first: Any, second: Any) -> str:
    """Return how two results differ."""
    if isinstance(first, np.ndarray):
        return f"{np.abs(first - second).max():.1e}"
    return "same bytes" if [each.sha256 for each in first] == [each.sha256 for each in second] else "FAIL"


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield each stage and form."""
    with folder_of(chosen.folder) as folder:
        chosen.folder = str(folder)
        bench = Bench(folder, store_of(chosen), chosen.hidden, chosen.shard_size)
        stages: dict[str, Callable[[RoundRunner, int], Any]] = {"select": bench.select, "GraphFlat": bench.flat}
        for kind in chosen.models.split(","):
            stages[f"GraphInfer, {kind}, mapped"] = bench.infer(kind, mapped=True)
            stages[f"GraphInfer, {kind}, sent"] = bench.infer(kind, mapped=False)
        for stage, work in stages.items():
            if chosen.only not in stage:
                continue
            forms = {"whole": NEVER, "split": chosen.threshold}
            found = {form: Measured() for form in forms}
            for turn in range(chosen.turns):
                for form, threshold in forms.items():
                    scheduler = Timed(backwards=turn % 2 == 1)
                    runner = RoundRunner(str(folder / "work"), scheduler)
                    found[form].result = work(runner, threshold)
                    remove_tree(str(folder / "work"))
                    for timing, seconds in zip(runner.timings, scheduler.seconds, strict=True):
                        found[form].add(timing.name, seconds)
            for form, measured in found.items():
                slowest = sum(each.max() for each in measured.tasks.values())
                whole = sum(each.sum() for each in measured.tasks.values())
                medians = sum(statistics.median(each.tolist()) for each in measured.tasks.values())
                same = "" if form == "whole" else difference(found["whole"].result, measured.result)
                tell(f"{stage}, {form}: {measured.text}")
                yield stage, form, *measured.worst, float(slowest / medians), float(whole), same


BENCH = Benchmark(
    columns=("stage", "hubs", "round", "slowest s", "median s", "ratio", "all rounds", "cpu s", "differs by"),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 1_000_000,
        "edges": Option(4_000_000, "besides those of the two hubs"),
        "partitions": 8,
        "threshold": 10_000,
        "models": "sage,gat",
        "hidden": 64,
        "shard_size": 8192,
        "only": Option("", "stages whose name has this text"),
        "turns": 3,
    },
    small={"nodes": 1_000, "edges": 4_000, "partitions": 2, "threshold": 100, "hidden": 8, "turns": 1},
)


if __name__ == "__main__":
    run(BENCH)
