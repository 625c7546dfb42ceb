"""Seconds per epoch of mini-batch training, from shards on disk and from the store; DGL and PyG in memory.

    python benchmarks/minibatch.py [--graph big.npz] [--dgl PYTHON] [--pyg PYTHON] [--epochs 4] [--threads 1]
    python benchmarks/minibatch.py --graph big.npz --dgl PYTHON --layers 2 --targets 4096     # every in-edge, by store
    python benchmarks/minibatch.py --nodes 10000000 --edges 100000000 --targets 100000 --partitions 40

GraphSAGE of 2 layers, hidden 64, over all training targets in batches of 1024, fan-out 15 then 10; --layers reads every
in-edge within so many layers instead. Forms of gnnflow, each of which trains in a separate process: `shards`, which
GraphFlat made; `store` (`train.source`) with one sample; `resample`, a sample per epoch. Peers sample anew in each
batch, with as many threads as gnnflow computes and reads with. The first epoch, which also checks the files, is shown
separately. --graph names an .npz file with x [N, F], y [N], edge_index [2, E] and seeds, written once as tables;
without it a graph is generated (`gnnflow.datasets.power_law`), and peers get it as such a file.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from graphflat import FANOUT, Job, tables_in
from harness import DGL, FOLDER, Benchmark, Chosen, Found, Option, cell, folder_of, peak_mib, peer, run

from gnnflow.config import Config, config_from_dict
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix, to_numpy
from gnnflow.storage.writing import remove_tree

SOURCES: dict[str, dict[str, str]] = {
    "shards": {},
    "store": {"source": "store"},
    "resample": {"source": "store", "resample": "epoch"},
}
PEERS = {"pyg": "minibatch_pyg", "dgl": "minibatch_dgl"}


def write_tables(graph: Path, data: Path) -> None:
    """Write the node and edge table of an .npz file; its seeds are the train split, a few others valid."""
    with np.load(graph) as held:
        x, y, (source, target), seeds = (held[name] for name in ("x", "y", "edge_index", "seeds"))
    split = np.full(len(y), None, object)
    split[seeds] = "train"
    split[np.setdiff1d(np.arange(len(y)), seeds)[: len(seeds) // 100 + 1]] = "valid"
    features = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    ids = np.arange(len(y))
    nodes = pa.table({"id": ids, "x": features, "label": y, "split": pa.array(split, pa.string())})
    pq.write_table(pa.table({"src": source, "dst": target}), data / "edges.parquet", row_group_size=1 << 20)
    pq.write_table(nodes, data / "nodes.parquet", row_group_size=1 << 17)  # last, since its presence is checked


def write_npz(tables: tuple[str, str], path: Path) -> None:
    """Write the tables of a generated graph as the file that peers read."""
    nodes, edges = (pq.read_table(each) for each in tables)
    seeds = np.flatnonzero(to_numpy(pc.equal(nodes["split"], "train").fill_null(fill_value=False)))
    ends = np.stack([to_numpy(edges[name]) for name in ("src", "dst")])
    labels = to_numpy(nodes["label"].fill_null(0)).astype(np.int64)
    np.savez(path, x=to_matrix(nodes["x"]), y=labels, edge_index=ends, seeds=seeds)


def with_targets(tables: tuple[str, str], folder: Path, count: int) -> tuple[str, str]:
    """Write the node table with a split for `count` of its targets only, a piece at a time."""
    source, out = pq.ParquetFile(tables[0]), folder / f"nodes-{count}.parquet"
    targets = np.flatnonzero(source.read(["split"])["split"].is_valid().to_numpy())
    kept = targets[np.linspace(0, len(targets) - 1, min(count, len(targets))).astype(np.int64)]
    first = 0
    with pq.ParquetWriter(out, source.schema_arrow) as writer:
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group)
            mask = pa.array(np.isin(first + np.arange(rows.num_rows), kept))
            split = pc.if_else(mask, rows["split"].combine_chunks(), pa.scalar(None, rows["split"].type))
            writer.write_table(rows.set_column(rows.column_names.index("split"), "split", split))
            first += rows.num_rows
    return str(out), tables[1]


def train_config(job: Job, chosen: Chosen, form: str) -> Config:
    """Return the config with the job's GraphFlat and this training."""
    document, layers = job.config().model_dump(mode="json"), chosen.layers or len(FANOUT)
    document["model"] = {"kind": chosen.model, "layers": layers, "hidden": 64, "dropout": 0.0, "head": "direct"}
    if chosen.layers:
        document["neighbors"] = {"sampling": {"kind": "none"}}
        document["flat"]["hops"] = layers
    if form != "shards":  # then nothing of GraphFlat may be set
        document["flat"]["layout"] = "auto"
    train = {"epochs": chosen.epochs + 1, "batch_size": 1024, "lr": 0.003, "threads": chosen.threads}
    document["train"] = {**train, "cache": chosen.cache, "prefetch": chosen.prefetch, **SOURCES[form]}
    document["cluster"] = {"kind": "synchronous"}
    return config_from_dict(document)


