"""Training by a graphics card on a graph that stays with the machine, beside the same in the card's memory and PyG.

    python benchmarks/streamed_card.py --nodes 2000000 --edges 100000000 --budget 1024 [--repeats 3]

The random graph and the GCN of `streamed.py`. Every measurement is a process of its own:

rates: what the card copies within itself, and from and to page-locked memory, one way and both at once.
card: an epoch with all of the graph in the card's memory (`globalbatch`), and the most memory that took.
ours: an epoch under the budget (MiB), beyond which the process gets no memory of the card; the most it took; seconds of
copies and kernels, by torch's profiler, and the bytes per second of sums over edges (those that a sum must move: a row
per edge, sources, sums).
pyg: PyG's GCN under the same budget, over a list of edges and over torch's CSR matrix; the same on the card with all of
its memory; and over the matrix on the processor with `--threads` threads (a row per edge would be 26 GB there). Its
normalisation is computed before.
neighbourhoods: one batch of whole neighbourhoods by PyG's `k_hop_subgraph`. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from device import captured
from streamed import CLASSES, new_model, num_parts, parts_of
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from gnnflow.executions import globalbatch, streamed
from gnnflow.executions.globalbatch import active_rows, rank_batch
from gnnflow.executions.row_exchange import OneRank
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.kernels import Csr
from gnnflow.kernels.device import lock_pages
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.streamed.card import Card, CardGraph
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import by_id, even_sizes
from gnnflow.train.streamed.place import ON_CARD
from gnnflow.train.streamed.plan import plan
from gnnflow.train.streamed.size import GraphSize

DEVICE = torch.device("cuda", 0)
WIDTH = HIDDEN = 64
FORMS = ("edges", "csr")
NUMBERS = {
    "nodes": 2_000_000, "edges": 100_000_000, "budget": 1024, "repeats": 3, "threads": 16, "batch": 1024, "limit": 120
}  # fmt: skip


class PygNet(nn.Module):
    """Two of PyG's GCN layers, their normalisation given as edge weights."""

    def __init__(self) -> None:
        super().__init__()
        convolution = import_module("torch_geometric.nn").GCNConv
        self.first = convolution(WIDTH, HIDDEN, normalize=False)
        self.second = convolution(HIDDEN, CLASSES, normalize=False)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Return the logits of all nodes."""
        x = functional.relu(self.first(functional.dropout(x, 0.5, self.training), adjacency, weight))
        logits: torch.Tensor = self.second(functional.dropout(x, 0.5, self.training), adjacency, weight)
        return logits


def epochs(
    chosen: argparse.Namespace, model: nn.Module, compute: Callable[[], torch.Tensor], device: torch.device
) -> list[float]:
    """Return the seconds of epochs after one that warms up."""
    labels = torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, chosen.nodes)).to(device)
    optimizer, times = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(chosen.repeats + 1):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = functional.cross_entropy(compute(), labels)
        loss.backward()
        optimizer.step()
        float(loss.detach())
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        del loss
    return times[1:]


def seconds(function: Callable[[], object]) -> float:
    """Return the least seconds of a few runs on the card, after one that warms up."""
    least = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        function()
        torch.cuda.synchronize()
        least = min(least, time.perf_counter() - begin)
    return least


def rates(_: argparse.Namespace) -> dict[str, Any]:
    """Measure the copies of a gigabyte, in GB per second."""
    here, other = (torch.empty(1 << 28, device=DEVICE) for _ in range(2))
    held, given = (torch.ones(1 << 28) for _ in range(2))
    lock_pages(held)
    lock_pages(given)
    streams = [torch.cuda.Stream() for _ in range(2)]

    def both() -> None:
        with torch.cuda.stream(streams[0]):
            here.copy_(held, non_blocking=True)
        with torch.cuda.stream(streams[1]):
            given.copy_(other, non_blocking=True)

    giga = here.nbytes / 1e9
    return {
        "card": 2 * giga / seconds(lambda: other.copy_(here)),
        "to_card": giga / seconds(lambda: here.copy_(held, non_blocking=True)),
        "from_card": giga / seconds(lambda: held.copy_(here, non_blocking=True)),
        "each_of_both": giga / seconds(both),
    }


def card(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure epochs with all of the graph on the card."""
    model, (edges, degree, x) = new_model(chosen), whole(chosen)
    every, bounds = np.arange(chosen.nodes), np.array([0, chosen.nodes])
    rows = active_rows([Block(edges, chosen.nodes)] * 2, every, bounds=bounds, exchange=OneRank())
    nodes = Degrees(degree, degree, degree.astype(np.float32))
    model.to(DEVICE)
    from gnnflow.executions.moving import beside

    batch = rank_batch(model, rows, features=Features(WIDTH, dense=x), nodes=nodes, exchange=OneRank())
    batch = beside(DEVICE, batch)
    with compute_settings(1, DEVICE):
        times = epochs(chosen, model, lambda: globalbatch.forward(model, batch, OneRank()), DEVICE)
    return {"seconds": statistics.median(times), "all": times, "peak_mib": torch.cuda.max_memory_allocated() / 2**20}


