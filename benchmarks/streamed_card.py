"""Training on a GPU with the graph in host memory, compared with the graph in GPU memory and with PyG.

    python benchmarks/streamed_card.py --nodes 2000000 --edges 100000000 --budget 1024 [--repeats 3]

The random graph and the GCN of `streamed.py`. Every form is a separate process:

card: an epoch with all of the graph in the card's memory (`globalbatch`), and the most memory that took.
ours: an epoch under the budget (MiB), beyond which the process gets no memory of the card.
pyg: PyG's GCN under the same budget, over a list of edges and over torch's CSR matrix; the same on the card with all of
its memory; and over the matrix on the processor with `--threads` threads (a row per edge would be 26 GB there). Its
normalisation is computed before.
neighbourhoods: one batch of whole neighbourhoods by PyG's `k_hop_subgraph`, gathered by the processor.

Without a card there is nothing to measure. A form that gets no memory says so, and one that takes longer than --limit
seconds is stopped.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import torch
from harness import Benchmark, Chosen, Found, Option, cell, run
from streamed import CLASSES, GRAPH, new_model, num_parts, parts_of
from torch import nn
from torch.nn import functional

from gnnflow.executions import globalbatch, streamed
from gnnflow.executions.globalbatch.active_sets import active_rows
from gnnflow.executions.globalbatch.batch import rank_batch
from gnnflow.executions.moving import to_device
from gnnflow.executions.row_exchange import OneRank
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.streamed.budget import plan
from gnnflow.train.streamed.card import Card
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import by_id, even_sizes
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import ON_CARD

DEVICE = torch.device("cuda", 0)
WIDTH = HIDDEN = 64
FORMS = ("edges", "csr")
PYG = [f"pyg {form} {place}" for place in ("capped", "card") for form in FORMS]
EVERY = ["card", "ours", *PYG, "pyg csr cpu", "neighbourhoods"]


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


def epochs(chosen: Chosen, model: nn.Module, compute: Callable[[], torch.Tensor], device: torch.device) -> list[float]:
    """Return the seconds of epochs after one that warms up."""
    labels = torch.from_numpy(np.random.default_rng(1).integers(0, CLASSES, chosen.nodes)).to(device)
    optimizer, times = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(chosen.repeats + 1):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = functional.cross_entropy(compute(), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        float(loss.detach())
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        del loss
    return times[1:]


def card(chosen: Chosen) -> Found:
    """Measure epochs with the whole graph on the GPU."""
    model, (edges, degree, x) = new_model(chosen), whole(chosen)
    every, bounds = np.arange(chosen.nodes), np.array([0, chosen.nodes])
    rows = active_rows([Block(edges, chosen.nodes)] * 2, every, bounds=bounds, exchange=OneRank())
    nodes = Degrees(degree, degree, degree.astype(np.float32))
    model.to(DEVICE)
    batch = rank_batch(model, rows, features=Features(WIDTH, dense=x), nodes=nodes, exchange=OneRank())
    batch = to_device(DEVICE, batch)
    with compute_settings(1, DEVICE):
        times = epochs(chosen, model, lambda: globalbatch.forward(model, batch, OneRank()), DEVICE)
    return {"seconds": statistics.median(times), "mib": torch.cuda.max_memory_allocated() / 2**20}


def whole(chosen: Chosen) -> tuple[InEdges, np.ndarray, np.ndarray]:
    """Return the graph's in-edges, in-degrees and features."""
    held = list(parts_of(chosen))
    degree = np.concatenate([each[2].in_degree for each in held])
    edges = InEdges(offsets_of(degree), np.concatenate([each[1].sources for each in held]))
    return edges, degree, np.concatenate([each[3].dense for each in held])


