"""Seconds per epoch of a GCN over a whole graph: by depth, with DGL, and on several ranks.

    python benchmarks/globalbatch.py [--folder FOLDER] [--depths 2,3,4,5] [--dgl PYTHON] [--rounds 2]
    python benchmarks/globalbatch.py --ranks 1,2 --depths 2 [--recompute]

The graph has Reddit's columns, classes and share of training nodes (602, 41, 66 %), and fewer nodes and edges: nodes
lie in communities, each a run of ids, from which nine of ten edges come; degrees follow a power law. The model is a GCN
with dropout 0.5 and Adam. Each form trains it in a separate process, in turns: gnnflow in one process of --threads
threads, DGL likewise, or --ranks, each a process of one thread that owns a run of the nodes, joined by gloo on this
host. Memory is the growth of a process, at its peak, after it loaded its libraries; of ranks the largest.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from harness import DGL, FOLDER, Benchmark, Chosen, Found, Option, cell, folder_of, numbers, peak_mib, peer, run

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


def train(folder: Path, exchange: Exchange, chosen: Chosen, *, layers: int, group: Any) -> Found:
    """Return the seconds of each epoch after the first, and the bytes that this process grew by."""
    before = peak_mib()
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
    grown = peak_mib() - before
    batch = source.batch(0).tensors
    layers_of = [layer for layer in batch.layers if isinstance(layer, RankLayer)]
    mirrors = [len(layer.route.rows.sources) if layer.route else 0 for layer in layers_of]
    stages = {key: each / chosen.repeats for key, each in since(source.stages.seconds(), warm).items()}
    return {
        "times": times[1:],
        "loss": taken.mean,
        "mib": grown,
        "rows_sent": mirrors,
        "stages": stages,
        "rows": [layer.num_targets for layer in batch.layers],
        "edges": len(part.edges.sources),
        "gradient_bytes": sum(each.nbytes for each in model.parameters()),
    }


Work = Callable[[RankGroup], Found]
"""What each rank does, as a value that travels to its process."""


def one_rank(channel: Connection, work: Work, place: Place, port: int) -> None:
    """Work as one of several ranks, and send the result."""
    store = find_store(HOST, port, start_seconds=SECONDS, position=Position())
    group = join_group(store, place, host=HOST, position=Position())
    with compute_settings(1):
        channel.send(work(group))
    channel.recv()


def train_as_one(group: RankGroup, *, chosen: Chosen, layers: int) -> Found:
    """Return the result of `train` on one of several ranks."""
    return train(Path(chosen.folder), open_rows(group), chosen, layers=layers, group=group)


def in_processes(work: Work, size: int) -> list[Found]:
    """Return the results of ranks, in processes of one thread that are joined by gloo."""
    spawn, store, pairs = multiprocessing.get_context("spawn"), open_store(HOST, start_seconds=SECONDS), []
    for rank in range(size):
        ours, theirs = multiprocessing.Pipe()
        place = Place(rank, size, SECONDS, SECONDS)
        process = spawn.Process(target=one_rank, args=(theirs, work, place, store.port))
        process.start()
        theirs.close()
        pairs.append((ours, process))
    ran = [ours.recv() for ours, _ in pairs]  # EOFError if a rank failed, which it has reported
    for ours, process in pairs:
        ours.send(None)
        process.join()
    return ran


def on_ranks(chosen: Chosen, *, layers: int, size: int) -> list[Found]:
    """Return the measurements of each rank."""
    return in_processes(partial(train_as_one, chosen=chosen, layers=layers), size)


def alone(chosen: Chosen) -> Found:
    """Train in this process."""
    with compute_settings(chosen.threads):
        return train(Path(chosen.folder), OneRank(), chosen, layers=chosen.layers, group=None)


def measured(form: str, chosen: Chosen, *, layers: int) -> Found:
    """Return the seconds of a form's epochs, of several ranks the slowest one's, with memory and loss."""
    if form == "dgl":
        keys = {"hidden": chosen.hidden, "dropout": DROPOUT, "threads": chosen.threads, "epochs": chosen.repeats + 1}
        found: Found = peer(chosen.dgl, "globalbatch_dgl", folder=chosen.folder, layers=layers, **keys)
        return found | {"times": found["times"][1:]}
    if form == "gnnflow":
        return dict(cell(chosen, "alone", layers=layers))
    ran = on_ranks(chosen, layers=layers, size=int(form.split(maxsplit=1)[0]))
    slowest = max(ran, key=lambda each: statistics.median(each["times"]))
    return slowest | {"mib": max(each["mib"] for each in ran)}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the epochs of each depth by form."""
    forms = [f"{size} ranks" for size in numbers(chosen.ranks)] if chosen.ranks else ["gnnflow"]
    forms += ["dgl"] if chosen.dgl else []
    with folder_of(chosen.folder) as folder:
        chosen.folder = str(folder)
        make_graph(folder, nodes=chosen.nodes, edges=chosen.edges, width=chosen.width, classes=chosen.classes)
        for layers in numbers(chosen.depths):
            found: dict[str, list[Found]] = {form: [] for form in forms}
            for _ in range(chosen.rounds):
                for form in forms:
                    found[form].append(measured(form, chosen, layers=layers))
            times = {form: [each for ran in runs for each in ran["times"]] for form, runs in found.items()}
            medians = {form: statistics.median(each) for form, each in times.items()}
            for form, median in medians.items():
                last = found[form][-1]
                yield layers, form, min(times[form]), median, median / medians[forms[0]], last.get("mib"), last["loss"]


BENCH = Benchmark(
    columns=("layers", "form", "min s", "median s", "x first form", "grown MiB", "loss"),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 60_000,
        "edges": 12_000_000,
        "width": 602,
        "classes": 41,
        "hidden": 128,
        "depths": "2,3,4,5",
        "ranks": Option("", "numbers of ranks, as 1,2, in place of one process"),
        "recompute": Option(default=False, help="compute rows again in the backward pass"),
        "dgl": DGL,
        "rounds": 2,
        "repeats": 2,
        "threads": 2,
    },
    small={"nodes": 1_000, "edges": 8_000, "width": 16, "hidden": 16, "depths": "2", "ranks": "1,2", "rounds": 1},
    cells={"alone": alone},
)


if __name__ == "__main__":
    run(BENCH)
