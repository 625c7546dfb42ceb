"""Seconds per epoch of mini-batches on several ranks: each its own batches, or all ranks each batch together (hybrid).

    python benchmarks/batches_on_ranks.py [--folder FOLDER] [--ranks 1,2] [--batch 1024] [--fanout 15,10] [--rounds 2]

The graph is made as in `globalbatch.py`. A step has --batch targets on all ranks together in both forms, of which each
rank takes a share: a smaller batch, or the targets in its part of the graph. Each rank is a process of one thread,
joined by gloo on this host; batches are prepared in turn (prefetch 0). *graph MiB* is what a rank holds of graph and
features, *grown MiB* what its process grows by at its peak; both of the rank that has most.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from globalbatch import DROPOUT, in_processes, make_graph, part_of
from harness import FOLDER, Benchmark, Chosen, Found, Option, folder_of, numbers, peak_mib, run

from gnnflow.config import MiniBatchConfig, model_from_dict
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.sampling import Sampling
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import Shard
from gnnflow.layers.model import Model, ModelInputs, build_model
from gnnflow.neighbors.selected import Neighbors
from gnnflow.train.globalbatch.graph import OwnPart
from gnnflow.train.hybrid.batches import RankNodes
from gnnflow.train.hybrid.part import RankPart
from gnnflow.train.minibatch.batches import plan_epoch
from gnnflow.train.minibatch.loader import BatchLoader, SplitBuilder
from gnnflow.train.minibatch.memory import array_bytes
from gnnflow.train.minibatch.nodes import NodeBatches
from gnnflow.train.minibatch.preparing import Preparing
from gnnflow.train.minibatch.source import MiniBatchSource
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.updater import LocalUpdater

FORMS = ("data", "hybrid")


def hybrid_part(folder: Path, group: RankGroup, model: Model, fanouts: list[int], num_nodes: int) -> RankPart:
    """Return a rank's part of the graph."""
    bounds = np.array([num_nodes * rank // group.size for rank in range(group.size + 1)])
    own = with_rows(part_of(folder, *bounds[group.rank : group.rank + 2].tolist()))
    neighbors = Neighbors(None, "", Sampling("uniform", tuple(fanouts)))  # type: ignore[arg-type]  # no file is read
    return RankPart(own, neighbors, bounds, model, open_rows(group), seed=0)


def whole_graph(own: OwnPart, num_nodes: int) -> Shard:
    """Return the whole graph as one shard of the training nodes."""
    ids = np.arange(num_nodes)
    return Shard(Neighborhood(own.rows, ids, own.nodes, own.features, own.edges), own.rows, own.rows, own.labels)


def with_rows(own: OwnPart) -> OwnPart:
    """Return the same with sources as int32, as both forms hold them."""
    return replace(own, edges=replace(own.edges, sources=own.edges.sources.astype(np.int32)))


def train(group: RankGroup, *, form: str, chosen: Chosen) -> Found:
    """Return the seconds of each epoch after the first on one of several ranks, and what the rank holds."""
    before, folder, fanouts = peak_mib(), Path(chosen.folder), numbers(chosen.fanout)
    labels = np.load(folder / "y.npy")
    num_nodes, targets = len(labels), int(np.load(folder / "train.npy").sum())
    kind = {"kind": "gcn", "hidden": chosen.hidden, "layers": len(fanouts), "dropout": DROPOUT}
    model = build_model(model_from_dict(kind), ModelInputs(chosen.width, int(labels.max()) + 1), seed=0).train()
    is_hybrid, preparing = form == "hybrid", Preparing(0, 0)
    build: SplitBuilder
    if is_hybrid:
        part = hybrid_part(folder, group, model, fanouts, num_nodes)
        held, build = array_bytes(part.own), RankNodes(part, part.begins(part.own))
    else:
        shard = whole_graph(with_rows(part_of(folder, 0, num_nodes)), num_nodes)
        held, build = (
            array_bytes(shard),
            NodeBatches(lambda _: shard, model, preparing, Sampling("uniform", tuple(fanouts))),
        )
    entries = [ShardEntry("train", "train", "shared", targets, num_nodes, chosen.edges, 0)]
    size, ranks = (chosen.batch, 1) if is_hybrid else (chosen.batch // group.size, group.size)
    loader = BatchLoader(build, model=model, preparing=preparing)
    source = MiniBatchSource(
        plan=lambda epoch, share: plan_epoch(
            entries, seed=0, epoch=epoch, batch_size=size, rank=share, world_size=ranks
        ),
        loader=loader,
        entries=entries,
        splits=("train",),
        build=build,
        scoring=loader,
        seed=0,
        eval_batch_size=chosen.batch,
        rank=0 if is_hybrid else group.rank,
        world_size=ranks,
    )
    shared = AllReduce(model, group, is_joint=is_hybrid)
    updater, objective, times = LocalUpdater(model, MiniBatchConfig(lr=0.01), exchange=shared), Objective("single"), []
    with source:
        for epoch in range(chosen.repeats + 1):
            begin, losses = time.perf_counter(), []
            for step in source.steps(epoch, since=0):
                step.seed()
                loss, count = objective.loss(step.logits(model), step.labels)
                taken = updater.step(loss, num_targets=count, weight=objective.weight(step.labels))
                losses.append(taken.mean)
            times.append(time.perf_counter() - begin)
    return {"times": times[1:], "loss": statistics.mean(losses), "held": held / 2**20, "mib": peak_mib() - before}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the epochs of each form on each number of ranks, in turns."""
    with folder_of(chosen.folder) as folder:
        chosen.folder = str(folder)
        make_graph(folder, nodes=chosen.nodes, edges=chosen.edges, width=chosen.width, classes=chosen.classes)
        cases = [(form, size) for size in numbers(chosen.ranks) for form in FORMS]
        found: dict[tuple[str, int], list[list[Found]]] = {case: [] for case in cases}
        for _ in range(chosen.rounds):
            for form, size in cases:
                found[form, size] += [in_processes(partial(train, form=form, chosen=chosen), size)]
        for (form, size), ran in found.items():
            times = [max(each) for ranks in ran for each in zip(*(rank["times"] for rank in ranks), strict=True)]
            most = {name: max(rank[name] for rank in ran[-1]) for name in ("held", "mib")}
            yield form, size, min(times), statistics.median(times), most["held"], most["mib"], ran[-1][0]["loss"]


BENCH = Benchmark(
    columns=("form", "ranks", "min s", "median s", "graph MiB", "grown MiB", "loss"),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": 60_000,
        "edges": 3_000_000,
        "width": 128,
        "classes": 41,
        "hidden": 128,
        "fanout": Option("15,10", "in-edges per hop, targets first"),
        "batch": Option(1024, "targets of a step, on all ranks together"),
        "ranks": "1,2",
        "rounds": 2,
        "repeats": 2,
    },
    small={"nodes": 1_000, "edges": 8_000, "width": 16, "hidden": 16, "batch": 128, "rounds": 1, "repeats": 1},
)


if __name__ == "__main__":
    run(BENCH)
