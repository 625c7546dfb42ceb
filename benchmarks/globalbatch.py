"""Seconds per epoch of a GCN over a whole graph: beside DGL at several depths, and on several ranks.

    python benchmarks/globalbatch.py --data FOLDER [--nodes 60000 --edges 12000000 --width 602 --classes 41]
                                     [--hidden 128] [--depths 2,3,4,5] [--dgl PYTHON] [--turns 2] [--threads 2]
    python benchmarks/globalbatch.py --data FOLDER --ranks 1,2 [--depths 2] [--recompute]

The graph has Reddit's columns, classes and share of training nodes (602, 41, 66 %), and fewer nodes and edges: nodes
lie in communities, each a run of ids, from which nine of ten edges come; degrees follow a power law. It is made once in
FOLDER. The model is a GCN of so many layers, dropout 0.5, with Adam; each library trains it on the training
nodes in a process of its own, in turns. --dgl: an interpreter that has DGL (and no gnnflow).

With --ranks each rank is a process of one thread that owns a run of the nodes, joined by gloo on this host; the memory
is what a rank's process grows by after it has loaded its libraries, at its peak. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnflow.config import GlobalBatchConfig, model_from_dict
from gnnflow.executions.globalbatch import RankLayer
from gnnflow.executions.row_exchange import Exchange, OneRank
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.kernels.device import CPU
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.train.globalbatch import GlobalBatchSource
from gnnflow.train.globalbatch.graph import OwnPart
from gnnflow.train.objective import Objective
from gnnflow.train.profile import since
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.group import RankGroup, find_store, join_group, open_store
from gnnflow.train.ranks.operations import Place, Position
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.updater import LocalUpdater

HOST, SECONDS = "127.0.0.1", 300.0
DROPOUT, COMMUNITIES, SHARE_FAR, SHARE_TRAIN = 0.5, 32, 0.1, 0.66
OTHER = Path(__file__).parent / "globalbatch_dgl.py"


def make_graph(folder: Path, *, nodes: int, edges: int, width: int, classes: int) -> None:
    """Write offsets, sources, x, y and train as .npy, unless they are there."""
    if (folder / "train.npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    weight = rng.pareto(1.5, nodes) + 1
    targets = np.sort(rng.choice(nodes, edges, p=weight / weight.sum()))
    community, size = targets * COMMUNITIES // nodes, nodes // COMMUNITIES
    sources = community * size + rng.integers(0, size, edges)
    far = rng.random(edges) < SHARE_FAR
    sources[far] = rng.integers(0, nodes, int(far.sum()))
    np.save(folder / "offsets.npy", offsets_of(np.bincount(targets, minlength=nodes)))
    np.save(folder / "sources.npy", sources)
    np.save(folder / "out_degree.npy", np.bincount(sources, minlength=nodes))
    np.save(folder / "x.npy", rng.standard_normal((nodes, width), np.float32))
    np.save(folder / "y.npy", rng.integers(0, classes, nodes))
    np.save(folder / "train.npy", rng.random(nodes) < SHARE_TRAIN)


def part_of(folder: Path, first: int, last: int) -> OwnPart:
    """Return the nodes first .. last - 1 with their in-edges."""
    held = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("offsets", "sources", "out_degree", "x")}
    offsets = np.array(held["offsets"][first : last + 1])
    sources = np.array(held["sources"][offsets[0] : offsets[-1]])
    in_degree = np.diff(offsets)
    nodes = Degrees(in_degree, np.array(held["out_degree"][first:last]), in_degree.astype(np.float32))
    x = np.array(held["x"][first:last])
    rows = np.flatnonzero(np.load(folder / "train.npy")[first:last])
    labels = np.load(folder / "y.npy")[first:last][rows]
    edges = InEdges(offsets - offsets[0], sources)
    return OwnPart(first, edges, nodes, Features(x.shape[1], dense=x), rows, np.zeros(len(rows), np.int64), labels)


def train(folder: Path, exchange: Exchange, chosen: argparse.Namespace, *, layers: int, group: Any) -> dict[str, Any]:
    """Return the seconds of each epoch after the first, and the bytes that this process grew by."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    num_nodes, classes = len(np.load(folder / "y.npy", mmap_mode="r")), int(np.load(folder / "y.npy").max()) + 1
    bounds = np.array([num_nodes * rank // exchange.size for rank in range(exchange.size + 1)])
    part = part_of(folder, *bounds[exchange.rank : exchange.rank + 2].tolist())
    assert isinstance(part.features, Features)
    config = GlobalBatchConfig(lr=0.01)
    kind = {"kind": "gcn", "hidden": chosen.hidden, "layers": layers, "dropout": DROPOUT}
    model = build_model(model_from_dict(kind), ModelInputs(part.features.width, classes), seed=0).train()
    source = GlobalBatchSource(
        part, [Block(part.edges, num_nodes)] * layers, bounds, model, exchange, ("train",), 0, chosen.recompute, CPU
    )
    shared = None if group is None else AllReduce(model, group, is_joint=True)
    updater, objective, times = LocalUpdater(model, config, exchange=shared), Objective("single"), []
    warm: dict[str, float] = {}
    for epoch in range(chosen.repeats + 1):
        warm = source.stages.seconds() if epoch == 1 else warm
        begin = time.perf_counter()
        for step in source.steps(epoch, since=0):
            step.seed()
            loss, count = objective.loss(step.logits(model), step.labels)
            taken = updater.step(loss, num_targets=count, weight=objective.weight(step.labels))
        times.append(time.perf_counter() - begin)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    batch = source._batch("train")  # noqa: SLF001
    layers_of = [layer for layer in batch.layers if isinstance(layer, RankLayer)]
    mirrors = [len(layer.route.rows.sources) if layer.route else 0 for layer in layers_of]
    stages = {key: each / chosen.repeats for key, each in since(source.stages.seconds(), warm).items()}
    return {
        "times": times[1:],
        "loss": taken.mean,
        "grown_mib": grown / 1024,
        "rows_sent": mirrors,
        "stages": stages,
        "rows": [layer.num_targets for layer in batch.layers],
        "edges": len(part.edges.sources),
        "gradient_bytes": sum(each.nbytes for each in model.parameters()),
    }


Work = Callable[[RankGroup], dict[str, Any]]
"""What each rank does, as a value that travels to its process."""


def one_rank(channel: Connection, work: Work, rank: int, size: int) -> None:
    """Work as one of several ranks, and send what that returns."""
    store = open_store(HOST, start_seconds=SECONDS) if rank == 0 else None
    if store is not None:
        channel.send(store.port)
    found = store or find_store(HOST, channel.recv(), start_seconds=SECONDS, position=Position())
    group = join_group(found, Place(rank, size, SECONDS, SECONDS), host=HOST, position=Position())
    with compute_settings(1):
        channel.send(work(group))
    channel.recv()


def train_as_one(group: RankGroup, *, chosen: argparse.Namespace, layers: int) -> dict[str, Any]:
    """Return what `train` returns on one of several ranks."""
    return train(chosen.data, open_rows(group), chosen, layers=layers, group=group)


def in_processes(work: Work, size: int) -> list[dict[str, Any]]:
    """Return what each of so many ranks returns, in processes of one thread that are joined by gloo."""
    spawn, pairs = multiprocessing.get_context("spawn"), []
    for rank in range(size):
        ours, theirs = multiprocessing.Pipe()
        process = spawn.Process(target=one_rank, args=(theirs, work, rank, size))
        process.start()
        theirs.close()
        pairs.append((ours, process))
        if rank == 0:
            port = ours.recv()
        else:
            ours.send(port)
    ran = [ours.recv() for ours, _ in pairs]  # EOFError where a rank failed, which it has told
    for ours, process in pairs:
        ours.send(None)
        process.join()
    return ran


def on_ranks(chosen: argparse.Namespace, *, layers: int, size: int) -> dict[str, Any]:
    """Return what so many ranks measured: seconds of the slowest, memory of the largest."""
    ran = in_processes(partial(train_as_one, chosen=chosen, layers=layers), size)
    return {
        "seconds": max(statistics.median(each["times"]) for each in ran),
        "grown_mib": max(each["grown_mib"] for each in ran),
        "rows_sent": [each["rows_sent"] for each in ran],
        "loss": ran[0]["loss"],
        "ranks": ran,
    }


def beside(folder: Path, chosen: argparse.Namespace, *, layers: int) -> dict[str, Any]:
    """Return the seconds per epoch of both libraries, in turns."""
    found: dict[str, list[float]] = {}
    ours = [sys.executable, __file__, "--data", str(folder), "--alone", str(layers)]
    theirs = [chosen.dgl, str(OTHER), str(folder), str(layers)] if chosen.dgl else []
    for _ in range(chosen.turns):
        for name, command in {"gnnflow": ours, "dgl": theirs}.items():
            if command:
                more = [
                    "--threads",
                    str(chosen.threads),
                    "--repeats",
                    str(chosen.repeats),
                    "--hidden",
                    str(chosen.hidden),
                ]
                ran = subprocess.run([*command, *more], check=True, capture_output=True, text=True)  # noqa: S603
                found.setdefault(name, []).extend(json.loads(ran.stdout.splitlines()[-1])["times"])
    medians = {name: statistics.median(times) for name, times in found.items()}
    return {"seconds": medians, **({"ratio": medians["dgl"] / medians["gnnflow"]} if chosen.dgl else {})}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    for name, default in {"nodes": 60_000, "edges": 12_000_000, "width": 602, "classes": 41, "hidden": 128}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--depths", default="2,3,4,5")
    parser.add_argument("--ranks", default="")
    parser.add_argument("--dgl", default="")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--alone", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    make_graph(chosen.data, nodes=chosen.nodes, edges=chosen.edges, width=chosen.width, classes=chosen.classes)
    if chosen.alone:
        with compute_settings(chosen.threads):
            print(json.dumps(train(chosen.data, OneRank(), chosen, layers=chosen.alone, group=None)))
        return
    results: dict[str, Any] = {}
    for layers in map(int, chosen.depths.split(",")):
        if chosen.ranks:
            for size in map(int, chosen.ranks.split(",")):
                results[f"{layers} layers, {size} ranks"] = on_ranks(chosen, layers=layers, size=size)
        else:
            results[f"{layers} layers"] = beside(chosen.data, chosen, layers=layers)
    print(json.dumps({"bench": "globalbatch", "torch": torch.__version__, "results": results}))


if __name__ == "__main__":
    main()
