"""A ring of processes against one, on a graph in files that are read and written no faster than a rate.

    python benchmarks/streamed_ring.py [--nodes 200000 --edges 4000000 --intervals 8 --rate 200 --ranks 2] [--one-disk]

The graph and the model are those of `streamed.py`: a random graph, two layers, hidden 64, dropout 0.5, every node a
training node. Every process reads and writes at most so many MiB per second, as from a disk of its own; with --one-disk
all together do. With --budget MIB the graph is cut as that asks for, with groups, and not into --intervals of which one
stays at a time. Memory is what a
process's peak (VmHWM) grows by after libraries are loaded. Measured are steps (forward, backward, Adam) of

    one       one process
    ring      as many processes as ranks: an interval is read by its owner and goes round
    copies    the same, but every process reads all source intervals itself, from copies on its own disk

with the MiB that all processes together read of edges and of rows, and sent. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy as np
import torch
from streamed import CLASSES, LimitedDisk, new_model, num_parts, parts_of, peak, warm
from torch.nn import functional

from gnnflow.executions import streamed
from gnnflow.executions.row_exchange import Counted
from gnnflow.executions.streamed import Ring
from gnnflow.graph.batch import Block
from gnnflow.kernels.memory import return_memory
from gnnflow.layers import Model
from gnnflow.train.ranks.group import RankGroup, find_store, join_group, open_store
from gnnflow.train.ranks.operations import Place, Position
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.streamed.bandwidth import keeps_copies, measured
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import by_id, even_sizes
from gnnflow.train.streamed.plan import plan
from gnnflow.train.streamed.size import GraphSize

HOST, SECONDS = "127.0.0.1", 600.0


class CountingDisk(LimitedDisk):
    """Counts the bytes that are read of edges, and of all else. edges: the file that edges lie in."""

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


def filed(chosen: argparse.Namespace, scratch: Scratch, disk: CountingDisk, exchange: Counted | None) -> FileGraph:
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


def steps(chosen: argparse.Namespace, group: RankGroup | None) -> dict[str, Any]:
    """Measure steps in this process, which is one of a group's."""
    model = new_model(chosen)
    warm(model, chosen)
    peak_before = peak()
    exchange = None if group is None else Counted(open_rows(group))
    planned, row_bytes = cut(chosen, model, 1 if group is None else chosen.ranks)
    share = chosen.ranks if chosen.one_disk and group is not None else 1
    rate = chosen.rate * 2**20 / share
    disk = CountingDisk(0.0)
    labels = torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, chosen.nodes))
    with tempfile.TemporaryDirectory() as folder, compute_settings(1):
        return_memory(most=row_bytes, budget=int(planned) or None)
        scratch = Scratch(folder, disk)
        told: dict[str, Any] = {"planned_mib": planned / 2**20}
        if exchange is not None:
            disk._rate = rate  # noqa: SLF001 - the graph itself is written as fast as it can be
            found = measured(scratch, exchange)
            nodes = np.array(even_sizes(chosen.nodes, chosen.ranks))
            told |= {
                "chosen_copies": keeps_copies(found, nodes),
                "reads_mib": int(found.reads.min()) >> 20,
                "links_mib": int(found.links.min()) >> 20,
            }
            disk._rate = 0.0  # noqa: SLF001
        graph = filed(chosen, scratch, disk, exchange)
        disk._rate = rate  # noqa: SLF001
        own = range(chosen.intervals) if graph.ring is None else graph.ring.own
        firsts = np.cumsum([0, *graph.sizes])
        targets = np.arange(firsts[own.start], firsts[own.stop])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        times, losses, moved = [], [], []
        for epoch in range(chosen.repeats + 1):
            torch.default_generator.manual_seed(epoch)
            before = [disk.read_edges, disk.read_rows, 0 if exchange is None else exchange.sent_bytes]
            begin = time.perf_counter()
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
            losses.append(float(total))
            del logits, loss, total
            after = [disk.read_edges, disk.read_rows, 0 if exchange is None else exchange.sent_bytes]
            moved.append([now - then for now, then in zip(after, before, strict=True)])
        scratch.close()
    names = ("edges_read_mib", "rows_read_mib", "sent_mib")
    told |= {name: size / 2**20 for name, size in zip(names, moved[-1], strict=True)}
    told |= {"together": [[(of.targets, of.sources) for of in layer] for layer in chosen.groups]}
    told |= {"intervals": chosen.intervals, "grown_mib": peak() - peak_before}
    return {**told, "seconds": statistics.median(times[1:]), "loss": losses[-1]}


