"""Neighbours by random walks on 1M nodes and 10M edges, with DGL's sampler of PinSage beside, in turns.

    python benchmarks/walks.py --data data/big --dgl PYTHON           # PYTHON: an interpreter that has dgl and torch
    python benchmarks/walks.py --data data/big --partitions 1 --workers 0

--data is written once (`gnnflow.datasets.power_law`) and ingested once; then each repeat selects anew: 10 walks of 3
steps from every node, the 10 most visited kept. `select` is the whole stage, from the graph store's files to the files
that training reads, and it is done once for all epochs and runs; `routed` is the same with walks that go from owner to
owner, as they do where the graph is too large for one task. `dgl walks` is what DGL does anew in each epoch, in batches
of 1024 roots, with the graph in memory; `view` is what gnnflow does anew in each epoch under `train.resample: epoch`,
from all nodes at once, also with the graph in memory, on two threads. `epoch` and `dgl epoch` are a step of training
PinSage of two layers, 64 wide, on all nodes over what the walks found, on two threads. Prints a table to stderr and one
JSON line to stdout.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict, model_from_dict
from gnnflow.config.neighbors_section import WalkNeighbors
from gnnflow.datasets import write_power_law
from gnnflow.executions import minibatch
from gnnflow.executions.tensors import batch_tensors
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features, MiniBatch
from gnnflow.graph.edges import InEdges
from gnnflow.graph.facts import SelectFacts
from gnnflow.kernels.memory import kept_memory
from gnnflow.layers import ModelInputs, build_model
from gnnflow.neighbors import walks
from gnnflow.neighbors.selected import Neighbors
from gnnflow.neighbors.walk_views import WalkViews
from gnnflow.neighbors.whole import read_graph
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.reproducible import compute_settings

WALKS, LENGTH, TOP_K = 10, 3, 10
WIDTH, CLASSES, THREADS = 64, 32, 2
Figures = dict[str, Any]


def prepared(data: Path, *, num_nodes: int, num_edges: int) -> tuple[str, str]:
    """Return the tables of a folder, generating them where it has none."""
    if not (data / "nodes.parquet").exists():
        data.mkdir(parents=True, exist_ok=True)
        write_power_law(str(data), num_nodes=num_nodes, num_edges=num_edges)
    return str(data / "nodes.parquet"), str(data / "edges")


def configured(tables: tuple[str, str], data: Path, *, partitions: int, workers: int) -> Config:
    """Return the config of the selection."""
    local = {"kind": "local", "workers": workers, "memory_limit": "3GiB"}
    return config_from_dict(
        {
            "name": "walks",
            "workspace": str(data / "workspace"),
            "graph": {"nodes": tables[0], "edges": tables[1], "partitions": partitions},
            "neighbors": {"kind": "walks", "walks": WALKS, "length": LENGTH, "top_k": TOP_K},
            "cluster": local if workers else {"kind": "synchronous"},
        }
    )


def selected(context: StageContext) -> ArtifactResult:
    """Select anew."""
    shutil.rmtree(context.run.artifact("select"), ignore_errors=True)
    return make_artifact(context, "select")


def figures_of(made: ArtifactResult) -> Figures:
    """Return seconds by round, bytes and the largest task of a selection."""
    rounds = made.manifest.timings["rounds"]
    return {
        "seconds": made.manifest.timings["seconds"],
        "rounds": {each["name"]: round(each["seconds"], 2) for each in rounds},
        "exchanged_mib": sum(each["exchanged_bytes"] for each in rounds) >> 20,
        "rss_gb": round(max(each["peak_bytes"] for each in rounds) / 2**30, 2),
        "bytes_ratio": round(made.facts(SelectFacts).bytes_ratio, 3),
        "instances": made.facts(SelectFacts).num_edges,
        "digest": made.digest,
    }


def epochs(context: StageContext, repeats: int) -> list[float]:
    """Return the seconds of steps of PinSage of two layers and a linear head over all nodes."""
    selected = make_artifact(context, "select")
    stored = make_artifact(context, "ingest")
    store = GraphStore.of(stored.artifact, stored.manifest)
    store = store.selected(selected.artifact, selected.facts(SelectFacts).relations)
    parts = range(store.num_partitions)
    held = [Neighbors(store, "", "none", None).in_edges(each) for each in parts]
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
        cross_entropy(minibatch.forward(model, batch), labels).backward()
        optimizer.step()
        found.append(time.perf_counter() - begin)
    return found


def views(context: StageContext, repeats: int) -> list[float]:
    """Return the seconds of walks taken anew in memory, for epochs 1, 2, ..., with what training reads made of them."""
    selected, stored = make_artifact(context, "select"), make_artifact(context, "ingest")
    store = GraphStore.of(stored.artifact, stored.manifest)
    store = store.selected(selected.artifact, selected.facts(SelectFacts).relations)
    neighbors, section = Neighbors(store, "", "none", None), context.config.neighbors
    assert isinstance(section, WalkNeighbors)
    graph, drawn = read_graph(neighbors), WalkViews.of(neighbors, section, seed=context.config.seed, threads=THREADS)
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


def peer(interpreter: str, folder: Path) -> Figures:
    """Return what DGL takes for one epoch's walks."""
    script = str(Path(__file__).with_name("walks_dgl.py"))
    command = [interpreter, script, str(folder), "1", *map(str, (WALKS, LENGTH, TOP_K)), "2"]
    said = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - the caller's interpreter
    found: Figures = json.loads(said.stdout.splitlines()[-1])
    return found