def whole(chosen: argparse.Namespace) -> tuple[InEdges, np.ndarray, np.ndarray]:
    """Return the graph's in-edges, in-degrees and features."""
    held = list(parts_of(chosen))
    degree = np.concatenate([each[2].in_degree for each in held])
    edges = InEdges(offsets_of(degree), np.concatenate([each[1].sources for each in held]))
    return edges, degree, np.concatenate([each[3].dense for each in held])


def ours(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure epochs under the budget, and one more with the profiler."""
    begin, model = time.perf_counter(), new_model(chosen)
    largest = (-(-chosen.nodes // num_parts(chosen)), chosen.edges // num_parts(chosen))
    size = GraphSize(chosen.nodes, chosen.edges, chosen.nodes, WIDTH, 0, largest)
    made = plan(model, size, budget=chosen.budget << 20, place=ON_CARD)
    sizes = even_sizes(chosen.nodes, made.intervals)
    files = FileGraph.empty(
        Scratch(None), by_id(sizes), files=[0, 0], max_edges=made.max_edges, width=WIDTH, sparse=False
    )
    for first, edges, nodes, features in parts_of(chosen):
        files.add(first, blocks=[Block(edges, chosen.nodes)] * 2, features=features, nodes=nodes)
    told: dict[str, Any] = {"intervals": made.intervals, "planned_mib": made.num_bytes / 2**20}
    told["filed_seconds"], begin = time.perf_counter() - begin, time.perf_counter()
    cap(chosen)
    graph = CardGraph.of(files, Card(DEVICE))
    told["packed_seconds"] = time.perf_counter() - begin
    told["pieces"] = len(graph.pieces(0))
    model.to(DEVICE)
    every = np.arange(chosen.nodes)
    with compute_settings(1, DEVICE):
        times = epochs(chosen, model, lambda: streamed.forward(model, graph, every), DEVICE)
        told |= {"seconds": statistics.median(times), "all": times}
        told["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
        told["reserved_mib"] = torch.cuda.max_memory_reserved() / 2**20
        told |= profiled(chosen, model, lambda: streamed.forward(model, graph, every))
        told["piece"] = piece_rates(graph)
    graph.scratch.close()
    return told


def profiled(chosen: argparse.Namespace, model: nn.Module, compute: Callable[[], torch.Tensor]) -> dict[str, Any]:
    """Return what copies and kernels of an epoch take, and how many bytes sums over edges must move."""
    sums = import_module("gnnflow.kernels.cuda.sums")
    moved, plain = [0], sums.LOOPS.sums

    def counted(csr: Csr, coefficient: Any, value: torch.Tensor, **keys: Any) -> torch.Tensor:
        columns = value.shape[1] * value.shape[2]
        moved[0] += csr.num_edges * (8 + 4 * columns) + csr.num_targets * (8 + 4 * columns)
        return plain(csr, coefficient, value, **keys)

    one = argparse.Namespace(**{**vars(chosen), "repeats": 0})
    epochs(one, model, compute, DEVICE)
    object.__setattr__(sums.LOOPS, "sums", counted)
    with profile(activities=[ProfilerActivity.CUDA]) as held:
        begin = time.perf_counter()
        epochs(one, model, compute, DEVICE)
        wall = time.perf_counter() - begin
    object.__setattr__(sums.LOOPS, "sums", plain)
    totals: dict[str, list[float]] = {}
    for event in held.key_averages():
        name = next((each for each in ("HtoD", "DtoH", "sum_rows", "sum_pieces") if each in event.key), "other")
        at = totals.setdefault(name, [0.0, 0])
        at[0], at[1] = at[0] + event.self_device_time_total / 1e6, at[1] + event.count
    largest = sorted(held.key_averages(), key=lambda each: -each.self_device_time_total)[:25]
    for event in largest:
        print(f"{event.self_device_time_total / 1e3:9.2f} ms {event.count:6} {event.key[:100]}", file=sys.stderr)
    found = {name: {"seconds": took, "count": count} for name, (took, count) in totals.items()}
    rate = moved[0] / totals["sum_rows"][0] / 1e9 if "sum_rows" in totals else 0.0
    return {"profiled_seconds": wall, "device": found, "sums_gb": moved[0] / 1e9, "sums_gb_per_second": rate}


def piece_rates(graph: CardGraph) -> dict[str, Any]:
    """Return the GB per second of the sum over a piece's edges by rows of 64 and of 8 columns, run after run."""
    block, found = max(graph.pieces(0), key=lambda each: each.num_edges).load(), {}
    for name, csr in (("by target", block.csr), ("by source", block.csr.transposed)):
        for columns in (WIDTH, CLASSES):
            value = torch.randn(csr.num_sources, 1, columns, device=DEVICE)
            moved = csr.num_edges * (8 + 4 * columns) + csr.num_targets * (8 + 4 * columns)
            graph_of_ten = captured(partial(ten_sums, csr, value))
            found[f"{columns} columns {name}"] = 10 * moved / seconds(graph_of_ten.replay) / 1e9
    return {"edges": block.csr.num_edges, "targets": block.csr.num_targets, "gb_per_second": found}


def ten_sums(csr: Csr, value: torch.Tensor) -> None:
    """Sum ten times over."""
    for _ in range(10):
        import_module("gnnflow.kernels.cuda.sums").sums(csr, None, value)


def cap(chosen: argparse.Namespace) -> None:
    """Give this process no more of the card's memory than the budget."""
    whole_card = torch.cuda.get_device_properties(DEVICE).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (chosen.budget << 20) / whole_card), DEVICE)


