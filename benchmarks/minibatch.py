"""Seconds per training epoch over mini-batches from shards on disk, beside other libraries' scripts.

    python benchmarks/minibatch.py --data DATA [--nodes 1000000 --edges 10000000] [--threads 2] [--epochs 4]

GraphSAGE of 2 layers, hidden 64, over all training targets in batches of 1024, fan-out 15 then 10. --data is prepared
as by `graphflat.py` and its artifacts are kept there; they are made by workers of their own, so that the peak is that
of training alone. The first epoch, which also checks the files, is reported as `first_s` and not among the times.
--graph names an .npz file with x [N, F], y [N], edge_index [2, E] and seeds, to be written there as tables once. Prints
one JSON line.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from graphflat import FANOUT, Job, tables_in

from gnnflow import __version__
from gnnflow.config import Config, config_from_dict
from gnnflow.graph.facts import TrainFacts
from gnnflow.stages.base import StageContext, make_artifact


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
    document = job.config().model_dump(mode="json")
    document["model"] = {"kind": chosen.model, "layers": len(FANOUT), "hidden": 64, "dropout": 0.0, "head": "direct"}
    document["train"] = {
        "epochs": chosen.epochs + 1,
        "batch_size": 1024,
        "lr": 0.003,
        "threads": chosen.threads,
        "cache": chosen.cache,
        "prefetch": chosen.prefetch,
    }
    document["cluster"] = {"kind": "synchronous"}
    return config_from_dict(document)


def measure(job: Job, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of each epoch after the first."""
    for stage in ("ingest", "select", "flat"):
        job.stage(stage, job.config())
    context = StageContext.of(train_config(job, chosen))
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
        "rss_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
    }


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
    chosen = parser.parse_args()
    if chosen.graph and not (chosen.data / "nodes.parquet").exists():
        write_tables(chosen.graph, chosen.data)
    tables = tables_in(chosen.data, num_nodes=chosen.nodes, num_edges=chosen.edges)
    job = Job(tables, str(chosen.data / "workspace"), partitions=4, workers=2, repeats=1)
    results = {"train/workers0": measure(job, chosen)}
    print(json.dumps({"bench": "b", "lib": "gnnflow", "versions": {"gnnflow": __version__}, "results": results}))


if __name__ == "__main__":
    main()
