"""A ring of processes against one process, on a graph in files with a limited rate.

    python benchmarks/streamed_ring.py [--nodes 200000 --edges 4000000 --intervals 8 --rate 200 --ranks 2] [--one-disk]

The graph and the model are from `streamed.py`, with two layers. Every process reads and writes at most so many MiB
per second, like from a separate disk; with --one-disk all together. With --budget MIB the graph is cut for that budget,
with groups, and not into --intervals of which one stays at a time. Memory is the growth of a process's peak (VmHWM)
after libraries are loaded. Measured are steps (forward, backward, Adam) of

    one       one process
    ring      as many processes as ranks: an interval is read by its owner and goes round
    copies    the same, but every process reads all source intervals itself, from copies on its disk

with the MiB that all processes together read of edges and of rows, and sent.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from globalbatch import in_processes
from harness import Benchmark, Chosen, Found, Option, cell, peak_mib, run
from streamed import CLASSES, GRAPH, LimitedDisk, new_model, num_parts, parts_of, warm
from torch.nn import functional

from gnnflow.executions import streamed
from gnnflow.executions.row_exchange import Counted
from gnnflow.executions.streamed import Ring
from gnnflow.graph.batch import Block
from gnnflow.kernels.memory import return_memory
from gnnflow.layers import Model
from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.streamed.budget import plan
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import by_id, even_sizes
from gnnflow.train.streamed.size import GraphSize


class CountingDisk(LimitedDisk):
    """A disk that counts the bytes read of edges, and of other data. edges: the file of edges."""

    edges = -1
    read_edges = 0
    read_rows = 0

    def read(self, file: int, into: memoryview, at: int) -> None:
        """Fill memory from a place of a file."""
        super().read(file, into, at)
        if file == self.edges:
            self.read_edges += len(into)
        else:
            self.read_rows += len(into)


def filed_part(chosen: Chosen, scratch: Scratch, disk: CountingDisk, exchange: Counted | None) -> FileGraph:
    """Return the graph in files, or this rank's part of it."""
    sizes, ring = even_sizes(chosen.nodes, chosen.intervals), None  # of as many nodes on each rank
    if exchange is not None:
        ring = Ring(exchange, sizes, copies=chosen.what == "copies")
    graph = FileGraph.empty(
        scratch,
        by_id(sizes),
        files=[0, 0],
        max_edges=chosen.max_edges,
        width=chosen.width,
        sparse=False,
        ring=ring,
        together=chosen.groups,
    )
    firsts = np.cumsum([0, *sizes])
    own = range(len(sizes)) if ring is None else ring.own
    begin, end = int(firsts[own.start]), int(firsts[own.stop])
    for first, edges, nodes, features in parts_of(chosen):
        rows = np.arange(max(first, begin), min(first + len(features), end)) - first
        if len(rows):
            picked = edges.prefix(rows, limit=None)
            block = Block(edges.take(picked.positions, offsets=picked.offsets), chosen.nodes)
            graph.add(first + int(rows[0]), blocks=[block] * 2, features=features.take(rows), nodes=nodes.take(rows))
            del picked, block
        del edges, nodes, features, rows
    graph.pieces(0)
    disk.edges = scratch._open[-1]._file.fileno()  # noqa: SLF001 - to tell edges from rows
    return graph


