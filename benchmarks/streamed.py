"""Training on a graph larger than memory: seconds and peak memory under a budget, and in memory.

    python benchmarks/streamed.py [--nodes 300000 --edges 12000000 --share 8] [--model gcn] [--dropout 0]
    python benchmarks/streamed.py --forms streamed --budget 600 --millions 10,25,50,100 --nodes 1000000 --width 32

The graph is random: every node has as many in-edges on average, of sources anywhere, so no chunk is empty. Two layers
(--layers), --width columns (64) in and hidden, dropout 0.5, every node a training node. Every form runs in a separate
process; memory is the growth of its peak (VmHWM) after libraries are loaded, before any of the graph.

Forms: `memory`, all of the graph (`globalbatch`); `streamed`, under --budget MiB, or 1 / --share of the memory that the
first took. --rate: MiB per second that the files are read and written at most, all threads together. --single: one
interval stays at a time. --intervals: so many, whatever the budget allows. --millions: several numbers of edges.

--train: percent of the nodes that are training nodes.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from harness import Benchmark, Chosen, Found, Option, cell, peak_mib, run

from gnnflow.config import model_from_dict
from gnnflow.executions import globalbatch, streamed
from gnnflow.executions.globalbatch.active_sets import active_rows
from gnnflow.executions.globalbatch.batch import rank_batch
from gnnflow.executions.row_exchange import OneRank
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.edges import InEdges
from gnnflow.kernels import cross_entropy
from gnnflow.kernels.memory import return_memory
from gnnflow.layers import Model
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.streamed.budget import Plan, plan
from gnnflow.train.streamed.files import LocalDisk, Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import Numbering, depths, numbered
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import ON_CPU

CLASSES = 8


class LimitedDisk(LocalDisk):
    """A file reader and writer with a limited rate for all threads together."""

    def __init__(self, rate: float) -> None:
        self._rate, self._lock, self._free_at, self.moved = rate, threading.Lock(), 0.0, 0

    def limit(self, rate: float) -> None:
        """Read and write at most so many bytes per second from now on; 0 is no limit."""
        self._rate = rate

    def _pay(self, size: int) -> None:
        with self._lock:
            self.moved += size
            begin = max(self._free_at, time.perf_counter())
            self._free_at = begin + size / self._rate if self._rate else begin
            until = self._free_at
        time.sleep(max(0.0, until - time.perf_counter()))

    def read(self, file: int, into: memoryview, at: int) -> None:
        """Fill memory from a place of a file."""
        super().read(file, into, at)
        self._pay(len(into))

    def write(self, file: int, held: memoryview, at: int) -> None:
        """Write memory to a place of a file."""
        super().write(file, held, at)
        self._pay(len(held))


def num_parts(chosen: Chosen) -> int:
    """Return the number of runs of nodes that the graph comes in, like partitions of a store."""
    return max(16, chosen.edges // 500_000)  # type: ignore[no-any-return]


def parts_of(chosen: Chosen) -> Iterator[tuple[int, InEdges, Degrees, Features]]:
    """Yield the graph as runs of nodes: the first node, in-edges, degrees and features."""
    rng, edges = np.random.default_rng(0), chosen.edges // num_parts(chosen)
    for first, last in pairwise(book_of(chosen).offsets.tolist()):
        size = last - first
        degree = rng.multinomial(edges, np.full(size, 1 / size))
        sources = rng.integers(0, chosen.nodes, edges)
        x = rng.standard_normal((size, chosen.width), np.float32)
        nodes = Degrees(degree, degree, degree.astype(np.float32))
        yield first, InEdges(offsets_of(degree), sources), nodes, Features(chosen.width, dense=x)


def book_of(chosen: Chosen) -> PartitionBook:
    """Return the book of the runs of nodes."""
    parts = num_parts(chosen)
    return PartitionBook(np.array([chosen.nodes * each // parts for each in range(parts + 1)]))


def targets_of(chosen: Chosen) -> np.ndarray:
    """Return the training nodes, ascending."""
    number = max(1, round(chosen.nodes * chosen.train / 100))
    return np.sort(np.random.default_rng(3).permutation(chosen.nodes)[:number])


def numbering_of(chosen: Chosen, intervals: int) -> Numbering:
    """Return the numbering of nodes in training."""
    coming, at = parts_of(chosen), 0

    def in_edges(partition: int) -> InEdges:
        nonlocal coming, at
        if partition < at:
            coming, at = parts_of(chosen), 0
        found: InEdges = next(islice(coming, partition - at, None))[1]
        at = partition + 1
        return found

    depth = depths(book_of(chosen), in_edges, targets_of(chosen), limits=[None] * chosen.layers)
    degrees = [each[2] for each in parts_of(chosen)]
    ins, outs = (np.concatenate([getattr(each, name) for each in degrees]) for name in ("in_degree", "out_degree"))
    return numbered(
        intervals, in_degree=ins.astype(np.int32), out_degree=outs, depth=depth, num_levels=chosen.layers + 1
    )


def new_model(chosen: Chosen) -> Model:
    """Return the model, from one seed."""
    torch.manual_seed(0)
    kind = {"kind": chosen.model, "hidden": chosen.width, "layers": chosen.layers, "dropout": chosen.dropout}
    kind["head"] = chosen.head
    return build_model(model_from_dict(kind), ModelInputs(chosen.width, CLASSES)).train()


def filed(model: Model, chosen: Chosen, scratch: Scratch) -> tuple[FileGraph, Plan, np.ndarray]:
    """Return the graph in files, cut for the budget, and the places of the targets."""
    largest = (-(-chosen.nodes // num_parts(chosen)), chosen.edges // num_parts(chosen))
    size = GraphSize((chosen.nodes,), (chosen.edges,), len(targets_of(chosen)), (chosen.width,), 0, largest)
    made = plan(model, size, budget=chosen.budget << 20, place=replace(ON_CPU, groups=not chosen.single))
    return_memory(most=made.row_bytes, budget=made.num_bytes)
    numbering = numbering_of(chosen, chosen.intervals or made.intervals)
    graph = FileGraph.empty(
        scratch,
        numbering,
        files=[0] * chosen.layers,
        max_edges=made.max_edges,
        width=chosen.width,
        sparse=False,
        together=made.together,
    )
    for first, edges, nodes, features in parts_of(chosen):
        graph.add(first, blocks=[Block(edges, chosen.nodes)] * chosen.layers, features=features, nodes=nodes)
    return graph.written().pruned, made, np.sort(numbering.rows_of(targets_of(chosen)).astype(np.int64))


def in_memory(model: Model, chosen: Chosen) -> Callable[[], torch.Tensor]:
    """Return the function that computes the logits of the graph in memory."""
    held = list(parts_of(chosen))
    degree = np.concatenate([each[2].in_degree for each in held])
    edges = InEdges(offsets_of(degree), np.concatenate([each[1].sources for each in held]))
    x = np.concatenate([each[3].dense for each in held])
    del held
    bounds = np.array([0, chosen.nodes])
    rows = active_rows(
        [Block(edges, chosen.nodes)] * chosen.layers, targets_of(chosen), bounds=bounds, exchange=OneRank()
    )
    nodes = Degrees(degree, degree, degree.astype(np.float32))
    features = Features(chosen.width, dense=x[rows.rows])
    batch = rank_batch(model, rows, features=features, nodes=nodes.take(rows.rows), exchange=OneRank())
    return lambda: globalbatch.forward(model, batch, OneRank())


def warm(model: Model, chosen: Chosen) -> None:
    """Take a step on a tiny graph, so that torch loads its lazy parts; the weights stay the same."""
    tiny = Chosen(**{**vars(chosen), "nodes": 64, "edges": 256, "budget": 256, "intervals": 2})
    with tempfile.TemporaryDirectory() as folder:
        graph, _, targets = filed(model, tiny, Scratch(folder))
        for logits in (in_memory(model, tiny)(), streamed.forward(model, graph, targets)):
            logits.sum().backward()  # type: ignore[no-untyped-call]
        graph.scratch.close()
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()
    model.zero_grad()


def measured(chosen: Chosen) -> Found:
    """Measure one form in this process."""
    model = new_model(chosen)
    warm(model, chosen)
    before, disk = peak_mib(), LimitedDisk(0.0)
    labels = torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, len(targets_of(chosen))))
    with tempfile.TemporaryDirectory() as folder, compute_settings(chosen.threads):
        told: Found = {}
        scratch = Scratch(folder, disk)
        if chosen.form == "memory":
            compute: Callable[[], torch.Tensor] = in_memory(model, chosen)
        else:
            graph, made, every = filed(model, chosen, scratch)
            told = {"intervals": len(graph.sizes), "planned": made.num_bytes / 2**20}
            compute = partial(streamed.forward, model, graph, every)
        disk.limit(chosen.rate * 2**20)  # the graph itself is written as fast as it can be
        times, optimizer = [], torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(chosen.repeats + 1):
            torch.default_generator.manual_seed(epoch)
            moved, begin = disk.moved, time.perf_counter()
            loss = cross_entropy(compute(), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            times.append(time.perf_counter() - begin)
            told |= {"loss": loss.item(), "moved": (disk.moved - moved) / 2**20}
            del loss
        scratch.close()
    return {**told, "seconds": statistics.median(times[1:]), "grown": peak_mib() - before}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the figures of each form by number of edges."""
    for edges in [int(float(each) * 1e6) for each in chosen.millions.split(",")] if chosen.millions else [chosen.edges]:
        budget, in_memory_seconds = chosen.budget, None
        for form in chosen.forms.split(","):
            found = cell(chosen, "measure", form=form, edges=edges, budget=budget)
            if form == "memory":
                budget, in_memory_seconds = budget or int(found["grown"] / chosen.share), found["seconds"]
            shown = [found.get(name) for name in ("intervals", "planned", "grown", "moved", "loss")]
            speed = in_memory_seconds and f"{in_memory_seconds / found['seconds']:.0%}"
            yield form, edges, None if form == "memory" else budget, found["seconds"], speed, *shown


GRAPH = {
    "nodes": 300_000,
    "edges": 12_000_000,
    "width": 64,
    "layers": 2,
    "model": "gcn",
    "head": "direct",
    "dropout": 0.5,
    "train": Option(100.0, "percent of the nodes that are training nodes"),
    "budget": Option(0, "MiB; 0 takes a share of the memory in memory"),
    "intervals": 0,
    "single": False,
    "rate": Option(0, "MiB per second of the files; 0 is no limit"),
    "threads": 1,
    "repeats": 2,
}
BENCH = Benchmark(
    columns=(
        "form",
        "edges",
        "budget MiB",
        "seconds",
        "speed",
        "intervals",
        "planned MiB",
        "grown MiB",
        "moved MiB",
        "loss",
    ),
    rows=rows,
    options={
        "forms": Option("memory,streamed", "memory, streamed"),
        "share": 8,
        "millions": Option("", "numbers of edges, as 5,10,20"),
        **GRAPH,
    },
    small={"nodes": 3_000, "edges": 30_000, "budget": 60, "width": 8, "repeats": 1},
    cells={"measure": measured},
)


if __name__ == "__main__":
    run(BENCH)
