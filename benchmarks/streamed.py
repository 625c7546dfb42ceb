"""Training on a graph larger than memory: seconds and peak memory beside the graph in memory, and other schedules.

    python benchmarks/streamed.py --part memory [--nodes 300000 --edges 12000000 --share 8] [--model gcn] [--dropout 0]
    python benchmarks/streamed.py --part edges --sizes 5,10,20,40
    python benchmarks/streamed.py --part schedules [--nodes 50000 --edges 2000000 --rate 400]

The graph is random: every node has as many in-edges on average, of sources anywhere, so no chunk is empty. Two layers
(--layers), --width columns (64) in and hidden, dropout 0.5, every node a training node. Every measurement is a process
of its own; memory is what its peak (VmHWM) grows by after libraries are loaded, before any of the graph.

memory: training in memory (`globalbatch`), then under a budget of 1 / share of the memory that took.
edges: training under one budget at several numbers of edges (millions) on the same nodes.
schedules: a step by each of `streamed_schedules.py`. --rate: MiB per second that the files are read and written at
most, all threads together.

--single: one interval stays at a time, in as few intervals as the budget allows. --intervals: so many, whatever it
allows; groups are then those of the plan.

--train: percent of the nodes that are training nodes. --skew A: the node of rank r has r^-A of the edges, at either
end, ids in the order of ranks or not (--ids). --order id: runs of ids are intervals, and every layer computes all rows.
Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from streamed_schedules import SCHEDULES, InTurn, in_turn, plans_by_target

from gnnflow.config import model_from_dict
from gnnflow.executions import globalbatch, streamed
from gnnflow.executions.globalbatch import active_rows, rank_batch
from gnnflow.executions.row_exchange import OneRank
from gnnflow.executions.streamed import backward as streamed_backward
from gnnflow.executions.streamed import edges_back as streamed_edges
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.edges import InEdges
from gnnflow.kernels import cross_entropy
from gnnflow.kernels.memory import return_memory
from gnnflow.layers import Model
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.streamed.disk import LocalDisk
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import Numbering, by_id, even_sizes, numbered
from gnnflow.train.streamed.place import ON_CPU
from gnnflow.train.streamed.plan import Plan, plan
from gnnflow.train.streamed.reach import depths
from gnnflow.train.streamed.size import GraphSize

CLASSES = 8


class LimitedDisk(LocalDisk):
    """Reads and writes no faster than a rate, all threads together."""

    def __init__(self, rate: float) -> None:
        self._rate, self._lock, self._free_at, self.moved = rate, threading.Lock(), 0.0, 0

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


def peak() -> float:
    """Return the most memory of this process so far, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def num_parts(chosen: argparse.Namespace) -> int:
    """Return how many runs of nodes the graph comes in, as a store has partitions."""
    return max(16, chosen.edges // 500_000)


def parts_of(chosen: argparse.Namespace) -> Iterator[tuple[int, InEdges, Degrees, Features]]:
    """Yield the graph as runs of nodes: the first node, in-edges, degrees and features."""
    rng, bounds, share = np.random.default_rng(0), book_of(chosen).offsets, shares_of(chosen)
    below = None if share is None else np.cumsum(share)
    for first, last in pairwise(bounds.tolist()):
        size = last - first
        if share is None or below is None:
            edges = chosen.edges // num_parts(chosen)
            degree = rng.multinomial(edges, np.full(size, 1 / size))
            sources, out_degree = rng.integers(0, chosen.nodes, edges), degree
        else:
            degree = np.rint(share[first:last] * chosen.edges).astype(np.int64)
            drawn = rng.random(int(degree.sum())) * below[-1]
            sources, out_degree = np.minimum(np.searchsorted(below, drawn), chosen.nodes - 1), degree
        x = rng.standard_normal((size, chosen.width), np.float32)
        nodes = Degrees(degree, out_degree, degree.astype(np.float32))
        yield first, InEdges(offsets_of(degree), sources), nodes, Features(chosen.width, dense=x)


def book_of(chosen: argparse.Namespace) -> PartitionBook:
    """Return which nodes come together: as many, or where some have many edges, about as many edges."""
    parts, share = num_parts(chosen), shares_of(chosen)
    if share is None:
        return PartitionBook(np.array([chosen.nodes * each // parts for each in range(parts + 1)]))
    bounds = np.searchsorted(np.cumsum(share + 1 / chosen.nodes), 2 * np.arange(parts) / parts)
    return PartitionBook(np.unique([*bounds, chosen.nodes]))


def shares_of(chosen: argparse.Namespace) -> np.ndarray | None:
    """Return the share of the edges that lead to each node, and of those that come from it; None for equal ones."""
    if not chosen.skew:
        return None
    share = np.arange(1, chosen.nodes + 1) ** -chosen.skew
    share /= share.sum()
    return share if chosen.ids == "degree" else np.random.default_rng(2).permutation(share)


def targets_of(chosen: argparse.Namespace) -> np.ndarray:
    """Return the training nodes, ascending."""
    number = max(1, round(chosen.nodes * chosen.train / 100))
    return np.sort(np.random.default_rng(3).permutation(chosen.nodes)[:number])


def numbering_of(chosen: argparse.Namespace, intervals: int) -> Numbering:
    """Return where nodes lie: as training has them, or by id, with all rows computed in every layer."""
    if chosen.order == "id":
        return by_id(even_sizes(chosen.nodes, intervals))
    coming, at = parts_of(chosen), 0

    def in_edges(partition: int) -> InEdges:
        nonlocal coming, at
        if partition < at:
            coming, at = parts_of(chosen), 0
        found: InEdges = next(islice(coming, partition - at, None))[1]
        at = partition + 1
        return found

    depth = depths(book_of(chosen), in_edges, targets_of(chosen), fanouts=None, num_layers=chosen.layers)
    degrees = [each[2] for each in parts_of(chosen)]
    ins, outs = (np.concatenate([getattr(each, name) for each in degrees]) for name in ("in_degree", "out_degree"))
    return numbered(
        intervals, in_degree=ins.astype(np.int32), out_degree=outs, depth=depth, num_levels=chosen.layers + 1
    )


def chunk_sizes(graph: FileGraph) -> dict[str, float]:
    """Return the edges of the largest chunk, in means."""
    edges = np.zeros((len(graph.sizes), len(graph.sizes)))
    for piece in graph.pieces(0):
        edges[piece.target, piece.source] += piece.num_edges
    return {"largest_chunk": float(edges.max() / edges.mean())}


def new_model(chosen: argparse.Namespace) -> Model:
    """Return the model, from one seed."""
    torch.manual_seed(0)
    kind = {"kind": chosen.model, "hidden": chosen.width, "layers": chosen.layers, "dropout": chosen.dropout}
    kind["head"] = chosen.head
    return build_model(model_from_dict(kind), ModelInputs(chosen.width, CLASSES)).train()


def filed(model: Model, chosen: argparse.Namespace, scratch: Scratch) -> tuple[FileGraph, Plan, np.ndarray]:
    """Return the graph in files, cut as the budget asks for, and where the targets lie."""
    share, bounds = shares_of(chosen), book_of(chosen).offsets
    most = chosen.edges // num_parts(chosen)
    if share is not None:
        most = int(max(np.add.reduceat(share, bounds[:-1])) * chosen.edges)
    largest = (int(max(np.diff(bounds))), most)
    size = GraphSize(chosen.nodes, chosen.edges, len(targets_of(chosen)), chosen.width, 0, largest)
    with plans_by_target() if chosen.alone == "by target" else nullcontext():
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


def in_memory(model: Model, chosen: argparse.Namespace) -> Callable[[], torch.Tensor]:
    """Return what computes the logits of the graph in memory."""
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


def warm(model: Model, chosen: argparse.Namespace) -> None:
    """Take a step on a tiny graph, by which torch loads what it loads late; the weights stay what they are."""
    tiny = argparse.Namespace(**{**vars(chosen), "nodes": 64, "edges": 256, "budget": 256, "intervals": 2})
    with tempfile.TemporaryDirectory() as folder:
        graph, _, targets = filed(model, tiny, Scratch(folder))
        for logits in (in_memory(model, tiny)(), streamed.forward(model, graph, targets)):
            logits.sum().backward()
        graph.scratch.close()
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()
    model.zero_grad()


def alone(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure one thing in this process."""
    model = new_model(chosen)
    warm(model, chosen)
    before = peak()
    labels = torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, len(targets_of(chosen))))
    disk = LimitedDisk(chosen.rate * 2**20)
    with tempfile.TemporaryDirectory() as folder, compute_settings(chosen.threads):
        told: dict[str, Any] = {}
        begin = time.perf_counter()
        if chosen.alone == "memory":
            compute: Callable[[], torch.Tensor] = in_memory(model, chosen)
        else:
            if chosen.alone == "in turn":
                for module in (streamed, streamed_backward, streamed_edges):
                    vars(module)["ahead"] = in_turn
            rate, disk._rate = disk._rate, 0.0  # noqa: SLF001 - the graph itself is written as fast as it can be
            scratch = (InTurn if chosen.alone == "in turn" else Scratch)(folder, disk)
            graph, made, every = filed(model, chosen, scratch)
            disk._rate = rate  # noqa: SLF001
            streamed.StreamedRun, streamed_backward._Backward = SCHEDULES[chosen.alone]  # type: ignore[misc]  # noqa: SLF001
            active = [sum(graph.active(level)) / chosen.nodes for level in range(chosen.layers + 1)]
            told = {
                "intervals": len(graph.sizes),
                "together": str(made.together),
                "planned_mib": made.num_bytes / 2**20,
                "active": active,
            }
            told |= chunk_sizes(graph)

            compute = partial(streamed.forward, model, graph, every)
        told["build_seconds"] = time.perf_counter() - begin
        times, optimizer, losses = [], torch.optim.Adam(model.parameters(), lr=0.01), []
        for epoch in range(chosen.repeats + 1):
            torch.default_generator.manual_seed(epoch)
            moved, begin = disk.moved, time.perf_counter()
            loss = cross_entropy(compute(), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter() - begin)
            losses.append(loss.item())
            told["moved_mib"] = (disk.moved - moved) / 2**20
            del loss
        if chosen.alone != "memory":
            graph.scratch.close()
    return {**told, "seconds": statistics.median(times[1:]), "grown_mib": peak() - before, "loss": losses}


def measured(chosen: argparse.Namespace, what: str, **keys: Any) -> dict[str, Any]:
    """Return what a process of its own measured."""
    given = {**{name: value for name, value in vars(chosen).items() if name not in {"part", "sizes", "alone"}}, **keys}
    words = [sys.executable, __file__, "--part", chosen.part, "--alone", what]
    for name, value in given.items():
        words += [f"--{name}"] if value is True else [] if value is False else [f"--{name}", str(value)]
    ran = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    print(what, keys, found, file=sys.stderr)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["memory", "edges", "schedules"], required=True)
    defaults = {"nodes": 300_000, "edges": 12_000_000, "width": 64, "share": 8, "rate": 0, "threads": 1, "repeats": 2}
    for name, default in {**defaults, "budget": 0, "intervals": 0, "layers": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--head", default="direct")
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--train", type=float, default=100.0)
    parser.add_argument("--skew", type=float, default=0.0)
    parser.add_argument("--ids", choices=["degree", "spread"], default="spread")
    parser.add_argument("--order", choices=["id", "found"], default="found")
    parser.add_argument("--sizes", default="5,10,20,40")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        print(json.dumps(alone(chosen)))
        return
    results: dict[str, Any] = {}
    if chosen.part == "memory":
        held = results["in memory"] = measured(chosen, "memory")
        budget = chosen.budget or int(held["grown_mib"] / chosen.share)
        found = results[f"streamed, {budget} MiB"] = measured(chosen, "ours", budget=budget)
        results["speed"] = held["seconds"] / found["seconds"]
    elif chosen.part == "edges":
        for millions in map(int, chosen.sizes.split(",")):
            results[f"{millions} M edges"] = measured(chosen, "ours", edges=millions * 10**6)
    else:
        for what in SCHEDULES:
            results[what] = measured(chosen, what)
        for found in results.values():
            found["times_ours"] = found["seconds"] / results["ours"]["seconds"]
    print(json.dumps({"bench": "streamed", "torch": torch.__version__, "results": results}))


if __name__ == "__main__":
    main()
