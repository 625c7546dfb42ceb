"""GraphInfer with its exchange behind a link of limited rate: overlapped or not, rows alone or states where fewer.

    python benchmarks/infer.py --data DATA --rate 50 --latency 10 --turns 3

Scores all nodes of a power-law graph with an untrained model of 2 layers, tasks one after the other in one process, so
that what a task overlaps is all that is. The exchange, and with --store-behind-link the graph store too, is in memory
behind the link (`limited.py`); --rate 0 is no limit. Ways take turns, after one run of each that is not counted.
Printed per way: seconds, mean and best, and MiB read and written over the link; then what the ways are worth against
the first. --inward W gives W nodes in a hundred all in-edges, as merchants have in a graph of payments: few targets of
many sources. --merchants M makes the graph a typed one: as many edges again lead from nodes, now accounts, to M
merchants, whose share of them falls by a power law, and back.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from graphflat import tables_in
from limited import PROTOCOL, link

from gnnflow.config import config_from_dict, model_from_dict
from gnnflow.infer.choice import Exchange
from gnnflow.infer.job import InferJob, run_rounds
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.layers.saved import encode_weights, save_model
from gnnflow.layers.typed import TypedInputs
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.removal import remove_tree
from gnnflow.storage.writing import copy_file

WAYS = {
    "rows, one after the other": Exchange("rows", "nothing"),
    "rows, fetched beside the block": Exchange("rows", "no piece"),
    "rows, every piece overlapped": Exchange("rows", "every piece"),
    "as it is chosen": Exchange(),
    "states wherever they can be": Exchange("states", "every piece"),
}
OUTPUTS = 16
WORK = f"{PROTOCOL}://work"


def with_merchants(chosen: argparse.Namespace, nodes: str, edges: str) -> dict[str, Any]:
    """Return the section of a typed graph, whose tables are made where they are not there yet."""
    names = ("merchants", "pays", "serves")
    merchants, pays, serves = (chosen.data / f"{name}-{chosen.merchants}.parquet" for name in names)
    if not merchants.exists():
        rng = np.random.default_rng(1)
        share = 1 / np.arange(1, chosen.merchants + 1)
        merchant = rng.choice(chosen.merchants, chosen.edges, p=share / share.sum())
        account = rng.integers(0, chosen.nodes, chosen.edges)
        pq.write_table(pa.table({"src": account, "dst": merchant}), pays)
        pq.write_table(pa.table({"src": merchant, "dst": account}), serves)
        pq.write_table(pa.table({"id": np.arange(chosen.merchants)}), merchants)
    return {
        "nodes": {"account": nodes, "merchant": str(merchants)},
        "edges": {
            "account__knows__account": edges,
            "account__pays__merchant": str(pays),
            "merchant__serves__account": str(serves),
        },
        "target": "account",
    }


def store_of(chosen: argparse.Namespace) -> GraphStore:
    """Return the graph store, made where it is not there yet."""
    nodes, edges = tables_in(chosen.data, num_nodes=chosen.nodes, num_edges=chosen.edges)
    if chosen.inward:
        edges = str(chosen.data / f"inward-{chosen.inward}.parquet")
        if not Path(edges).exists():
            rng = np.random.default_rng(0)
            source, target = rng.integers(0, chosen.nodes, (2, chosen.edges))
            target %= chosen.nodes * chosen.inward // 100
            pq.write_table(pa.table({"src": source, "dst": target}), edges)
    graph = with_merchants(chosen, nodes, edges) if chosen.merchants else {"nodes": nodes, "edges": edges}
    content = {
        "name": "infer",
        "workspace": str(chosen.data / "workspace"),
        "graph": {**graph, "partitions": chosen.partitions},
        "model": {"kind": "gcn"},
        "cluster": {"kind": "synchronous"},
    }
    made = make_artifact(StageContext.of(config_from_dict(content)), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    if not chosen.store_behind_link:
        return store
    folder = f"{PROTOCOL}://store"
    for name in list_names(store.artifact):
        copy_file(join(store.artifact, name), join(folder, name))
    return replace(store, artifact=folder)


def job_of(chosen: argparse.Namespace) -> InferJob:
    """Return what scores all nodes with an untrained model."""
    store = store_of(chosen)
    config = model_from_dict({"kind": chosen.model, "hidden": chosen.hidden, "layers": 2})
    facts = store.facts
    typed = TypedInputs.of(facts.schema, facts.features_of_types) if chosen.merchants else None
    inputs = ModelInputs(feature_width=facts.features.width, num_outputs=OUTPUTS, typed=typed)
    torch.manual_seed(0)
    folder = str(chosen.data / f"model-{chosen.model}-{chosen.hidden}-{chosen.merchants}")
    save_model(folder, config, inputs, weights=encode_weights(build_model(config, inputs).state_dict()))
    return InferJob(
        artifact=str(chosen.data / "predictions"),
        neighbors=Neighbors(store, "", "none", None),
        model=folder,
        num_layers=2,
        label_kind="single",
        targets="all",
        embeddings=False,
        parity_samples=0,
        seed=0,
    )


def turns(chosen: argparse.Namespace, job: InferJob) -> Iterator[tuple[str, float, float, float, str]]:
    """Yield way, seconds, MiB read, MiB written, and what was sent, of each run."""
    for turn in range(chosen.turns + 1):
        for name, exchange in WAYS.items():
            rate, latency = (chosen.rate, chosen.latency / 1000) if turn else (0.0, 0.0)
            with link(mib_per_second=rate, seconds_per_request=latency) as carried:
                begin = time.perf_counter()
                sent = run_rounds(replace(job, exchange=exchange), RoundRunner(WORK, Synchronous())).sent
                seconds = time.perf_counter() - begin
            remove_tree(WORK)
            if turn:
                yield name, seconds, carried.read / 2**20, carried.written / 2**20, sent.text


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("benchmark-data"))
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--model", choices=("gcn", "sage", "gin", "gat", "rgcn", "han", "hgt"), default="sage")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rate", type=float, default=50.0, help="MiB per second; 0 is no limit")
    parser.add_argument("--latency", type=float, default=10.0, help="milliseconds per request")
    parser.add_argument("--inward", type=int, default=0, help="nodes in a hundred that all edges lead to; 0: power law")
    parser.add_argument("--merchants", type=int, default=0, help="nodes of a second type; 0: a graph without types")
    parser.add_argument("--store-behind-link", action="store_true")
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    carried = {}
    for name, took, *rest in turns(chosen, job_of(chosen)):
        seconds[name].append(took)
        carried[name] = rest
    for name, found in seconds.items():
        read, written, sent = carried[name]
        print(f"{name:32} {statistics.mean(found):6.2f} s, best {min(found):6.2f}; {read:5.0f} MiB read, "
              f"{written:5.0f} written; {sent}")  # fmt: skip
    first, *others = (min(found) for found in seconds.values())
    for name, best in zip(list(WAYS)[1:], others, strict=True):
        print(f"{name:32} {1 - best / first:6.1%} less time than one after the other, {first / best:.2f} times as fast")


if __name__ == "__main__":
    main()