def measure(context: StageContext, arguments: argparse.Namespace) -> dict[str, list[Figures]]:
    """Measure in turns."""
    made = make_artifact(context, "ingest")
    folder = arguments.data / "ends"
    if arguments.dgl:
        write_ends(GraphStore.of(made.artifact, made.manifest), folder)
    results: dict[str, list[Figures]] = {"select": [], "routed": [], "view": [], "epoch": [], "dgl": []}
    for _ in range(arguments.repeats):
        results["select"].append(figures_of(selected(context)))
        if arguments.routed:
            # workers are told by their environment alone, so this way is for --workers 0
            results["routed"].append(figures_of(_routed(context)))
        if arguments.epoch:
            with compute_settings(THREADS), kept_memory():
                results["epoch"].append({"seconds": min(epochs(context, 3)[1:])})
            results["view"].append({"seconds": min(views(context, 2))})
        if arguments.dgl:
            results["dgl"].append(peer(arguments.dgl, folder))
    return results


def _routed(context: StageContext) -> ArtifactResult:
    kept, walks.WHOLE_BYTES = walks.WHOLE_BYTES, 0
    try:
        return selected(context)
    finally:
        walks.WHOLE_BYTES = kept


def table_of(results: dict[str, list[Figures]]) -> str:
    """Return the results for people."""
    lines = []
    for name in ("select", "routed", "view", "epoch"):
        if held := results[name]:
            best = min(held, key=lambda each: each["seconds"])
            others = {key: value for key, value in best.items() if key not in {"seconds", "digest"}}
            lines.append(f"{name:12} {best['seconds']:7.2f} s (best of {len(held)})  {others}")
    if held := results["dgl"]:
        for part in ("walks", "walks_whole", "layer", "epoch"):
            times = [each["times"][part][0] for each in held]
            lines.append(f"dgl {part:12} {min(times):7.2f} s (median {statistics.median(times):.2f})")
    return "\n".join(lines)


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dgl", default="", help="an interpreter that has dgl and torch")
    parser.add_argument("--routed", action="store_true", help="also let walks go from owner to owner (--workers 0)")
    parser.add_argument("--epoch", action="store_true", help="also walk anew in memory, and train PinSage for a step")
    arguments = parser.parse_args()
    tables = prepared(arguments.data, num_nodes=arguments.nodes, num_edges=arguments.edges)
    config = configured(tables, arguments.data, partitions=arguments.partitions, workers=arguments.workers)
    with Cluster(config.cluster) as cluster:
        results = measure(StageContext.of(config, cluster), arguments)
    print(table_of(results), file=sys.stderr)
    print(json.dumps({"bench": "walks", "results": results}))


if __name__ == "__main__":
    main()
