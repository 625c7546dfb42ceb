"""What the benchmarks of ranks train: GraphSAGE or GAT of 2 layers over a generated graph, cut by GraphFlat once."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from graphflat import FANOUT, tables_in

from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict
from gnnflow.graph.facts import FlatFacts, GraphFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.stages.train import model_inputs
from gnnflow.train.job import TrainJob

MODELS: dict[str, dict[str, Any]] = {
    "sage": {"kind": "sage", "hidden": 64},
    "gat": {"kind": "gat", "hidden": 16, "heads": 4},
}
STAGES = ("ingest", "select", "flat")


def config_of(chosen: Namespace, *, ranks: int, batch_size: int, servers: int = 0, **train: object) -> Config:
    """Return the run of so many ranks, each with a batch of this size; without servers they all-reduce.

    chosen: data, nodes, edges, model, shard_size and epochs, of which one more is trained: it reads and checks files.
    """
    nodes, edges = tables_in(chosen.data, num_nodes=chosen.nodes, num_edges=chosen.edges)
    updater = {"kind": "parameter_server", "servers": servers} if servers else {"kind": "all_reduce"}
    keys = {"epochs": chosen.epochs + 1, "batch_size": batch_size, "lr": 0.003, "workers": ranks, "updater": updater}
    content = {
        "name": "ranks",
        "workspace": str(chosen.data / "workspace"),
        "graph": {"nodes": nodes, "edges": edges, "partitions": 4},
        "neighbors": {"sampling": {"kind": "uniform", "fanout": list(FANOUT)}},
        "flat": {"hops": 2, "shard_size": chosen.shard_size},
        "model": {**MODELS[chosen.model], "layers": 2, "dropout": 0.0},
        "train": keys | train,
        "cluster": {"kind": "local", "workers": ranks, "memory_limit": 0},
    }
    return config_from_dict(content)


def make_shards(context: StageContext, *, say: Callable[[str], None] = print) -> None:
    """Run what comes before training, where it is not there yet."""
    for stage in STAGES:
        begin = time.perf_counter()
        make_artifact(context, stage)
        say(f"{stage}: {time.perf_counter() - begin:.1f} s")


def job_of(config: Config, cluster: Cluster) -> TrainJob:
    """Return what the train stage would train, without the targets that it would only score."""
    context = StageContext.of(config, cluster)
    flat, graph = context.artifact("flat").facts(FlatFacts), context.artifact("ingest").facts(GraphFacts)
    return TrainJob(
        artifact=context.artifact("flat").uri,
        entries=[entry for entry in flat.shards if entry.split == "train"],
        fanouts=flat.fanouts,
        model=config.model,
        inputs=model_inputs(graph, config.task),
        label_kind=graph.label_kind,
        num_classes=graph.num_classes,
        train=config.train,
        seed=0,
    )


def with_batch(job: TrainJob, *, ranks: int, batch_size: int) -> TrainJob:
    """Return the same training on so many ranks."""
    return replace(job, train=job.train.model_copy(update={"workers": ranks, "batch_size": batch_size}))