def trained(chosen: Chosen) -> Found:
    """Train in this process over existing artifacts, and return the seconds of each epoch."""
    job = Job(tuple(chosen.tables), chosen.workspace, chosen.partitions, workers=0)
    context = StageContext.of(train_config(job, chosen, chosen.form))
    remove_tree(context.run.artifact("train"))
    begin = time.process_time()
    facts = make_artifact(context, "train").facts(TrainFacts)
    spent = (time.process_time() - begin) / (chosen.epochs + 1)
    times = [row["seconds"] for row in facts.history]
    return {"times": times, "cpu": [spent], "loss": facts.history[-1]["train_loss"], "mib": peak_mib()}


def prepared(chosen: Chosen, folder: Path) -> tuple[str, str]:
    """Return the tables, written if missing, and write the file for peers."""
    if chosen.graph and not (folder / "nodes.parquet").exists():
        write_tables(Path(chosen.graph), folder)
    tables = tables_in(folder, num_nodes=chosen.nodes, num_edges=chosen.edges)
    if chosen.targets:
        tables = with_targets(tables, folder, chosen.targets)
    if chosen.pyg or chosen.dgl:
        write_npz(tables, folder / "graph.npz")
    return tables


def stages_of(job: Job, chosen: Chosen) -> float:
    """Make the inputs of training, and return the seconds of selecting neighbours and of GraphFlat."""
    config = train_config(job, chosen, "shards").model_copy(update={"cluster": job.config().cluster})
    stages = ("select", "flat") if "shards" in chosen.forms.split(",") else ("select",)
    job.stage("ingest", config)
    return float(sum(job.stage(stage, config)[1]["seconds"] for stage in stages))


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the epochs of each form and peer, one after the other in each round."""
    with folder_of(chosen.folder) as folder:
        tables = prepared(chosen, folder)
        job = Job(tables, str(folder / "workspace"), chosen.partitions, workers=chosen.workers)
        flat = stages_of(job, chosen)
        found: dict[str, list[Found]] = {}
        for _ in range(chosen.rounds):
            for form in chosen.forms.split(","):
                given = {"form": form, "tables": tables, "workspace": job.workspace}
                found.setdefault(form, []).append(cell(chosen, "train", threads=chosen.threads, **given))
            for name, python in (("pyg", chosen.pyg), ("dgl", chosen.dgl)):
                if python:
                    found.setdefault(name, []).append(peer_of(name, python, folder, chosen))
        first = least(next(iter(found.values())))
        for name, runs in found.items():
            times = [second for ran in runs for second in ran["times"][1:]]
            peak = runs[-1].get("mib")
            yield (
                name,
                flat if name == "shards" else 0.0,
                runs[0]["times"][0],
                min(times),
                statistics.median(times),
                least(runs) / first,
                min(second for ran in runs for second in ran["cpu"]),
                peak and peak / 1024,
                runs[-1]["loss"],
            )


def peer_of(name: str, python: str, folder: Path, chosen: Chosen) -> Found:
    """Return the epochs of a peer, which computes and samples with one thread more than gnnflow computes with."""
    given: Found = {"graph": str(folder / "graph.npz"), "epochs": chosen.epochs + 1, "threads": chosen.threads + 1}
    more = {"layers": chosen.layers} if name == "dgl" else {}
    found: Found = peer(python, PEERS[name], **given, **more)
    return found


def least(runs: list[Found]) -> float:
    """Return the least seconds of an epoch after the first."""
    return float(min(second for ran in runs for second in ran["times"][1:]))


BENCH = Benchmark(
    columns=("form", "GraphFlat s", "first epoch s", "min s", "median s", "x first form", "cpu s", "peak GiB", "loss"),
    rows=rows,
    options={
        "folder": FOLDER,
        "graph": Option("", "an .npz file"),
        "nodes": 1_000_000,
        "edges": 10_000_000,
        "targets": Option(0, "that are kept of the graph's, a tenth of them to validate; 0 keeps all"),
        "partitions": 4,
        "workers": Option(2, "that prepare the artifacts"),
        "forms": Option("shards,store,resample", f"of {', '.join(SOURCES)}"),
        "model": "sage",
        "layers": Option(0, "of a model that reads every in-edge; 0 samples"),
        "epochs": 4,
        "rounds": 1,
        "threads": 1,
        "prefetch": 2,
        "cache": "512MiB",
        "pyg": Option("", "interpreter that has PyG, with torch-sparse or pyg-lib"),
        "dgl": DGL,
    },
    small={"nodes": 2_000, "edges": 10_000, "workers": 0, "epochs": 2, "forms": "shards,store"},
    cells={"train": trained},
)


if __name__ == "__main__":
    run(BENCH)
