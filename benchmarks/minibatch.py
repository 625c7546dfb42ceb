"""Seconds per training epoch over mini-batches from shards on disk, beside other libraries' scripts.

    python benchmarks/minibatch.py --data DATA [--nodes 1000000 --edges 10000000] [--threads 2] [--epochs 4]
    python benchmarks/minibatch.py --data DATA --evaluate                # scoring beside training's forward pass
    python benchmarks/minibatch.py --data DATA --scale 1000000:10000000,4000000:40000000 [--targets 100000]
    python benchmarks/minibatch.py --data DATA --graph big.npz --pyg PYTHON --epochs 10
    python benchmarks/minibatch.py --data DATA --graph big.npz --dgl PYTHON --unsampled 2,3 --targets 4096

GraphSAGE of 2 layers, hidden 64, over all training targets in batches of 1024, fan-out 15 then 10. --data is prepared
as by `graphflat.py` and its artifacts are kept there; they are made by workers of their own, so that the peak is that
of training alone. The first epoch, which also checks the files, is reported as `first_s` and not among the times.
--graph names an .npz file with x [N, F], y [N], edge_index [2, E] and seeds, to be written there as tables once.
`profile` is the seconds of each part of an epoch, `gnnflow.train.profile`. Prints one JSON line.

--evaluate scores the train split, in turns with the forward pass of an epoch of training over the same targets and its
reader: seconds, and processor seconds, which hold on a machine that others use too. --scale generates graphs of several
sizes (`gnnflow.datasets.power_law`), flattens as many targets of each, and compares samples per second. --dgl runs
as many epochs with DGL's NeighborSampler, in an interpreter that has it, after those from shards and from the store in
memory (`train.source`). With --unsampled each batch reads every in-edge within so many layers, from the store in memory
and in DGL, for the first --targets of the training targets. --pyg runs as many epochs with PyG's NeighborLoader, the
graph in memory, in an interpreter that has torch_geometric with torch-sparse or pyg-lib, and compares them with
GraphFlat (neighbours selected and shards written anew, in one process) and its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from graphflat import FANOUT, Job, tables_in

from gnnflow import __version__
from gnnflow.config import Config, config_from_dict
from gnnflow.graph.facts import FlatFacts, GraphFacts
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.layers.model import build_model
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.stages.train import model_inputs
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch import open_source
from gnnflow.train.objective import Objective
from gnnflow.train.reproducible import compute_settings

STAGES = ("ingest", "select", "flat")
_TRAIN_SHARE = 0.9


def write_tables(graph: Path, data: Path) -> None:
    """Write the node and edge table of an .npz file; its seeds are the train split, a few others valid."""
    data.mkdir(parents=True, exist_ok=True)
    with np.load(graph) as held:
        x, y, (source, target), seeds = (held[name] for name in ("x", "y", "edge_index", "seeds"))
    split = np.full(len(y), None, object)
    split[seeds] = "train"
    split[np.flatnonzero(split == None)[: len(seeds) // 100]] = "valid"  # noqa: E711 - elementwise; a run needs some
    features = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    ids = np.arange(len(y))
    nodes = pa.table({"id": ids, "x": features, "label": y, "split": pa.array(split, pa.string())})
    pq.write_table(pa.table({"src": source, "dst": target}), data / "edges.parquet", row_group_size=1 << 20)
    pq.write_table(nodes, data / "nodes.parquet", row_group_size=1 << 17)  # the last, since it is what is looked for


def train_config(job: Job, chosen: argparse.Namespace) -> Config:
    """Return the run whose GraphFlat is the job's, with this training."""
    document, layers = job.config().model_dump(mode="json"), chosen.layers or len(FANOUT)
    document["model"] = {"kind": chosen.model, "layers": layers, "hidden": 64, "dropout": 0.0, "head": "direct"}
    if chosen.layers:
        document["neighbors"] = {"sampling": {"kind": "none"}}
        document["flat"]["hops"] = layers
    document["train"] = {
        "epochs": chosen.epochs + 1,
        "batch_size": 1024,
        "lr": 0.003,
        "threads": chosen.threads,
        "cache": chosen.cache,
        "prefetch": chosen.prefetch,
        **({} if chosen.source == "shards" else {"source": "store", "resample": chosen.resample}),
    }
    document["cluster"] = {"kind": "synchronous"}
    return config_from_dict(document)


