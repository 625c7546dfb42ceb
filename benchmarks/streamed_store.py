"""Training on a stored graph under several budgets: the memory growth of `gnnflow train`.

    python benchmarks/streamed_store.py [--graphs plain,typed,metapaths] [--budgets 200,130,110,90,75] [--model gcn]

plain: 150,000 nodes of 64 columns and 3 million weighted edges. typed: 265,000 nodes of three types with 5 million
edges in six relations. metapaths: 102,000 nodes of three types and the instances of three paths among them. All are
random, in 16 partitions. Budgets are MiB. --share S makes graphs of so many of these.

Each budget has a separate process over the same store, which trains two epochs, with validation and metrics. Memory is
the growth of its peak (VmHWM) from the planning of the cut on, after libraries are loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from harness import Benchmark, Chosen, Found, Option, folder_of, numbers, run

TRAINING = """
import atexit, json, sys
from gnnflow.cli import main
from gnnflow.train.streamed import source

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024

made, told = source.plan, {"before": 0.0}

def plan(*given, **keys):
    found = made(*given, **keys)
    told.update(before=peak(), intervals=found.intervals, planned=found.num_bytes / 2**20)
    return found

source.plan = plan
atexit.register(lambda: print(json.dumps({**told, "grown": peak() - told["before"]}), flush=True))
main()
"""
TYPES = {"user": 200_000, "item": 50_000, "shop": 15_000}
RELATIONS = {
    "user__buys__item": 1_500_000,
    "item__bought_by__user": 1_500_000,
    "shop__sells__item": 400_000,
    "item__sold_by__shop": 400_000,
    "user__follows__user": 1_000_000,
    "shop__near__shop": 200_000,
}
FEW_TYPES = {"a": 60_000, "b": 36_000, "c": 6_000}
FEW_RELATIONS = {"b__to__a": 150_000, "a__of__b": 150_000, "c__to__a": 100_000, "a__of__c": 100_000}
PATHS = [["a", "b", "a"], ["a", "c", "a"], ["b", "a", "b"]]


def write_nodes(file: Path, number: int, width: int) -> str:
    """Write random nodes, half of them for training, and return the path."""
    rng = np.random.default_rng(number)
    x = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(number * width, np.float32)), width)
    splits = np.array(["train", "train", "valid", "test"])[rng.integers(0, 4, number)]
    labels = pa.array(rng.integers(0, 8, number))
    pq.write_table(pa.table({"id": np.arange(number), "x": x, "label": labels, "split": splits}), file)
    return str(file)


def write_edges(file: Path, number: int, sources: int, targets: int, *, weighted: bool) -> str:
    """Write random edges and return the path."""
    rng = np.random.default_rng(number)
    columns = {"src": rng.integers(0, sources, number), "dst": rng.integers(0, targets, number)}
    weights = {"weight": rng.random(number, np.float32) + 0.5} if weighted else {}
    pq.write_table(pa.table({**columns, **weights}), file)
    return str(file)


def typed_graph(folder: Path, types: dict[str, int], relations: dict[str, int], target: str) -> Found:
    """Write the tables of a typed graph and return its section of a config."""
    ends = {name: (name.split("__")[0], name.split("__")[-1]) for name in relations}
    return {
        "nodes": {name: write_nodes(folder / f"{name}.parquet", number, 64) for name, number in types.items()},
        "edges": {
            name: write_edges(
                folder / f"{name}.parquet", number, types[ends[name][0]], types[ends[name][1]], weighted=False
            )
            for name, number in relations.items()
        },
        "target": target,
    }


def config_of(kind: str, folder: Path, chosen: Chosen) -> Found:
    """Write a graph's tables and return the config that trains on it."""
    model: Found = {"kind": chosen.model or "gcn", "hidden": 64, "layers": 2}
    neighbors: Found = {}
    if kind == "plain":
        number = round(150_000 * chosen.share)
        nodes = write_nodes(folder / "nodes.parquet", number, 64)
        edges = write_edges(folder / "edges.parquet", 20 * number, number, number, weighted=True)
        graph: Found = {"nodes": nodes, "edges": edges}
    elif kind == "typed":
        graph = typed_graph(folder, shared(TYPES, chosen.share), shared(RELATIONS, chosen.share), "user")
        model["kind"] = chosen.model or "rgcn"
    else:
        graph = typed_graph(folder, shared(FEW_TYPES, chosen.share), shared(FEW_RELATIONS, chosen.share), "a")
        neighbors = {"neighbors": {"kind": "metapaths", "paths": PATHS, "max_instances": 8}}
        model = {"kind": "magnn", "hidden": 16, "heads": 4, "layers": 2}
    return {
        "name": f"streamed-{kind}",
        "workspace": str(folder / "runs"),
        "graph": {**graph, "features": ["x"], "partitions": chosen.partitions},
        **neighbors,
        "model": {**model, "dropout": 0.5},
        "train": {"strategy": "global-batch", "epochs": 2, "patience": 2, "threads": chosen.threads},
        "cluster": {"kind": "synchronous"},
    }


def shared(sizes: dict[str, int], share: float) -> dict[str, int]:
    """Return a share of each number."""
    return {name: round(size * share) for name, size in sizes.items()}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the memory growth under each budget, graph by graph."""
    for kind in chosen.graphs.split(","):
        with folder_of("") as folder:
            config = folder / "config.yaml"
            config.write_text(yaml.safe_dump(config_of(kind, folder, chosen)))
            for stage in ("ingest", "select"):
                command = [sys.executable, "-m", "gnnflow", stage, str(config), "--json"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
            for budget in numbers(chosen.budgets):
                keys = ["--set", f"train.memory={budget}MiB"]
                words = [sys.executable, "-c", TRAINING, "train", str(config), "--json", *keys]
                ran = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
                summary, told = map(json.loads, ran.stdout.splitlines()[-2:])
                shown = told.get("intervals"), told.get("planned"), told["grown"], summary["seconds"]
                yield kind, budget, *shown


BENCH = Benchmark(
    columns=("graph", "budget MiB", "intervals", "planned MiB", "grown MiB", "seconds"),
    rows=rows,
    options={
        "graphs": Option("plain", "of plain, typed and metapaths"),
        "budgets": "200,130,110,90,75",
        "model": "",
        "threads": 1,
        "partitions": 16,
        "share": Option(1.0, "of the nodes and edges"),
    },
    small={"share": 0.02, "budgets": "200", "partitions": 2, "graphs": "plain,metapaths"},
)


if __name__ == "__main__":
    run(BENCH)
