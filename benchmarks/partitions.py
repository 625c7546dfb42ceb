"""Kinds of partitioning compared: cut edges, bytes exchanged by GraphFlat and GraphInfer, and seconds.

    python benchmarks/partitions.py --data DIR [--graphs facebook_pages,amazon_photo] [--partitions 8]
        [--kinds hash,metis,louvain,ldg] [--turns 3] [--full] [--ranks 2] [--model sage]

Each graph goes through ingest, partition, select, flat, one epoch of training and infer, in one process, with the same
sampled neighbours (15 and 10; --full: all) and two layers of GraphSAGE of width 64. The bytes come from the manifests:
they count the compressed data that tasks of a stage's rounds sent each other, and themselves. Seconds are for the whole
stage, the smallest of the turns, in which the kinds alternate.

With --ranks each kind is trained by global-batch instead, over every in-edge, on so many processes of one thread, which
are joined by gloo on this host. Shown are the bytes that all ranks send in an epoch, forward and backward, without
gradients of weights and without validation, and seconds per epoch, the median of 10 after the first and the smallest of
the turns. `source` and `grid` place edges at their sources and on a grid.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from globalbatch import in_processes
from harness import DATA, Benchmark, Chosen, Option, folder_of, run

from gnnflow.config import GlobalBatchConfig, config_from_dict, model_from_dict
from gnnflow.executions.globalbatch import PlacedTensors
from gnnflow.executions.row_exchange import Counted
from gnnflow.layers.model import ModelSpec
from gnnflow.stages.base import StageContext, neighbors_of
from gnnflow.stages.running import make_artifact
from gnnflow.stages.train import model_inputs
from gnnflow.storage.filesystem import join, read_json
from gnnflow.train.globalbatch import open_source
from gnnflow.train.job import StoredGraph, TrainJob
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.updater import LocalUpdater

MIB = 1 << 20
PLACED: dict[str, dict[str, Any]] = {"source": {"kind": "edge_1d", "by": "source"}, "grid": {"kind": "vertex_cut"}}
EPOCHS = 10
STAGES = ("ingest", "partition", "select", "flat", "train", "infer")


def config_of(graph: str, kind: str, workspace: str, chosen: Chosen) -> Any:
    """Return the config of a public graph in partitions of a kind."""
    tables = Path(chosen.data) / graph
    sampling = {"kind": "none"} if chosen.full or chosen.ranks else {"kind": "uniform", "fanout": [15, 10]}
    return config_from_dict(
        {
            "name": f"{graph}-{kind}",
            "workspace": workspace,
            "graph": {
                "nodes": str(tables / "nodes.parquet"),
                "edges": str(tables / "edges.parquet"),
                "features": ["x"],
                "partitions": chosen.partitions,
            },
            "partition": PLACED.get(kind, {"kind": kind}),
            "neighbors": {"sampling": sampling},
            "flat": {"layout": "shared"},
            "model": {"kind": "sage", "aggregator": "mean", "hidden": 64, "layers": 2},
            "train": {"epochs": 1, "batch_size": 512, "metric": "accuracy"},
            "infer": {"targets": "all", "parity_samples": 0},
            "cluster": {"kind": "synchronous"},
        }
    )


def measured(config: Any) -> dict[str, float]:
    """Return a run's figures: of its partitions, of the bytes that stages exchange, and of their seconds."""
    context, found = StageContext.of(config), {}
    for stage in STAGES:
        if stage not in context.run.stages:
            continue
        made = make_artifact(context, stage)
        timings = made.manifest.timings
        found[f"{stage}_seconds"] = timings["seconds"]
        found[f"{stage}_mib"] = sum(each["exchanged_bytes"] for each in timings["rounds"]) / MIB
        if stage == "partition":
            told = read_json(join(made.artifact, "balance.json"))
            names = ("edge_cut", "replication", "balance_nodes", "balance_edges", "balance_targets")
            found |= {name: told[name] for name in names} | {f"hash_{name}": told["before"][name] for name in names}
    return found


