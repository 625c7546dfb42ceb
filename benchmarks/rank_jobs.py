"""Trainings for the benchmarks of ranks, the cores of ranks, and their seconds of waiting and computing.

GraphSAGE or GAT of 2 layers over a generated graph, which GraphFlat cuts once. `count_waits` and `count_computing`, run
in each worker by `client.run`, start the counters there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Client
from graphflat import FANOUT, tables_in
from harness import Chosen, tell

from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict
from gnnflow.graph.facts import FlatFacts, GraphFacts
from gnnflow.layers.model import ModelSpec
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.stages.train import model_inputs
from gnnflow.train.fit import FitRun
from gnnflow.train.job import Shards, TrainJob
from gnnflow.train.ranks.operations import JOINING, Position

MODELS: dict[str, dict[str, Any]] = {
    "sage": {"kind": "sage", "hidden": 64},
    "gat": {"kind": "gat", "hidden": 16, "heads": 4},
}
STAGES = ("ingest", "select", "flat")
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_waited = [0.0]
_computed = [0.0]


def config_of(chosen: Chosen, folder: Path, *, ranks: int, **train: object) -> Config:
    """Return the config for this many ranks.

    chosen: nodes, edges, model, shard_size, batch_size, and epochs; one more epoch is trained first, which reads and
    checks files. train: other keys of training.
    """
    nodes, edges = tables_in(folder, num_nodes=chosen.nodes, num_edges=chosen.edges)
    keys: dict[str, object] = {
        "epochs": chosen.epochs + 1,
        "batch_size": chosen.batch_size,
        "lr": 0.003,
        "workers": ranks,
    }
    content = {
        "name": "ranks",
        "workspace": str(folder / "workspace"),
        "graph": {"nodes": nodes, "edges": edges, "partitions": 4},
        "neighbors": {"sampling": {"kind": "uniform", "fanout": list(FANOUT)}},
        "flat": {"hops": 2, "layout": "shared", "shard_size": chosen.shard_size},
        "model": {**MODELS[chosen.model], "layers": 2, "dropout": 0.0},
        "train": keys | train,
        "cluster": {"kind": "local", "workers": ranks, "memory_limit": 0},
    }
    return config_from_dict(content)


def make_shards(context: StageContext) -> None:
    """Run the stages before training, unless they are done."""
    for stage in STAGES:
        begin = time.perf_counter()
        make_artifact(context, stage)
        tell(f"{stage}: {time.perf_counter() - begin:.1f} s")


def job_of(config: Config, cluster: Cluster) -> TrainJob:
    """Return the job of the train stage, without the targets that it would only score."""
    context = StageContext.of(config, cluster)
    flat, graph = context.artifact("flat").facts(FlatFacts), context.artifact("ingest").facts(GraphFacts)
    return TrainJob(
        model=ModelSpec(config.model, model_inputs(graph, config.task)),
        graph=Shards(
            context.artifact("flat").uri, [entry for entry in flat.shards if entry.split == "train"], config.sampling
        ),
        label_kind=graph.label_kind,
        num_classes=graph.num_classes,
        train=config.train,
        seed=0,
    )


def with_batch(job: TrainJob, *, ranks: int, batch_size: int) -> TrainJob:
    """Return the same training on this many ranks."""
    return replace(job, train=job.train.model_copy(update={"workers": ranks, "batch_size": batch_size}))


def cores() -> list[list[int]]:
    """Return the processors that this process may use, grouped by core."""
    found: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        file = Path(_SIBLINGS.format(cpu))
        found.setdefault(file.read_text().strip() if file.exists() else str(cpu), []).append(cpu)
    return list(found.values())


def dealt_cores(there: Sequence[Sequence[int]], *, ranks: int, threads: int) -> list[list[int]]:
    """Return each rank's processors: one core per thread if there are enough, else at least one per rank.

    Empty if there are fewer cores than ranks.
    """
    each = min(len(there) // ranks, threads)
    if not each:
        return []
    return [[cpu for core in there[rank * each : (rank + 1) * each] for cpu in core] for rank in range(ranks)]


def pin_workers(client: Client, *, threads: int) -> list[list[int]]:
    """Put each worker on separate cores if there are enough, and return the processors of each.

    In the order of the addresses, in which free workers get ranks.
    """
    workers = sorted(client.nthreads())
    placed = dealt_cores(cores(), ranks=len(workers), threads=threads)
    for worker, cpus in zip(workers, placed, strict=False):
        client.run(_pin, cpus, workers=[worker])
    return placed


def _pin(cpus: Sequence[int]) -> None:
    """Move all threads of this process; later threads inherit the processors of their parent."""
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cpus)


def count_waits() -> None:
    """Count from now on, in this process."""
    note, begun = Position.wait, [0.0]

    def counted(self: Position, *, over: bool) -> None:
        if over and self.doing != JOINING:
            _waited[0] += time.perf_counter() - begun[0]
        else:
            begun[0] = time.perf_counter()
        note(self, over=over)

    Position.wait = counted  # type: ignore[method-assign]


def seconds_waited() -> float:
    """Return the seconds that all ranks of this process have waited."""
    return _waited[0]


def count_computing() -> None:
    """Count from now on, in this process: all of its threads, in the epochs after the first."""
    train = FitRun.train_epoch

    def counted(self: FitRun) -> None:
        begin = time.process_time()
        train(self)
        _computed[0] += time.process_time() - begin if self.state.epoch else 0.0

    FitRun.train_epoch = counted  # type: ignore[method-assign]


def seconds_computed() -> float:
    """Return the seconds that all ranks of this process have computed."""
    return _computed[0]
