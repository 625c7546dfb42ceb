"""Seconds per training epoch of GCN, GraphSAGE and GAT, PyG and DGL included; AGL's table 4 and its two optimisations.

    python benchmarks/epoch.py [--graph ppi.npz] [--dgl PYTHON] [--model gcn,sage,gat] [--layers 1,2,3]
    python benchmarks/epoch.py --graph ppi.npz --batch-size 4096 --forms base,pruning,partitioning,both,ahead

The whole graph is one batch, or a batch has --batch-size targets with their merged neighbourhoods (`models.py`). Forms
of gnnflow: `ahead` keeps the first layer's sums with the batch, as training does; `both` computes them in every epoch.
base, pruning and partitioning are AGL's ablation; with a whole graph as one batch, pruning removes nothing.
Edges with an end outside of train_mask are omitted from a whole graph. Without --graph a random graph of the shape of
PPI is made. Batches, and the orders of edges that a library sorts once, are made before the first epoch.

Each form runs in a separate process, in turns; the ratio is the median of the first form over this one's.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from harness import DGL, PYG, Benchmark, Chosen, Found, Option, cell, numbers, peak_mib, run
from models import FORMS, LIBRARIES, PEER_FORM, Graph, Spec, batches_of, random_graph, read_graph

RATE = 0.005


def graph_of(chosen: Chosen) -> Graph:
    """Return the graph of the file, or a random one; of a whole graph only the part in its mask."""
    graph = read_graph(chosen.graph) if chosen.graph else random_graph(chosen.nodes, chosen.edges)
    return graph if chosen.batch_size else graph.within("train")


def epoch_of(graph: Graph, spec: Spec, chosen: Chosen) -> Found:
    """Return the seconds of an epoch, from some of its batches, with the last loss and the peak of memory."""
    torch.manual_seed(0)
    device, library = torch.device(chosen.device), LIBRARIES[chosen.lib]()
    net = library.model(spec)
    batches = list(batches_of(graph, layers=spec.layers, size=chosen.batch_size, number=chosen.batches))
    labels = [torch.from_numpy(graph.y[each.nodes[: each.sizes[0]]]).to(device) for each in batches]
    prepared = [library.prepare(net, each, graph.x[each.nodes], form=chosen.form) for each in batches]
    net.to(device)
    prepared = [library.moved(each, device) for each in prepared]
    share = sum(each.sizes[0] for each in batches) / int(graph.masks["train"].sum())
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, fused=True)
    times = []
    with library.setting(chosen.form, device):
        for number in range(chosen.warmup + chosen.repeats):
            begin = time.perf_counter()
            for batch, truth in zip(prepared, labels, strict=True):
                optimizer.zero_grad()
                with torch.autocast(device.type, torch.bfloat16, enabled=chosen.precision == "bfloat16"):
                    outputs = library.outputs(net, batch)
                loss = library.loss(outputs.float(), truth)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number >= chosen.warmup:
                times.append((time.perf_counter() - begin) / share)
    return {"times": times, "loss": float(loss.detach()), "mib": peak_mib()}


def measured(chosen: Chosen) -> Found:
    """Return the figures of one form in this process; none if the model lacks it."""
    torch.set_num_threads(chosen.threads)
    graph = graph_of(chosen)
    with contextlib.suppress(NotImplementedError):
        return epoch_of(graph, Spec(chosen.model, chosen.layers, *graph.spec), chosen)
    return {}


def forms_of(chosen: Chosen) -> list[tuple[str, str, str]]:
    """Return library, form and interpreter of all candidates."""
    forms = [("gnnflow", form, "") for form in chosen.forms.split(",")]
    peers = {"pyg": chosen.pyg, "dgl": chosen.dgl}
    return forms + [(library, PEER_FORM, python) for library, python in peers.items() if python]


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the figures of each model by form."""
    for model in chosen.model.split(","):
        for layers in numbers(chosen.layers):
            found: dict[tuple[str, str], list[Found]] = {}
            for _ in range(chosen.rounds):
                for library, form, python in forms_of(chosen):
                    given = {"lib": library, "form": form, "model": model, "layers": layers}
                    ran = cell(chosen, "epoch", python=python, threads=chosen.threads, **given)
                    if ran:
                        found.setdefault((library, form), []).append(ran)
            yield from lines_of(f"{model}, {layers}", found)


def lines_of(model: str, found: dict[tuple[str, str], list[Found]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row per form that the model has: its least and median seconds, and the first form's median over its."""
    times = {key: [second for ran in runs for second in ran["times"]] for key, runs in found.items()}
    first = statistics.median(next(iter(times.values()), [0.0]))
    for (library, form), seconds in times.items():
        median, ran = statistics.median(seconds), found[library, form][-1]
        peak = max(each["mib"] for each in found[library, form]) / 1024
        yield model, library, form, min(seconds), median, first / median, peak, ran["loss"]


BENCH = Benchmark(
    columns=("model, layers", "library", "form", "min s", "median s", "first / this", "peak GiB", "loss"),
    rows=rows,
    options={
        "graph": Option("", "an .npz file, as models.py describes it"),
        "nodes": Option(44_906, "of the random graph"),
        "edges": 1_291_258,
        "model": "gcn,sage,gat",
        "layers": "1,2,3",
        "forms": Option("ahead,both", f"of {', '.join(FORMS)}"),
        "batch_size": Option(0, "targets; 0 takes the whole graph as one batch"),
        "batches": Option(2, "of an epoch, whose seconds are scaled from theirs"),
        "device": Option("cpu", choices=("cpu", "cuda")),
        "precision": Option("float32", choices=("float32", "bfloat16")),
        "pyg": PYG,
        "dgl": DGL,
        "threads": 2,
        "warmup": 2,
        "repeats": 5,
        "rounds": 2,
    },
    small={"nodes": 600, "edges": 6_000, "layers": "2", "model": "gcn", "repeats": 2, "rounds": 1},
    cells={"epoch": measured},
)


if __name__ == "__main__":
    run(BENCH)