def pyg(chosen: argparse.Namespace, form: str, *, device: torch.device) -> dict[str, Any]:
    """Measure epochs of PyG."""
    edges, degree, x = whole(chosen)
    # each node's message to itself behind its in-edges, and the symmetric normalisation of all
    sources = np.insert(edges.sources, edges.offsets[1:], np.arange(chosen.nodes))
    offsets = edges.offsets + np.arange(chosen.nodes + 1)
    share = (1 / np.sqrt(degree + 1)).astype(np.float32)
    weight = torch.from_numpy(np.repeat(share, degree + 1) * share[sources])
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    net = PygNet().train()
    try:
        held: tuple[torch.Tensor, torch.Tensor | None]
        if form == "csr":
            begins, nodes = (torch.from_numpy(each).to(device) for each in (offsets, sources))
            held = torch.sparse_csr_tensor(begins, nodes, weight.to(device), size=(chosen.nodes, chosen.nodes)), None
        else:
            targets = np.repeat(np.arange(chosen.nodes), degree + 1)
            held = torch.from_numpy(np.stack([sources, targets])).to(device), weight.to(device)
        rows = torch.from_numpy(x).to(device)
        net.to(device)
        times = epochs(chosen, net, lambda: net(rows, *held), device)
    except torch.OutOfMemoryError as error:
        return {"out of memory": str(error).splitlines()[0][:160]}
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
    return {"seconds": statistics.median(times), "all": times, "peak_mib": peak}


def neighbourhoods(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure one batch of whole two-hop neighbourhoods: gathered by the processor, computed by the card."""
    subgraph = import_module("torch_geometric.utils").k_hop_subgraph
    edges, degree, x = whole(chosen)
    torch.set_num_threads(chosen.threads)
    targets = np.repeat(np.arange(chosen.nodes), degree)
    every = torch.from_numpy(np.stack([edges.sources, targets]))
    batch = torch.arange(chosen.batch)
    begin = time.perf_counter()
    nodes, found, _, _ = subgraph(batch, 2, every, relabel_nodes=True, num_nodes=chosen.nodes)
    taken = time.perf_counter() - begin
    cap(chosen)
    told = {"batch": chosen.batch, "nodes": len(nodes), "edges": found.shape[1], "gather_seconds": taken}
    told["batches_per_epoch"] = -(-chosen.nodes // chosen.batch)
    net = PygNet().train().to(DEVICE)
    try:
        rows, here = torch.from_numpy(x)[nodes].to(DEVICE), found.to(DEVICE)
        for _ in range(2):
            begin = time.perf_counter()
            net(rows, here, None).sum().backward()
            torch.cuda.synchronize()
            told["step_seconds"] = time.perf_counter() - begin
    except torch.OutOfMemoryError as error:
        told["out of memory"] = str(error).splitlines()[0][:160]
    return told


def alone(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure one thing in this process."""
    what, _, rest = chosen.alone.partition(" ")
    if what != "pyg":
        return {"rates": rates, "card": card, "ours": ours, "neighbourhoods": neighbourhoods}[what](chosen)
    form, place = rest.split()
    if place == "capped":
        cap(chosen)
    return pyg(chosen, form, device=torch.device("cpu") if place == "cpu" else DEVICE)


def measured(chosen: argparse.Namespace, what: str) -> dict[str, Any]:
    """Return what a process of its own measured."""
    words = [sys.executable, __file__, "--alone", what]
    for name in (*NUMBERS, "model", "head"):
        words += [f"--{name}", str(getattr(chosen, name))]
    # the allocator's blocks grow in place, so that the limit is of what is used and not of how it lies
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    try:
        ran = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=chosen.limit, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return {"stopped after seconds": chosen.limit}
    print(ran.stderr[-6000:], file=sys.stderr)
    found = json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else {"failed": ran.stderr[-300:]}
    print(what, json.dumps(found), file=sys.stderr, flush=True)
    return dict(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--head", default="direct")
    parser.set_defaults(width=WIDTH, dropout=0.5, layers=2, skew=0.0)
    parser.add_argument("--only", default="", help="some of the measurements, separated by commas")
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        print(json.dumps(alone(chosen)))
        return
    every = ["rates", "card", "ours"]
    every += [f"pyg {form} {place}" for place in ("capped", "card") for form in FORMS]
    every += ["pyg csr cpu", "neighbourhoods"]
    asked = chosen.only.split(",") if chosen.only else every
    results = {what: measured(chosen, what) for what in every if what in asked}
    name = torch.cuda.get_device_name()
    print(json.dumps({"bench": "streamed_card", "torch": torch.__version__, "card": name, "results": results}))


if __name__ == "__main__":
    main()