def trained(config: Any, *, ranks: int, model: str) -> dict[str, float]:
    """Return the bytes that ranks of global-batch training exchange per epoch, and the seconds per epoch."""
    context = StageContext.of(config)
    for stage in ("ingest", "partition", "select"):
        if stage in context.run.stages:
            make_artifact(context, stage)
    neighbors = neighbors_of(context)
    facts = neighbors.store.facts
    job = TrainJob(
        model=ModelSpec(model_from_dict({"kind": model, "hidden": 64, "layers": 2}), model_inputs(facts, config.task)),
        graph=StoredGraph(neighbors),
        label_kind=facts.label_kind,
        num_classes=facts.num_classes,
        train=GlobalBatchConfig(workers=ranks),
        seed=0,
    )
    ran = in_processes(partial(epochs_of, job=job), ranks)
    return {
        "epoch_seconds": max(each["seconds"] for each in ran),
        "epoch_mib": sum(each["bytes"] for each in ran) / MIB,
        "states": ran[0]["states"],
    }


def epochs_of(group: RankGroup, *, job: TrainJob) -> dict[str, float]:
    """Train as one of several ranks; return seconds per epoch, bytes sent, and how many layers send states."""
    exchange = Counted(open_rows(group))
    model = job.model.build(seed=0).train()
    updater = LocalUpdater(model, job.train, exchange=AllReduce(model, group, is_joint=True))
    objective, seconds, moved, states = Objective(job.label_kind), [], 0, 0
    with open_source(job, exchange=exchange) as source:
        for epoch in range(EPOCHS + 1):
            step = source.step(epoch, 0)
            before, begin = exchange.sent_bytes, time.perf_counter()
            step.seed()
            loss, count = objective.loss(step.logits(model), step.labels)
            updater.step(loss, num_targets=count, weight=objective.weight(step.labels))
            seconds.append(time.perf_counter() - begin)
            moved = exchange.sent_bytes - before
            states = sum(isinstance(layer, PlacedTensors) for layer in step.batch.tensors.layers)
    return {"seconds": statistics.median(seconds[1:]), "bytes": moved, "states": states}


def rows_of(graph: str, found: dict[str, dict[str, float]]) -> Iterator[tuple[Any, ...]]:
    """Yield a graph's kinds. The others report the cut of `hash`, since they store the graph again."""
    told = next((row for row in found.values() if "hash_edge_cut" in row), {})
    for kind, row in found.items():
        prefix, of = ("", row) if "edge_cut" in row else ("hash_", told)
        even = (
            ", ".join(f"{of[f'{prefix}balance_{name}']:.2f}" for name in ("nodes", "edges", "targets")) if of else None
        )
        names = ("flat_mib", "flat_seconds", "infer_mib", "infer_seconds", "epoch_mib", "epoch_seconds", "states")
        shown = of.get(f"{prefix}edge_cut"), of.get(f"{prefix}replication"), even, row.get("partition_seconds")
        yield graph, kind, *shown, *(row.get(name) for name in names)


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the kinds of each graph, with the smallest figures of the turns."""
    for graph in chosen.graphs.split(","):
        found: dict[str, dict[str, float]] = {}
        for _ in range(chosen.turns):
            for kind in chosen.kinds.split(","):
                with folder_of("") as folder:
                    config = config_of(graph, kind, str(folder), chosen)
                    ran = trained(config, ranks=chosen.ranks, model=chosen.model) if chosen.ranks else measured(config)
                held = found.setdefault(kind, ran)
                held |= {name: min(held[name], value) for name, value in ran.items()}
        yield from rows_of(graph, found)


BENCH = Benchmark(
    columns=(
        "graph",
        "kind",
        "edges cut",
        "replication",
        "nodes, edges, targets",
        "partition s",
        "GraphFlat MiB",
        "GraphFlat s",
        "GraphInfer MiB",
        "GraphInfer s",
        "sent per epoch MiB",
        "epoch s",
        "layers that send states",
    ),
    rows=rows,
    options={
        "data": DATA,
        "graphs": "facebook_pages,amazon_photo",
        "kinds": "hash,range,ldg,louvain,metis",
        "partitions": 8,
        "turns": 3,
        "full": Option(default=False, help="every neighbour"),
        "ranks": Option(0, "train by global-batch on so many ranks instead"),
        "model": Option("sage", choices=("sage", "gcn", "gat")),
    },
    small={"graphs": "cora", "kinds": "hash,ldg", "partitions": 2, "turns": 1},
    needs=("data/cora",),
)


if __name__ == "__main__":
    run(BENCH)
