"""From Parquet tables to Parquet predictions: a whole run of gnnflow, and a script with DGL that holds the graph.

    python benchmarks/end_to_end.py [--folder FOLDER] [--dgl PYTHON] [--rounds 3]
    python benchmarks/end_to_end.py --nodes 4000000 --edges 40000000 --dgl PYTHON

GraphSAGE of 2 layers, hidden 64, fan-out 15 then 10, batches of 1024, on a tenth of the nodes; then scores for every
node. gnnflow is the command `gnnflow run`, with its report, as a person starts it; DGL reads the same tables, numbers
the ids by a hash table, trains, scores layer by layer over all in-edges, and writes the users' ids. Both start as a
process, in turns. Processor seconds and memory are of all processes, memory the largest sum of what they hold at one
moment (what several map counts several times). gnnflow scores over the sampled neighbours, its default.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from harness import DGL, FOLDER, Benchmark, Chosen, Found, Option, cell, folder_of, peer, run

from gnnflow.datasets import power_law
from gnnflow.storage.columns import combine, to_numpy
from gnnflow.storage.writing import remove_tree

_GIB = 1 << 30
_LOOK_SECONDS = 0.1


def tables_in(folder: Path, *, num_nodes: int, num_edges: int) -> tuple[str, str]:
    """Return the node and edge table of a folder; generate missing ones, with random ids and a test split."""
    nodes, edges = folder / "nodes.parquet", folder / "edges.parquet"
    if not nodes.exists():
        graph = power_law(num_nodes=num_nodes, num_edges=num_edges)
        ids = np.random.default_rng(3).permutation(4 * num_nodes)[:num_nodes]
        pq.write_table(pa.table({name: ids[to_numpy(graph.edges[name])] for name in ("src", "dst")}), edges)
        x = combine(graph.nodes["x"])
        label = x.flatten().to_numpy().reshape(num_nodes, -1)[:, :16].argmax(1)
        split = np.array(graph.nodes["split"].to_pylist(), object)
        others = np.flatnonzero(split == None)  # noqa: E711 - elementwise
        split[np.random.default_rng(4).permutation(others)[: num_nodes // 50]] = "test"
        held = {"id": ids, "x": x, "label": label, "split": pa.array(split, pa.string())}
        pq.write_table(pa.table(held), nodes)  # last, since its presence is checked
    return str(nodes), str(edges)


@contextmanager
def watched() -> Iterator[Found]:
    """Yield a dictionary that has the seconds, processor seconds and peak GiB of the processes started in the block."""
    found: Found = {"gib": 0.0}
    ended, own = threading.Event(), psutil.Process()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            held = 0
            for each in own.children(recursive=True):
                with suppress(psutil.Error):
                    held += each.memory_info().rss
            found["gib"] = max(found["gib"], held / _GIB)

    before, begin = _spent(), time.perf_counter()
    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        ended.set()
        looking.join()
        found.update(seconds=time.perf_counter() - begin, cpu=_spent() - before)


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def config_of(chosen: Chosen) -> dict[str, Any]:
    """Return the config of the run."""
    content: dict[str, Any] = {
        "name": "end-to-end",
        "workspace": chosen.workspace,
        "graph": {"nodes": chosen.tables[0], "edges": chosen.tables[1], "features": ["x"]},
        "neighbors": {"sampling": {"kind": "uniform", "fanout": [15, 10]}},
        "model": {"kind": "sage", "hidden": 64, "layers": 2, "dropout": 0.0},
        "train": {"epochs": chosen.epochs, "batch_size": 1024, "lr": 0.003, "source": chosen.source},
    }
    if chosen.workers:
        content["cluster"] = {"kind": "local", "workers": chosen.workers, "memory_limit": chosen.memory}
    return content


def run_of_gnnflow(chosen: Chosen) -> Found:
    """Run the command in the place of this process, which ends with its JSON."""
    file = Path(chosen.workspace).with_suffix(".yaml")
    file.write_text(json.dumps(config_of(chosen)))
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "gnnflow", "run", str(file), "--json"])  # noqa: S606


def of_gnnflow(chosen: Chosen, folder: Path, tables: tuple[str, str]) -> Found:
    """Return the figures of a run in a new workspace."""
    workspace = folder / "workspace"
    remove_tree(str(workspace))
    with watched() as found:
        said = cell(chosen, "run", tables=tables, workspace=str(workspace))
    made = said["stages"]  # sorted by name
    steps = {name: made[name]["seconds"] for name in ("ingest", "select", "flat", "train", "infer") if name in made}
    return {**found, "steps": steps, "accuracy": said["metrics"].get("test.accuracy")}


def of_dgl(chosen: Chosen, folder: Path, tables: tuple[str, str]) -> Found:
    """Return the figures of DGL."""
    given = {"nodes": tables[0], "edges": tables[1], "out": str(folder / "predictions.parquet")}
    with watched() as found:
        said = peer(chosen.dgl, "end_to_end_dgl", threads=chosen.threads, epochs=chosen.epochs, **given)
    return {**found, **said}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the medians of each program, which take turns."""
    forms = {"gnnflow": of_gnnflow} | ({"DGL": of_dgl} if chosen.dgl else {})
    found: dict[str, list[Found]] = {name: [] for name in forms}
    with folder_of(chosen.folder) as folder:
        tables = tables_in(folder, num_nodes=chosen.nodes, num_edges=chosen.edges)
        for _ in range(chosen.rounds):
            for name, form in forms.items():
                found[name].append(form(chosen, folder, tables))
    last = median(found[list(forms)[-1]], "seconds")
    for name, runs in found.items():
        steps = {each: statistics.median(ran["steps"][each] for ran in runs) for each in runs[0]["steps"]}
        rest = median(runs, "seconds") - sum(steps.values())
        shown = ", ".join(f"{each} {seconds:.1f}" for each, seconds in {**steps, "rest": rest}.items())
        seconds = median(runs, "seconds")
        figures = seconds, seconds / last, median(runs, "cpu"), max(ran["gib"] for ran in runs)
        yield name, *figures, runs[-1]["accuracy"], shown


def median(runs: list[Found], figure: str) -> float:
    """Return the median of a figure over runs."""
    return float(statistics.median(ran[figure] for ran in runs))


BENCH = Benchmark(
    columns=("program", "seconds", "x last program", "processor s", "peak GiB", "test accuracy", "seconds of steps"),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 1_000_000,
        "edges": 10_000_000,
        "epochs": 4,
        "workers": Option(2, "of the cluster; 0 leaves it to gnnflow"),
        "memory": Option("3GiB", "of a worker"),
        "source": Option(
            "shards", "of gnnflow's training: GraphFlat's shards, or the store in memory", ("shards", "store")
        ),
        "threads": Option(2, "of DGL"),
        "rounds": 3,
        "dgl": DGL,
    },
    small={"nodes": 2_000, "edges": 10_000, "epochs": 1, "workers": 0, "rounds": 1},
    cells={"run": run_of_gnnflow},
)


if __name__ == "__main__":
    run(BENCH)
