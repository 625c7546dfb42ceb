"""Kinds of partitioning beside each other: what is cut, what GraphFlat and GraphInfer exchange, and how long they take.

    GNNFLOW_DATA=DIR python benchmarks/partitions.py [--graphs facebook_pages amazon_photo] [--partitions 8]
        [--kinds hash metis louvain ldg] [--turns 3] [--full] [--ranks 2] [--model sage]

Each graph goes through ingest, partition, select, flat, one epoch of training and infer, in one process, with the same
sampled neighbours (15 and 10; --full: all) and two layers of GraphSAGE of width 64. The bytes are those of the
manifests: what the tasks of a stage's rounds sent each other, a task to itself included, as it is written, which is
compressed. Seconds are of the whole stage, the smallest of the turns, in which the kinds alternate.

With --ranks each kind is trained by global-batch instead, over every in-edge, on so many processes of one thread, which
are joined by gloo on this host: what all ranks send each other in an epoch, forward and backward, without gradients of
weights and without validation, and seconds per epoch, the median of 10 after the first and the smallest of the turns.
`source` and `grid` place edges at their sources and on a grid.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from globalbatch import in_processes

from gnnflow.config import GlobalBatchConfig, config_from_dict, model_from_dict
from gnnflow.executions.globalbatch import PlacedTensors
from gnnflow.executions.row_exchange import Counted
from gnnflow.layers.model import build_model
from gnnflow.stages.base import StageContext, neighbors_of
from gnnflow.stages.running import make_artifact
from gnnflow.stages.train import model_inputs
from gnnflow.storage.filesystem import join, read_json
from gnnflow.train.globalbatch import open_source
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch import split_entries
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.updater import LocalUpdater

MIB = 1 << 20
PLACED: dict[str, dict[str, Any]] = {"source": {"kind": "edge_1d", "by": "source"}, "grid": {"kind": "vertex_cut"}}
EPOCHS = 10
STAGES = ("ingest", "partition", "select", "flat", "train", "infer")


def config_of(graph: str, kind: str, workspace: str, *, partitions: int, full: bool) -> Any:
    """Return the config of a graph of GNNFLOW_DATA in partitions of a kind."""
    tables = Path(os.environ.get("GNNFLOW_DATA", "data")) / graph
    sampling = {"kind": "none"} if full else {"kind": "uniform", "fanout": [15, 10]}
    return config_from_dict(
        {
            "name": f"{graph}-{kind}",
            "workspace": workspace,
            "graph": {
                "nodes": str(tables / "nodes.parquet"),
                "edges": str(tables / "edges.parquet"),
                "features": ["x"],
                "partitions": partitions,
            },
            "partition": PLACED.get(kind, {"kind": kind}),
            "neighbors": {"sampling": sampling},
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
    """Return what global-batch training exchanges per epoch on ranks, and its seconds per epoch."""
    context = StageContext.of(config)
    for stage in ("ingest", "partition", "select"):
        if stage in context.run.stages:
            make_artifact(context, stage)
    neighbors = neighbors_of(context)
    facts = neighbors.store.facts
    job = TrainJob(
        artifact=neighbors.store.artifact,
        entries=split_entries(facts),
        fanouts=None,
        model=model_from_dict({"kind": model, "hidden": 64, "layers": 2}),
        inputs=model_inputs(facts, config.task),
        label_kind=facts.label_kind,
        num_classes=facts.num_classes,
        train=GlobalBatchConfig(workers=ranks),
        seed=0,
        neighbors=neighbors,
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
    model = build_model(job.model, job.inputs, seed=0).train()
    updater = LocalUpdater(model, job.train, exchange=AllReduce(model, group, is_joint=True))
    objective, seconds, moved, states = Objective(job.label_kind), [], 0, 0
    with open_source(job, exchange=exchange) as source:
        for epoch in range(EPOCHS + 1):
            (step,) = source.steps(epoch, since=0)
            before, begin = exchange.sent_bytes, time.perf_counter()
            step.seed()
            loss, count = objective.loss(step.logits(model), step.labels)
            updater.step(loss, num_targets=count, weight=objective.weight(step.labels))
            seconds.append(time.perf_counter() - begin)
            moved = exchange.sent_bytes - before
            states = sum(isinstance(layer, PlacedTensors) for layer in step.batch.layers)
    return {"seconds": statistics.median(seconds[1:]), "bytes": moved, "states": states}


def table_of_ranks(rows: dict[str, dict[str, float]]) -> str:
    """Return a graph's kinds as a Markdown table."""
    lines = ["| kind | sent per epoch | seconds per epoch | layers that send states |", "|---|---|---|---|"]
    for kind, row in rows.items():
        figures = f"{row['epoch_mib']:.1f} MiB | {row['epoch_seconds']:.3f} | {row['states']:.0f} of 2"
        lines.append(f"| {kind} | {figures} |")
    return "\n".join(lines)


def table(rows: dict[str, dict[str, float]]) -> str:
    """Return a graph's kinds as a Markdown table."""
    lines = [
        "| kind | edges cut | replication | nodes, edges, targets | partition | GraphFlat | GraphInfer |",
        "|---|---|---|---|---|---|---|",
    ]
    told = next((row for row in rows.values() if "hash_edge_cut" in row), {})
    for kind, row in rows.items():
        prefix, of = ("", row) if "edge_cut" in row else ("hash_", told)
        if not of:
            continue
        even = ", ".join(f"{of[f'{prefix}balance_{name}']:.2f}" for name in ("nodes", "edges", "targets"))
        stages = [f"{row[f'{stage}_mib']:.1f} MiB, {row[f'{stage}_seconds']:.2f} s" for stage in ("flat", "infer")]
        own = f"{row['partition_seconds']:.2f} s" if "partition_seconds" in row else ""
        cells = [kind, f"{of[f'{prefix}edge_cut']:.1%}", f"{of[f'{prefix}replication']:.2f}", even, own, *stages]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is asked for, and print a table for each graph and all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=["facebook_pages", "amazon_photo"])
    parser.add_argument("--kinds", nargs="+", default=["hash", "range", "ldg", "louvain", "metis"])
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--model", default="sage", choices=["sage", "gcn", "gat"])
    asked = parser.parse_args()
    for graph in asked.graphs:
        rows: dict[str, dict[str, float]] = {}
        for _ in range(asked.turns):
            for kind in asked.kinds:
                with tempfile.TemporaryDirectory() as folder:
                    full = asked.full or bool(asked.ranks)
                    config = config_of(graph, kind, folder, partitions=asked.partitions, full=full)
                    found = trained(config, ranks=asked.ranks, model=asked.model) if asked.ranks else measured(config)
                    held = rows.setdefault(kind, found)
                    held |= {name: min(held[name], value) for name, value in found.items()}
        shown = table_of_ranks(rows) if asked.ranks else table(rows)
        print(f"\n{graph}, {asked.partitions} partitions\n\n{shown}\n\n{json.dumps(rows)}", flush=True)


if __name__ == "__main__":
    main()