def cut(chosen: argparse.Namespace, model: Model, ranks: int) -> tuple[int, int]:
    """Choose intervals and pieces as the budget asks for, and return the bytes planned and those of rows.

    Without a budget 0, and as many bytes of rows as there may be.
    """
    if not chosen.budget:
        return 0, sys.maxsize
    nodes, edges = -(-chosen.nodes // ranks), -(-chosen.edges // ranks)
    largest = (-(-chosen.nodes // num_parts(chosen)), chosen.edges // num_parts(chosen))
    size = GraphSize(nodes, edges, nodes, chosen.width, 0, largest, ranks=ranks)
    made = plan(model, size, budget=chosen.budget << 20)
    chosen.intervals, chosen.max_edges, chosen.groups = made.intervals * ranks, made.max_edges, made.together
    return made.num_bytes, made.row_bytes


def rank_of(chosen: argparse.Namespace, rank: int, port: int, pipe: Any) -> None:
    """Measure as one rank and tell the figures."""
    torch.set_num_threads(1)
    group = None
    if chosen.what != "one":
        place = Place(rank, chosen.ranks, start_seconds=SECONDS, step_seconds=SECONDS)
        group = join_group(
            find_store(HOST, port, start_seconds=SECONDS, position=Position()), place, host=HOST, position=Position()
        )
    pipe.send(steps(chosen, group))


def told_by(chosen: argparse.Namespace, what: str) -> dict[str, Any]:
    """Return what one way of training measured: the slowest rank's seconds, and the bytes of all."""
    chosen = argparse.Namespace(**{**vars(chosen), "what": what})
    context, store = multiprocessing.get_context("spawn"), open_store(HOST, start_seconds=SECONDS)
    pipes, ranks = [], []
    for rank in range(1 if what == "one" else chosen.ranks):
        here, there = context.Pipe(duplex=False)
        ranks.append(context.Process(target=rank_of, args=(chosen, rank, store.port, there)))
        ranks[-1].start()
        there.close()
        pipes.append(here)
    found = [pipe.recv() for pipe in pipes]
    for each in ranks:
        each.join()
    summed = {name: sum(each[name] for each in found) for name in ("edges_read_mib", "rows_read_mib", "sent_mib")}
    worst = {name: max(each[name] for each in found) for name in ("seconds", "grown_mib")}
    told = {**found[0], **summed, **worst}
    print(what, told, file=sys.stderr)
    return told


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = {"nodes": 200_000, "edges": 4_000_000, "intervals": 8, "rate": 200, "ranks": 2, "repeats": 2}
    for name, default in {**defaults, "max-edges": 500_000, "budget": 0, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--head", default="direct")
    parser.set_defaults(
        groups=(), alone="ours", single=False, width=64, dropout=0.5, layers=2, train=100.0, skew=0.0, order="found"
    )
    parser.add_argument("--only", default="one,ring,copies")
    parser.add_argument("--one-disk", action="store_true")
    chosen = parser.parse_args()
    results = {what: told_by(chosen, what) for what in chosen.only.split(",")}
    for what in results.keys() - {"one"} if "one" in results else ():
        results[what]["speedup"] = results["one"]["seconds"] / results[what]["seconds"]
    print(json.dumps({"bench": "streamed_ring", "torch": torch.__version__, "results": results}))


if __name__ == "__main__":
    main()
