"""Lists of the best of all items for each user: seconds, and the most memory of a worker.

    python benchmarks/recommend.py                                        # 1,000,000 users, 100,000 items, 2 workers
    python benchmarks/recommend.py --users 20000 --items 100000 --decoder mlp

Users and items are ids in a generated table of edges, of which a tenth is held out; items differ in popularity.
Embeddings are normal numbers, in the form that GraphInfer leaves them, and the decoder is untrained: the lists mean
nothing, and cost what others of this size cost. What is measured begins at the graph store and the embeddings and ends
with the lists of K unseen items on disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import FOLDER, Benchmark, Chosen, Option, folder_of, run

from gnnflow.cluster import Cluster
from gnnflow.config import Config, config_from_dict, model_from_dict
from gnnflow.infer.lists import ListJob, run_rounds
from gnnflow.layers.decoders import DecoderInputs
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.layers.saved import encode_weights, save_model
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.stages.base import StageContext
from gnnflow.stages.resolve import memory_of_worker
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import from_matrix
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import Manifest, commit
from gnnflow.storage.tables import commit_table
from gnnflow.storage.writing import remove_tree

_RELATION = "user__bought__item"
_SKEW = 2.0  # of the share of edges that an item takes: the square of an even draw


def config_of(chosen: Chosen, folder: Path) -> Config:
    """Return the config whose ingest makes the graph store."""
    local = {"kind": "local", "workers": chosen.workers, "memory_limit": chosen.memory}
    return config_from_dict(
        {
            "name": "recommend",
            "workspace": str(folder / "workspace"),
            "graph": {
                "nodes": {"user": None, "item": None},
                "edges": {_RELATION: str(folder / "edges.parquet")},
                "target": _RELATION,
                "partitions": chosen.partitions,
            },
            "task": {"kind": "link", "split": {"kind": "random", "valid": 0.05, "test": 0.05}},
            "cluster": local if chosen.workers else {"kind": "synchronous"},
        }
    )


def write_edges(chosen: Chosen, folder: Path) -> None:
    """Write edges of all users and all items, so that each is a node."""
    rng = np.random.default_rng(0)
    users = np.concatenate([np.arange(chosen.users), rng.integers(0, chosen.users, chosen.edges - chosen.users)])
    items = (rng.random(chosen.edges) ** _SKEW * chosen.items).astype(np.int64)
    items[: chosen.items] = np.arange(chosen.items)
    pq.write_table(pa.table({"src": users, "dst": items}), folder / "edges.parquet", row_group_size=1 << 18)


def write_embeddings(store: GraphStore, folder: Path, *, width: int) -> str:
    """Write the embeddings of all nodes in the form of predictions, and return their artifact."""
    scored, rng, entries = str(folder / "scored"), np.random.default_rng(1), []
    for part in range(store.num_partitions):
        rows = rng.standard_normal((store.book.size(part), width), np.float32)
        name = f"predictions/part-{part:05d}.parquet"
        entries.append(commit_table(scored, name, pa.table({"embedding": from_matrix(rows)})))
    commit(scored, Manifest("infer", "benchmark", 1, tuple(entries), {}, 0, 0))
    return scored


def write_model(folder: Path, *, decoder: Any, width: int) -> str:
    """Write an untrained model with a decoder, and return its folder."""
    config, inputs = (
        model_from_dict({"kind": "gcn", "layers": 1}),
        ModelInputs(1, width, decoder=DecoderInputs(decoder)),
    )
    weights = encode_weights(build_model(config, inputs, seed=0).state_dict())
    save_model(str(folder / "model"), config, inputs, weights=weights)
    return str(folder / "model")


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the rounds and their sum: seconds, the most memory of a process, and bytes that were exchanged."""
    with folder_of(chosen.folder) as folder:
        config = config_of(chosen, folder)
        if not (folder / "edges.parquet").exists():
            write_edges(chosen, folder)
        with Cluster(config.cluster) as cluster:
            made = make_artifact(StageContext.of(config, cluster), "ingest")
        store = GraphStore.of(made.artifact, made.manifest)
        scored = write_embeddings(store, folder, width=chosen.width)
        model, lists, work = (
            write_model(folder, decoder=chosen.decoder, width=chosen.width),
            folder / "lists",
            folder / "w",
        )
        for each in (lists, work):
            remove_tree(str(each))
        job = ListJob.of(
            store,
            scored=scored,
            memory=memory_of_worker(config),
            artifact=str(lists),
            model=model,
            top=chosen.top,
            exclude_seen=True,
        )
        with Cluster(config.cluster) as cluster:
            runner = RoundRunner(str(work), cluster, artifact=str(lists))
            begin = time.perf_counter()
            records = run_rounds(job, runner)
            seconds = time.perf_counter() - begin
        for timing in runner.timings:
            yield timing.name, timing.seconds, timing.peak_bytes / 2**20, timing.exchanged_bytes / 2**20, ""
        listed = sum(record.counts["rows"] for record in records)
        peak = max(timing.peak_bytes for timing in runner.timings) / 2**20
        yield "all", seconds, peak, sum(each.exchanged_bytes for each in runner.timings) / 2**20, f"{listed:,}"


BENCH = Benchmark(
    columns=("round", "seconds", "most MiB of a process", "exchanged MiB", "rows of lists"),
    rows=rows,
    options={
        "folder": FOLDER,
        "users": 1_000_000,
        "items": 100_000,
        "edges": 5_000_000,
        "width": Option(64, "of an embedding"),
        "top": Option(10, "items in a list"),
        "decoder": Option("dot", "dot, distmult or mlp"),
        "partitions": 16,
        "workers": Option(2, "0 runs everything in one process"),
        "memory": "2GiB",
    },
    small={"users": 2_000, "items": 500, "edges": 20_000, "partitions": 2, "workers": 0},
)


if __name__ == "__main__":
    run(BENCH)
