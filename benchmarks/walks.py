"""PinSage against DGL: neighbours by random walks on 1M nodes and 10M edges, and a training step over them.

    python benchmarks/walks.py [--folder FOLDER] --dgl PYTHON [--workers 0] [--partitions 1]

The folder's graph is written once (`gnnflow.datasets.power_law`) and ingested once; then each repeat selects again: 10
walks of 3 steps from every node, the 10 most visited kept.

    select        the whole stage, from the graph store's files to the files that training reads: once for all epochs
    view          the walks of each epoch under `train.resample: epoch`, from all nodes at once, in memory
    step          a step of training PinSage of two layers, 64 wide, on all nodes over the selected neighbours
    dgl walks     the walks of each epoch in DGL, in batches of 1024 roots, with the graph in memory
    dgl whole     the same in one call
    dgl step      the same step
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graphflat import tables_in
from harness import DGL, FOLDER, Benchmark, Chosen, Option, folder_of, peer, run
from torch.nn.functional import cross_entropy

from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict, model_from_dict
from gnnflow.config.neighbors_section import WalkNeighbors
from gnnflow.executions import minibatch
from gnnflow.executions.tensors import batch_tensors
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features, MiniBatch
from gnnflow.graph.edges import InEdges
from gnnflow.graph.facts import SelectFacts
from gnnflow.kernels.memory import kept_memory
from gnnflow.layers import ModelInputs, build_model
from gnnflow.neighbors.selected import Neighbors
from gnnflow.neighbors.walk_views import WalkViews
from gnnflow.neighbors.whole import read_graph
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.writing import remove_tree
from gnnflow.train.reproducible import compute_settings

WALKS, LENGTH, TOP_K = 10, 3, 10
WIDTH, CLASSES = 64, 32


def configured(tables: tuple[str, str], folder: Path, *, partitions: int, workers: int) -> Config:
    """Return the config of the selection."""
    local = {"kind": "local", "workers": workers, "memory_limit": "3GiB"}
    return config_from_dict(
        {
            "name": "walks",
            "workspace": str(folder / "workspace"),
            "graph": {"nodes": tables[0], "edges": tables[1], "partitions": partitions},
            "neighbors": {"kind": "walks", "walks": WALKS, "length": LENGTH, "top_k": TOP_K},
            "cluster": local if workers else {"kind": "synchronous"},
        }
    )


def selected(context: StageContext) -> ArtifactResult:
    """Run the selection again."""
    remove_tree(context.run.artifact("select"))
    return make_artifact(context, "select")


def store_of(context: StageContext) -> GraphStore:
    """Return the store with the selected neighbours."""
    selected, stored = make_artifact(context, "select"), make_artifact(context, "ingest")
    store = GraphStore.of(stored.artifact, stored.manifest)
    return store.selected(selected.artifact, selected.facts(SelectFacts).relations)


def epochs(context: StageContext, repeats: int) -> list[float]:
    """Return the seconds of steps of PinSage of two layers and a linear head over all nodes."""
    store = store_of(context)
    parts = range(store.num_partitions)
    held = [Neighbors(store).in_edges(each) for each in parts]
    edges = InEdges(
        offsets_of(np.concatenate([each.lengths for each in held])),
        np.concatenate([each.sources for each in held]),
        weight=np.concatenate([each.weight for each in held if each.weight is not None]),
    )
    degrees = [store.degrees(each) for each in parts]
    columns = ("in_degree", "out_degree", "in_weight")
    nodes = Degrees(*(np.concatenate([getattr(each, name) for each in degrees]) for name in columns))
    torch.manual_seed(0)
    config = model_from_dict({"kind": "pinsage", "hidden": WIDTH, "layers": 2, "head": "linear", "dropout": 0.0})
    model = build_model(config, ModelInputs(WIDTH, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    block, number = Block(edges, len(nodes)), len(nodes)
    x, labels = Features(WIDTH, dense=torch.randn(number, WIDTH).numpy()), torch.randint(0, CLASSES, (number,))
    batch = batch_tensors(MiniBatch((block, block), nodes, x, np.arange(number)))
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(minibatch.forward(model, batch), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(time.perf_counter() - begin)
    return found


def views(context: StageContext, repeats: int, threads: int) -> list[float]:
    """Return the seconds of new walks in memory for epochs 1, 2, ..., the inputs of training included."""
    neighbors, section = Neighbors(store_of(context)), context.config.neighbors
    assert isinstance(section, WalkNeighbors)
    graph, drawn = read_graph(neighbors), WalkViews.of(neighbors, section, seed=context.config.seed, threads=threads)
    found = []
    for view in range(1, repeats + 1):
        begin = time.perf_counter()
        drawn.view(graph, view)
        found.append(time.perf_counter() - begin)
    return found


def write_ends(store: GraphStore, folder: Path) -> None:
    """Write both ends of all edges as arrays, which need no library to read."""
    folder.mkdir(exist_ok=True)
    for name in ("src", "dst"):
        parts = [to_numpy(store.edges(each, [name])[name]) for each in range(store.num_partitions)]
        np.save(folder / f"{name}.npy", np.concatenate(parts))


def turn(context: StageContext, chosen: Chosen, ends: Path) -> dict[str, float]:
    """Return the seconds of one turn of all parts."""
    made = selected(context)
    found = {"select": float(made.manifest.timings["seconds"])}
    with compute_settings(chosen.threads), kept_memory():
        found["step"] = min(epochs(context, 3)[1:])
    found["view"] = min(views(context, 2, chosen.threads))
    if chosen.dgl:
        keys = {"walks": WALKS, "length": LENGTH, "top_k": TOP_K, "classes": CLASSES, "threads": chosen.threads}
        ran = peer(chosen.dgl, "walks_dgl", folder=str(ends), **keys)
        found |= {"dgl walks": ran["walks"], "dgl whole": ran["walks_whole"], "dgl step": ran["step"]}
    return found


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the least and the median seconds of each part."""
    with folder_of(chosen.folder) as folder:
        tables = tables_in(folder, num_nodes=chosen.nodes, num_edges=chosen.edges)
        config = configured(tables, folder, partitions=chosen.partitions, workers=chosen.workers)
        with Cluster(config.cluster) as cluster:
            context = StageContext.of(config, cluster)
            made = make_artifact(context, "ingest")
            if chosen.dgl:
                write_ends(GraphStore.of(made.artifact, made.manifest), folder / "ends")
            turns = [turn(context, chosen, folder / "ends") for _ in range(chosen.repeats)]
    for name in turns[0]:
        times = [each[name] for each in turns]
        yield name, min(times), statistics.median(times)


BENCH = Benchmark(
    columns=("part", "min s", "median s"),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 1_000_000,
        "edges": 10_000_000,
        "partitions": 4,
        "workers": Option(2, "0 selects in this process"),
        "threads": 2,
        "repeats": 3,
        "dgl": DGL,
    },
    small={"nodes": 1_000, "edges": 5_000, "workers": 0, "repeats": 1},
)


if __name__ == "__main__":
    run(BENCH)