def steps(group: RankGroup | None, *, chosen: Chosen) -> Found:
    """Measure steps in this process, which is one of a group."""
    model = new_model(chosen)
    warm(model, chosen)
    before, exchange = peak_mib(), None if group is None else Counted(open_rows(group))
    planned, row_bytes = cut(chosen, model, 1 if group is None else chosen.ranks)
    disk = CountingDisk(0.0)
    labels = torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, chosen.nodes))
    with tempfile.TemporaryDirectory() as folder, compute_settings(1):
        return_memory(most=row_bytes, budget=int(planned) or None)
        scratch = Scratch(folder, disk)
        graph = filed_part(chosen, scratch, disk, exchange)
        # the graph itself is written as fast as it can be
        disk.limit(chosen.rate * 2**20 / (chosen.ranks if chosen.one_disk and group is not None else 1))
        own = range(chosen.intervals) if graph.ring is None else graph.ring.own
        firsts = np.cumsum([0, *graph.sizes])
        targets = np.arange(firsts[own.start], firsts[own.stop])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        times, told = [], {}
        for epoch in range(chosen.repeats + 1):
            torch.default_generator.manual_seed(epoch)
            moved, begin = _moved(disk, exchange), time.perf_counter()
            logits = streamed.forward(model, graph, targets)
            loss = functional.cross_entropy(logits, labels[targets], reduction="sum") / chosen.nodes
            optimizer.zero_grad()
            loss.backward()
            total = loss.detach().clone()
            if group is not None:
                for each in [total, *(each.grad for each in model.parameters() if each.grad is not None)]:
                    group.all_reduce(each).wait()
            optimizer.step()
            times.append(time.perf_counter() - begin)
            del logits, loss
            told = {name: size - moved[name] for name, size in _moved(disk, exchange).items()} | {"loss": float(total)}
        scratch.close()
    told |= {"intervals": chosen.intervals, "grown": peak_mib() - before}
    return {**told, "seconds": statistics.median(times[1:])}


def _moved(disk: CountingDisk, exchange: Counted | None) -> dict[str, float]:
    """Return the MiB that this process has read of edges and of rows, and sent."""
    sent = 0 if exchange is None else exchange.sent_bytes
    return {"edges": disk.read_edges / 2**20, "rows": disk.read_rows / 2**20, "sent": sent / 2**20}


def cut(chosen: Chosen, model: Model, ranks: int) -> tuple[int, int]:
    """Choose intervals and pieces for the budget, and return the planned bytes and the bytes of rows.

    Without a budget, return 0 and no limit for rows.
    """
    if not chosen.budget:
        return 0, sys.maxsize
    nodes, edges = -(-chosen.nodes // ranks), -(-chosen.edges // ranks)
    largest = (-(-chosen.nodes // num_parts(chosen)), chosen.edges // num_parts(chosen))
    size = GraphSize((nodes,), (edges,), nodes, (chosen.width,), 0, largest, ranks=ranks)
    made = plan(model, size, budget=chosen.budget << 20)
    chosen.intervals, chosen.max_edges, chosen.groups = made.intervals * ranks, made.max_edges, made.together
    return made.num_bytes, made.row_bytes


def alone(chosen: Chosen) -> Found:
    """Measure one process or several ranks: seconds of the slowest, memory of the largest, bytes of all."""
    torch.set_num_threads(1)
    if chosen.what == "one":
        return steps(None, chosen=chosen)
    found = in_processes(partial(steps, chosen=chosen), chosen.ranks)
    summed = {name: sum(each[name] for each in found) for name in ("edges", "rows", "sent")}
    return found[0] | summed | {name: max(each[name] for each in found) for name in ("seconds", "grown")}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the figures of each form."""
    first = None
    for what in chosen.only.split(","):
        found = cell(chosen, "steps", what=what, groups=[])
        first = first or found["seconds"]
        moved = (found[name] for name in ("edges", "rows", "sent"))
        yield (
            what,
            found["intervals"],
            found["seconds"],
            first / found["seconds"],
            found["grown"],
            *moved,
            found["loss"],
        )


BENCH = Benchmark(
    columns=(
        "form",
        "intervals",
        "seconds",
        "x as fast",
        "grown MiB",
        "edges read MiB",
        "rows read MiB",
        "sent MiB",
        "loss",
    ),
    rows=rows,
    options={
        **GRAPH,
        "nodes": 200_000,
        "edges": 4_000_000,
        "intervals": 8,
        "max_edges": Option(500_000, "of a piece"),
        "rate": 200,
        "ranks": 2,
        "only": Option("one,ring,copies", "forms"),
        "one_disk": False,
    },
    small={"nodes": 2_000, "edges": 20_000, "intervals": 4, "width": 8, "repeats": 1, "only": "one,ring"},
    cells={"steps": alone},
)


if __name__ == "__main__":
    run(BENCH)
