"""All nodes scored: GraphInfer, GraphFeatures of all nodes forwarded (AGL's table 5), and DGL layer by layer in memory.

    python benchmarks/scoring.py --folder FOLDER --dgl PYTHON                                   # against DGL
    python benchmarks/scoring.py --nodes 100000 --edges 1000000 --forms mapped,features         # AGL's table 5

An untrained model of 2 layers: GraphSAGE of 64, GAT of 4 heads of 16. Forms: `mapped`, GraphInfer whose tasks map each
other's files; `sent`, GraphInfer that sends rows; `float16`, the same with `infer.rows: float16`; `features`, GraphFlat
over all nodes, then each shard forwarded in batches by one task; `inline`, the same in AGL's layout, a GraphFeature per
node. --fanout 15,10 samples, before what is measured; by default every in-edge is read.

Each form runs in a separate process with its workers, which have run everything once before; DGL has the graph in
memory in CSC form, and as many threads. gnnflow begins at the files of the store and ends with predictions on disk.
Memory: the peaks of all processes added up, pages of mapped files in each of them; GiB s is that times the seconds, the
unit of AGL's table. Forms and DGL take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from graphflat import tables_in
from harness import DGL, FOLDER, Benchmark, Chosen, Found, Option, cell, folder_of, numbers, peak_mib, peer, run
from minibatch import write_npz

from gnnflow.cluster import Cluster
from gnnflow.config import RowKind, config_from_dict, model_from_dict
from gnnflow.executions.minibatch import forward
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.blocks import build_minibatch, new_scratch
from gnnflow.graphfeature.shards import read_shard
from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds as cut_neighborhoods
from gnnflow.infer.choice import Exchange
from gnnflow.infer.job import InferJob
from gnnflow.infer.predictions import commit_predictions, prediction_columns, scores_of
from gnnflow.infer.run import run_rounds
from gnnflow.kernels.device import compute_threads
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.layers.saved import encode_weights, save_model
from gnnflow.layers.typed import TypedInputs
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import StageContext, neighbors_of
from gnnflow.stages.running import make_artifact
from gnnflow.storage.writing import remove_tree

MODELS: dict[str, dict[str, Any]] = {"sage": {"hidden": 64}, "gat": {"hidden": 16, "heads": 4}}
FORMS = "mapped", "sent", "float16", "features", "inline"
LAYERS, OUTPUTS, BATCH = 2, 16, 1024


def context_of(chosen: Chosen, cluster: Cluster | None = None) -> StageContext:
    """Return the context of the stages that make the graph."""
    fanout = numbers(chosen.fanout) if chosen.fanout else []
    content = {
        "name": "scoring",
        "workspace": str(Path(chosen.folder) / "workspace"),
        "graph": {"nodes": chosen.tables[0], "edges": chosen.tables[1], "partitions": chosen.partitions},
        "neighbors": {"sampling": {"kind": "uniform", "fanout": fanout} if fanout else {"kind": "none"}},
        "model": {"kind": "sage", "layers": LAYERS},
        "cluster": cluster_of(chosen),
    }
    return StageContext.of(config_from_dict(content), cluster)


def cluster_of(chosen: Chosen) -> dict[str, Any]:
    """Return the section of the cluster."""
    local = {"kind": "local", "workers": chosen.workers, "memory_limit": chosen.memory}
    return local if chosen.workers else {"kind": "synchronous"}


def job_of(chosen: Chosen, neighbors: Neighbors) -> InferJob:
    """Return the job that scores all nodes with an untrained model."""
    keys = {"kind": chosen.model, "head": "direct", **MODELS[chosen.model]}
    return untrained_job(Path(chosen.folder), neighbors, keys, name=chosen.model)


def untrained_job(
    folder: Path, neighbors: Neighbors, keys: Found, *, name: str, typed: TypedInputs | None = None
) -> InferJob:
    """Return the job that scores all nodes with an untrained model of two layers. keys: of its section."""
    config = model_from_dict({"layers": LAYERS, **keys})
    inputs = ModelInputs(feature_width=neighbors.store.facts.features.width, num_outputs=OUTPUTS, typed=typed)
    torch.manual_seed(0)
    model = str(folder / f"model-{name}")
    save_model(model, config, inputs, weights=encode_weights(build_model(config, inputs).state_dict()))
    predictions = str(folder / "predictions")
    return InferJob(predictions, neighbors, model, LAYERS, "single", "all", embeddings=False, parity_samples=0, seed=0)


def infer(job: InferJob, runner: RoundRunner, chosen: Chosen) -> None:
    """Score all nodes with GraphInfer."""
    rows: RowKind = "float16" if chosen.form == "float16" else "float32"
    run_rounds(replace(job, exchange=Exchange(mapped=chosen.form == "mapped"), rows=rows), runner)


def by_features(job: InferJob, runner: RoundRunner, chosen: Chosen) -> None:
    """Score all nodes from the GraphFeatures of all nodes."""
    shards = f"{runner.work}/shards"
    flat = FlatJob(shards, job.neighbors, LAYERS, "inline" if chosen.form == "inline" else "shared", "all")
    flat_runner = RoundRunner(f"{runner.work}/flat", runner.scheduler, artifact=shards)
    entries = cut_neighborhoods(flat, flat_runner, shard_size=chosen.shard_size).facts.shards
    function = partial(score_shard, job=job, shards=shards, entries=entries)
    list(runner.scheduler.run(function, range(len(entries))))


def score_shard(index: int, *, job: InferJob, shards: str, entries: tuple[ShardEntry, ...]) -> None:
    """Score a shard's targets in batches and write their predictions."""
    shard = read_shard(shards, entries[index])
    scratch, scores = new_scratch(shard.neighborhood.num_nodes), []
    with compute_threads(1), torch.no_grad():
        model = job.load_model()
        for start in range(0, len(shard.rows), BATCH):
            rows = shard.rows[start : start + BATCH]
            batch = build_minibatch(
                shard.neighborhood, rows, sampling=job.neighbors.sampling, num_layers=LAYERS, scratch=scratch
            )
            scores.append(scores_of(forward(model, batch), job.label_kind))
    table = pa.table({"node": shard.targets, **prediction_columns(np.concatenate(scores), job.label_kind, ())})
    commit_predictions(index, table, job.artifact)