def ours(chosen: Chosen) -> Found:
    """Measure epochs under the budget."""
    model = new_model(chosen)
    largest = (-(-chosen.nodes // num_parts(chosen)), chosen.edges // num_parts(chosen))
    size = GraphSize((chosen.nodes,), (chosen.edges,), chosen.nodes, (WIDTH,), 0, largest)
    made = plan(model, size, budget=chosen.budget << 20, place=ON_CARD)
    sizes = even_sizes(chosen.nodes, made.intervals)
    files = FileGraph.empty(
        Scratch(None), by_id(sizes), files=[0, 0], max_edges=made.max_edges, width=WIDTH, sparse=False
    )
    for first, edges, nodes, features in parts_of(chosen):
        files.add(first, blocks=[Block(edges, chosen.nodes)] * 2, features=features, nodes=nodes)
        cap(chosen)
    graph = files.on_card(Card(DEVICE))
    model.to(DEVICE)
    every = np.arange(chosen.nodes)
    with compute_settings(1, DEVICE):
        times = epochs(chosen, model, lambda: streamed.forward(model, graph, every), DEVICE)
    found = {"seconds": statistics.median(times), "mib": torch.cuda.max_memory_allocated() / 2**20}
    graph.scratch.close()
    return found | {"intervals": made.intervals, "planned": made.num_bytes / 2**20}


def cap(chosen: Chosen) -> None:
    """Limit this process's GPU memory to the budget."""
    whole_card = torch.cuda.get_device_properties(DEVICE).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (chosen.budget << 20) / whole_card), DEVICE)


def pyg(chosen: Chosen, form: str, *, device: torch.device) -> Found:
    """Measure epochs of PyG."""
    edges, degree, x = whole(chosen)
    # each node's message to itself after its in-edges, and the symmetric normalisation of all
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
        return {"told": str(error).splitlines()[0][:60]}
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
    return {"seconds": statistics.median(times), "mib": peak}


def neighbourhoods(chosen: Chosen) -> Found:
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
    told: Found = {"told": f"a step of {len(nodes):,} nodes, {found.shape[1]:,} edges, gathered in {taken:.2f} s"}
    net = PygNet().train().to(DEVICE)
    try:
        rows, here = torch.from_numpy(x)[nodes].to(DEVICE), found.to(DEVICE)
        for _ in range(2):
            begin = time.perf_counter()
            net(rows, here, None).sum().backward()
            torch.cuda.synchronize()
            told["seconds"] = time.perf_counter() - begin
    except torch.OutOfMemoryError as error:
        told["told"] = str(error).splitlines()[0][:60]
    return told


def alone(chosen: Chosen) -> Found:
    """Measure one form in this process."""
    what, _, rest = chosen.what.partition(" ")
    if what != "pyg":
        return {"card": card, "ours": ours, "neighbourhoods": neighbourhoods}[what](chosen)
    form, place = rest.split()
    if place == "capped":
        cap(chosen)
    return pyg(chosen, form, device=torch.device("cpu") if place == "cpu" else DEVICE)


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the epoch of each form."""
    # the allocator's blocks grow in place, so that fragments do not count against the limit
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    for what in chosen.only.split(","):
        try:
            found = cell(chosen, "alone", what=what, limit=chosen.limit)
        except subprocess.TimeoutExpired:
            found = {"told": f"stopped after {chosen.limit} s"}
        yield what, *(found.get(name) for name in ("seconds", "mib", "intervals", "planned", "told"))


BENCH = Benchmark(
    columns=("form", "seconds per epoch", "most on the card MiB", "intervals", "planned MiB", "what it told"),
    rows=rows,
    options={
        **GRAPH,
        "nodes": 2_000_000,
        "edges": 100_000_000,
        "budget": Option(1024, "MiB"),
        "threads": Option(16, "of PyG on the processor"),
        "batch": Option(1024, "targets of the neighbourhoods"),
        "repeats": 3,
        "limit": Option(120, "seconds until a form is stopped"),
        "only": Option(",".join(EVERY), "forms"),
    },
    small={"nodes": 20_000, "edges": 200_000, "repeats": 1},
    cells={"alone": alone},
    needs=("cuda", "torch_geometric"),
)


if __name__ == "__main__":
    run(BENCH)
