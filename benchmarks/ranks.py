"""Samples per second of several ranks of one thread beside one rank of one thread, in turns, as ratios.

    python benchmarks/ranks.py --data DATA [--nodes 1000000 --edges 10000000] [--ranks 1,2] [--turns 5] [--epochs 4]

GraphSAGE of 2 layers, hidden 64, over all training targets, fan-out 15 then 10. A step takes --batch-size targets over
all ranks, so that every size trains the same model; with --per-rank it takes as many on each, as AGL's experiments do.
All sizes run on one cluster, whose workers stay as they are; the first epoch of each training, which reads and checks
the files, is not among the times. --data is prepared as by `graphflat.py`. Each turn trains with every size once: what
else the machine does meanwhile concerns all of them; `cpu_s_per_epoch` is what the workers used of their processors,
scoring included, and holds on a busy machine too. Run it on a quiet machine with a core per rank and one more for
each rank's reader. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from distributed import Client
from graphflat import FANOUT, tables_in

from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict
from gnnflow.graph.facts import FlatFacts, GraphFacts
from gnnflow.progress import Silent
from gnnflow.stages.base import StageContext, make_artifact
from gnnflow.stages.train import model_inputs
from gnnflow.train.job import TrainJob
from gnnflow.train.ranks.gang import train_on_ranks


def config_of(chosen: argparse.Namespace, *, ranks: int) -> Config:
    """Return the run of so many ranks."""
    nodes, edges = tables_in(chosen.data, num_nodes=chosen.nodes, num_edges=chosen.edges)
    train = {
        "epochs": chosen.epochs + 1,
        "batch_size": chosen.batch_size if chosen.per_rank else chosen.batch_size // ranks,
        "lr": 0.003,
        "workers": ranks,
        "cache": chosen.cache,
        "prefetch": chosen.prefetch,
    }
    if chosen.servers:
        train["updater"] = {"kind": "parameter_server", "servers": chosen.servers, "mode": chosen.mode}
    content = {
        "name": "ranks",
        "workspace": str(chosen.data / "workspace"),
        "graph": {"nodes": nodes, "edges": edges, "partitions": 4},
        "neighbors": {"sampling": {"kind": "uniform", "fanout": list(FANOUT)}},
        "flat": {"hops": 2},
        "model": {"kind": "sage", "layers": 2, "hidden": 64, "dropout": 0.0},
        "train": train,
        "cluster": {"kind": "local", "workers": ranks, "memory_limit": 0},
    }
    return config_from_dict(content)


def job_of(context: StageContext) -> TrainJob:
    """Return what the train stage would train."""
    flat, graph = context.artifact("flat").facts(FlatFacts), context.artifact("ingest").facts(GraphFacts)
    return TrainJob(
        artifact=context.artifact("flat").uri,
        entries=flat.shards,
        fanouts=flat.fanouts,
        model=context.config.model,
        inputs=model_inputs(graph),
        label_kind=graph.label_kind,
        num_classes=graph.num_classes,
        train=context.config.train,
        seed=0,
    )


def samples_per_second(job: TrainJob, client: Client) -> dict[str, float]:
    """Return the median over the epochs after the first, and what all epochs took of the workers' processors."""
    before = sum(client.run(time.process_time).values())
    result = train_on_ranks(job, client, progress=Silent()).result
    spent = sum(client.run(time.process_time).values()) - before
    rows = result.history[1:]
    return {
        "samples_per_second": statistics.median(row["samples_per_second"] for row in rows),
        "cpu": spent / len(result.history),
        "loss": round(rows[-1]["train_loss"], 4),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--per-rank", action="store_true")
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--cache", default="512MiB")
    parser.add_argument("--servers", type=int, default=0)
    parser.add_argument("--mode", default="synchronous")
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.ranks.split(",")]
    with Cluster(config_of(chosen, ranks=max(sizes)).cluster) as cluster:
        client: Any = cluster.dask_client()
        contexts = {size: StageContext.of(config_of(chosen, ranks=size), cluster) for size in sizes}
        for stage in ("ingest", "select", "flat"):
            make_artifact(contexts[sizes[0]], stage)
        jobs = {size: job_of(context) for size, context in contexts.items()}
        turns = [{size: samples_per_second(jobs[size], client) for size in sizes} for _ in range(chosen.turns)]
    first = sizes[0]
    speed = {size: [turn[size]["samples_per_second"] for turn in turns] for size in sizes}
    ratios = {size: [fast / slow for fast, slow in zip(speed[size], speed[first], strict=True)] for size in sizes}
    print(
        json.dumps(
            {
                "bench": "ranks",
                "cores": os.cpu_count(),
                "load": os.getloadavg()[0],
                "loss": {size: turns[-1][size]["loss"] for size in sizes},
                "cpu_s_per_epoch": {size: [round(turn[size]["cpu"], 2) for turn in turns] for size in sizes},
                "samples_per_second": {size: [round(each) for each in speed[size]] for size in sizes},
                "ratio": {size: [round(each, 2) for each in ratios[size]] for size in sizes},
                "median_ratio": {size: round(statistics.median(ratios[size]), 2) for size in sizes},
            }
        )
    )


if __name__ == "__main__":
    main()