def measure(job: Job, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of each epoch after the first."""
    config = train_config(job, chosen)
    for stage in STAGES if chosen.source == "shards" else STAGES[:-1]:
        if not chosen.layers:
            job.stage(stage, job.config())
    context = StageContext.of(config)
    if chosen.layers:
        job.stage("ingest", config)
        make_artifact(context, "select")  # the store itself
    shutil.rmtree(context.run.artifact("train"), ignore_errors=True)
    begin = time.process_time()
    found = make_artifact(context, "train").facts(TrainFacts)
    spent = time.process_time() - begin
    first, *times = [row["seconds"] for row in found.history]
    return {
        "times": times,
        "min": min(times),
        "median": statistics.median(times),
        "first_s": first,
        "cpu_per_epoch": round(spent / (chosen.epochs + 1), 3),
        "loss": round(found.history[-1]["train_loss"], 4),
        "samples_per_s": round(found.history[-1]["samples_per_second"]),
        "profile": {key: round(value, 3) for key, value in found.profiles[0].items()},
        "rss_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
    }


def evaluate(job: Job, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds per target of scoring the train split and of training's forward pass over it, by turns."""
    config = train_config(job, chosen)
    ingested, _, flattened = (job.stage(stage, job.config())[0] for stage in STAGES)
    graph, flat = ingested.facts(GraphFacts), flattened.facts(FlatFacts)
    entries = [entry for entry in flat.shards if entry.split == "train"]
    training = TrainJob(
        artifact=flattened.artifact,
        entries=entries,
        fanouts=flat.fanouts,
        model=config.model,
        inputs=model_inputs(graph, config.task),
        label_kind=graph.label_kind,
        num_classes=graph.num_classes,
        train=config.train,
        seed=config.seed,
    )
    model, objective = build_model(training.model, training.inputs), Objective(graph.label_kind)
    with compute_settings(chosen.threads), open_source(training) as source:

        def forward() -> None:
            model.train()
            for step in source.steps(0, since=0):
                step.seed()
                float(objective.loss(step.logits(model), step.labels)[0].detach())

        def scoring() -> None:
            source.outputs(model, "train").loss(objective)

        took = by_turns({"forward": forward, "scoring": scoring}, turns=chosen.epochs)
    targets = sum(entry.num_targets for entry in entries)
    per_target = {
        name: {clock: round(1e6 * min(times) / targets, 3) for clock, times in clocks.items()}
        for name, clocks in took.items()
    }
    ratios = {clock: round(per_target["scoring"][clock] / per_target["forward"][clock], 3) for clock in ("wall", "cpu")}
    return {"targets": targets, "us_per_target": per_target, "scoring / forward": ratios, "times": took}


def by_turns(actions: dict[str, Callable[[], None]], *, turns: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds and processor seconds of each action, done in turns after one to warm up."""
    took: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in actions}
    for turn in range(turns + 1):
        for name, action in actions.items():
            wall, cpu = time.perf_counter(), time.process_time()
            action()
            if turn:
                took[name]["wall"].append(round(time.perf_counter() - wall, 4))
                took[name]["cpu"].append(round(time.process_time() - cpu, 4))
    return took


def with_targets(tables: tuple[str, str], folder: Path, count: int) -> tuple[str, str]:
    """Write the node table with a split for `count` of its targets only, a piece at a time."""
    source, out = pq.ParquetFile(tables[0]), folder / f"nodes-{count}.parquet"
    targets = np.flatnonzero(source.read(["split"])["split"].is_valid().to_numpy())
    kept, first = set(targets[np.linspace(0, len(targets) - 1, count).astype(np.int64)].tolist()), 0
    with pq.ParquetWriter(out, source.schema_arrow) as writer:
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group)
            mask = pa.array([first + row in kept for row in range(rows.num_rows)])
            split = pc.if_else(mask, rows["split"].combine_chunks(), pa.scalar(None, rows["split"].type))
            writer.write_table(rows.set_column(rows.column_names.index("split"), "split", split))
            first += rows.num_rows
    return str(out), tables[1]


def first_targets(tables: tuple[str, str], graph: Path, data: Path, count: int) -> tuple[str, str]:
    """Write the node table with the first seeds of an .npz file as the train split."""
    nodes = pq.read_table(tables[0])
    split = np.array(nodes["split"].to_pylist(), object)
    with np.load(graph) as held:
        split[held["seeds"][count:]] = None
    out = data / f"nodes-first-{count}.parquet"
    made = nodes.set_column(nodes.column_names.index("split"), "split", pa.array(split, pa.string()))
    pq.write_table(made, out, row_group_size=1 << 17)
    return str(out), tables[1]


def scale(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of each size of graph and its samples per second beside those of the first."""
    found: dict[str, Any] = {}
    for size in chosen.scale.split(","):
        num_nodes, num_edges = map(int, size.split(":"))
        folder = chosen.data / size.replace(":", "-")
        tables = tables_in(folder, num_nodes=num_nodes, num_edges=num_edges)
        tables = with_targets(tables, folder, chosen.targets)
        job = Job(tables, str(folder / "workspace"), partitions=chosen.partitions, workers=2, repeats=1)
        stages = {stage: job.stage(stage, job.config())[1] for stage in STAGES}
        found[size] = {**measure(job, chosen), "stages": {stage: each["median"] for stage, each in stages.items()}}
        found[size]["samples_per_s"] = round(chosen.targets * _TRAIN_SHARE / found[size]["min"])
        found[size]["flat"] = stages["flat"]
    first = next(iter(found.values()))["samples_per_s"]
    return {**found, "samples per second / first": {s: round(f["samples_per_s"] / first, 3) for s, f in found.items()}}


def beside_pyg(job: Job, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of GraphFlat and its epochs, the first included, beside as many epochs of PyG's."""
    job.stage("ingest", job.config())
    job = replace(job, workers=0)  # in this process, whose processor seconds can be told
    for stage in STAGES[1:]:
        shutil.rmtree(StageContext.of(job.config()).run.artifact(stage), ignore_errors=True)
    flat = [job.stage(stage, job.config())[1] for stage in STAGES[1:]]
    flat_s, flat_cpu = (sum(each[clock] for each in flat) for clock in ("median", "cpu"))
    chosen.epochs -= 1  # `measure` adds one
    ours = measure(job, chosen)
    script = Path(__file__).with_name("minibatch_pyg.py")
    command = [chosen.pyg, str(script), "--graph", str(chosen.graph)]
    command += ["--epochs", str(chosen.epochs + 1), "--threads", str(chosen.threads)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own file
    theirs = json.loads(done.stdout.splitlines()[-1])
    epochs = ours["first_s"] + sum(ours["times"])
    spent = flat_cpu + ours["cpu_per_epoch"] * len(theirs["times"])
    return {
        "flat": {"wall": flat_s, "cpu": flat_cpu},
        "gnnflow / pyg": {
            "wall": round((flat_s + epochs) / sum(theirs["times"]), 3),
            "cpu": round(spent / sum(theirs["cpu"]), 3),
        },
        "gnnflow": ours,
        "pyg": theirs,
    }


def unsampled(job: Job, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the epochs of the store and of DGL over every in-edge, by number of layers.

    DGL computes and samples with as many threads as gnnflow computes and reads with.
    """
    chosen.source, found = "store", {}
    for layers in map(int, chosen.unsampled.split(",")):
        chosen.layers = layers
        ours = measure(job, chosen)
        theirs = _epochs_of_dgl(chosen, "--layers", str(layers), "--targets", str(chosen.targets))
        ratio = round(min(theirs["times"][1:]) / ours["min"], 3)
        found[f"{layers} layers"] = {"gnnflow": ours, "dgl": theirs, "dgl / ours": ratio}
    return found


def _epochs_of_dgl(chosen: argparse.Namespace, *more: str) -> dict[str, Any]:
    script, threads = Path(__file__).with_name("minibatch_dgl.py"), str(chosen.threads + 1)
    command = [chosen.dgl, str(script), "--graph", str(chosen.graph)]
    command += ["--epochs", str(chosen.epochs + 1), "--threads", threads, *more]
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 - ours
    ran: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return ran


def beside_dgl(job: Job, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the epochs of shards, of the store with one sample and a sample per epoch, and of DGL, in one run.

    DGL computes and samples with as many threads as gnnflow computes and reads with.
    """
    found: dict[str, Any] = {}
    for source, resample in (("shards", "never"), ("store", "never"), ("store", "epoch")):
        chosen.source, chosen.resample = source, resample
        found[source if resample == "never" else "store, a sample per epoch"] = measure(job, chosen)
    found["dgl"] = _epochs_of_dgl(chosen)
    fastest = min(found["dgl"]["times"][1:])
    return {**found, "dgl / ours": {key: round(fastest / of["min"], 3) for key, of in found.items() if key != "dgl"}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--model", default="sage")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--cache", default="512MiB")
    parser.add_argument("--evaluate", action="store_true", help="scoring beside training's forward pass")
    parser.add_argument("--scale", help="sizes of graphs, as NODES:EDGES,NODES:EDGES")
    parser.add_argument("--targets", type=int, default=100_000, help="targets of each of these, a tenth to validate")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--pyg", help="an interpreter with torch_geometric")
    parser.add_argument("--dgl", help="an interpreter with DGL")
    parser.add_argument("--unsampled", help="numbers of layers, as 2,3: beside DGL over every in-edge")
    parser.add_argument("--layers", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--source", choices=("shards", "store"), default="shards", help="train.source")
    parser.add_argument("--resample", choices=("never", "epoch"), default="never", help="train.resample, of a store")
    chosen = parser.parse_args()
    if chosen.scale:
        _print(scale(chosen))
        return
    if chosen.graph and not (chosen.data / "nodes.parquet").exists():
        write_tables(chosen.graph, chosen.data)
    tables = tables_in(chosen.data, num_nodes=chosen.nodes, num_edges=chosen.edges)
    if chosen.unsampled:
        tables = first_targets(tables, chosen.graph, chosen.data, chosen.targets)
    job = Job(tables, str(chosen.data / "workspace"), partitions=chosen.partitions, workers=2, repeats=1)
    if chosen.unsampled:
        _print(unsampled(job, chosen))
    elif chosen.dgl:
        _print(beside_dgl(job, chosen))
    elif chosen.pyg:
        _print(beside_pyg(job, chosen))
    elif chosen.evaluate:
        _print(evaluate(job, chosen))
    else:
        _print({"train/workers0": measure(job, chosen)})


def _print(results: dict[str, Any]) -> None:
    print(json.dumps({"bench": "b", "lib": "gnnflow", "versions": {"gnnflow": __version__}, "results": results}))


if __name__ == "__main__":
    main()