@contextmanager
def workers_of(cluster: Cluster) -> Iterator[Callable[[Callable[[], float]], float]]:
    """Yield a function that adds up a number over this process and the workers."""
    client = cluster.dask_client()

    def over_all(number: Callable[[], float]) -> float:
        return number() + sum(client.run(number).values() if client is not None else ())

    yield over_all


def scored(chosen: Chosen) -> Found:
    """Score all nodes several times, and return seconds, processor seconds and the peak memory of all processes."""
    way = infer if chosen.form in {"mapped", "sent", "float16"} else by_features
    times, spent, work = [], [], str(Path(chosen.folder) / "work")
    config = context_of(chosen).config
    with Cluster(config.cluster) as cluster, workers_of(cluster) as over_all:
        job = job_of(chosen, neighbors_of(context_of(chosen)))
        for _ in range(chosen.repeats + 1):
            remove_tree(work)
            time.sleep(chosen.rest)
            begin, cpu = time.perf_counter(), over_all(time.process_time)
            way(job, RoundRunner(work, cluster.scheduler()), chosen)
            times.append(time.perf_counter() - begin)
            spent.append(over_all(time.process_time) - cpu)
        mib = over_all(peak_mib)
    remove_tree(work)
    return {"times": times[1:], "cpu": spent[1:], "mib": mib}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield each form of each model, in turns with DGL."""
    with folder_of(chosen.folder) as folder:
        chosen.folder = str(folder)
        chosen.tables = tables_in(folder, num_nodes=chosen.nodes, num_edges=chosen.edges)
        if chosen.dgl and not (folder / "graph.npz").exists():
            write_npz(chosen.tables, folder / "graph.npz")
        for stage in ("ingest", "select"):
            make_artifact(context_of(chosen), stage)
        for model in chosen.models.split(","):
            found: dict[str, list[Found]] = {}
            for _ in range(chosen.rounds):
                for form in chosen.forms.split(","):
                    ran = cell(chosen, "scored", threads=1, model=model, form=form)
                    found.setdefault(form, []).append(ran)
                if chosen.dgl:
                    given = {"graph": str(folder / "graph.npz"), "model": model, "repeats": chosen.repeats}
                    threads = max(chosen.workers, 1)
                    found.setdefault("DGL", []).append(peer(chosen.dgl, "scored_dgl", threads=threads, **given))
            yield from figures_of(model, found)


def figures_of(model: str, found: dict[str, list[Found]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each form: least seconds, and how they compare with the first form's."""
    figures = {}
    for form, runs in found.items():
        seconds, gib = least(runs, "times"), max(ran["mib"] for ran in runs) / 1024
        figures[form] = (seconds, least(runs, "cpu"), gib, gib * seconds)
    first = next(iter(figures.values()))
    for form, own in figures.items():
        yield model, form, *own, *(mine / others for mine, others in zip(own, first, strict=True))


def least(runs: list[Found], name: str) -> float:
    """Return the least of the seconds of all runs."""
    return float(min(second for ran in runs for second in ran[name]))


BENCH = Benchmark(
    columns=(
        "model",
        "form",
        "seconds",
        "cpu s",
        "peak GiB",
        "GiB s",
        "x the first's seconds",
        "x cpu",
        "x GiB",
        "x GiB s",
    ),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 1_000_000,
        "edges": 10_000_000,
        "partitions": 4,
        "workers": Option(2, "and threads of DGL; 0 runs everything in one process"),
        "memory": "6GiB",
        "models": Option("sage,gat", f"of {', '.join(MODELS)}"),
        "forms": Option("mapped", f"of {', '.join(FORMS)}"),
        "fanout": Option("", "a list such as 15,10; every in-edge by default"),
        "shard_size": Option(4096, "targets of a shard of GraphFeatures"),
        "repeats": 2,
        "rest": Option(0.0, "seconds of rest before each repeat: a virtual machine may give freed memory back by then"),
        "rounds": 1,
        "dgl": DGL,
    },
    small={"nodes": 2_000, "edges": 10_000, "workers": 0, "repeats": 1, "forms": "mapped,sent,features,inline"},
    cells={"scored": scored},
)


if __name__ == "__main__":
    run(BENCH)
