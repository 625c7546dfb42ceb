"""What `scaling.py` measures: ranks apart and together, the network between them, and how a server takes pushes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from distributed import Client
from rank_jobs import config_of, job_of, make_shards
from step_times import answers, apart, network_of, seconds_per_push
from waiting import count_computing, seconds_computed

from gnnflow.cluster import Cluster
from gnnflow.progress import Silent
from gnnflow.stages.base import StageContext
from gnnflow.train.job import TrainJob
from gnnflow.train.ranks.gang import train_on_ranks

PREFETCH = 2  # the default of training
TOGETHER = {"real": 0, "read": PREFETCH}
"""Ranks that train together, as they are named in what was measured, and their `train.prefetch`."""


def model_bytes_of(found: Mapping[str, Any]) -> int:
    """Return what all gradients take."""
    return sum(found["ranks"]["1"]["steps"][0]["clock"]["bucket_bytes"])


def seconds_per_step(job: TrainJob, client: Client, *, num_steps: int) -> tuple[float, float]:
    """Return what a step takes ranks together by the clock, and what the process of one computes for it.

    Of the epochs after the first, which have so many steps.
    """
    before = sum(client.run(seconds_computed).values())
    history = train_on_ranks(job, client, progress=Silent()).result.history
    computed = sum(client.run(seconds_computed).values()) - before
    return sum(row["seconds"] for row in history[1:]) / num_steps, computed / num_steps / job.train.workers


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return, as JSON knows it, what was measured for each number of ranks, and the real steps beside it."""
    sizes = chosen.real
    found: dict[str, Any] = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "model": chosen.model, "ranks": {}}
    batch = batch_of(chosen)
    with Cluster(config_of(chosen, ranks=max(sizes), **batch).cluster) as cluster:
        client: Any = cluster.dask_client()
        make_shards(StageContext.of(config_of(chosen, ranks=1, **batch), cluster))
        client.run(count_computing)
        for _ in range(chosen.turns):
            for size in sizes:
                add_turn(found, chosen, cluster, ranks=size)
        found["answers"] = answers(client, job_of(config_of(chosen, ranks=1, **batch), cluster))
        callers = {"alone": 1, "many": max(max(sizes) - 1, 1)}
        found["push"] = {
            name: seconds_per_push(client, model_bytes=model_bytes_of(found), callers=number)
            for name, number in callers.items()
        }
    return found


def batch_of(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the keys of training that ranks of one thread have, which make their batches in turn."""
    return {"batch_size": chosen.batch_size, "prefetch": 0, "threads": 1}


def add_turn(found: dict[str, Any], chosen: argparse.Namespace, cluster: Cluster, *, ranks: int) -> None:
    """Measure so many ranks apart, then together: in turn with their batches, with readers, and with a server."""
    each = found["ranks"].setdefault(str(ranks), {"steps": [], "served": []} | {name: [] for name in TOGETHER})
    client: Any = cluster.dask_client()

    def job(**keys: Any) -> TrainJob:
        return job_of(config_of(chosen, ranks=ranks, **batch_of(chosen) | keys), cluster)

    steps = apart(job(), client, ranks=ranks)
    each["steps"].append(steps.to_document())
    num_steps = steps.clock.rest.shape[1]
    for name, prefetch in TOGETHER.items():
        each[name].append(seconds_per_step(job(prefetch=prefetch), client, num_steps=num_steps))
    if ranks > 1:
        each["network"] = asdict(network_of(client, ranks=ranks))
    if 1 < ranks <= found["cores"]:
        each["served"].append(seconds_per_step(job(servers=1), client, num_steps=num_steps)[0])
