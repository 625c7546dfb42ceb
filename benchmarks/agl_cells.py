"""Cells of AGL's tables by one library, in one process: what `agl.py` starts in turn, each with its interpreter.

    python benchmarks/agl_cells.py --lib gnnflow|pyg|dgl --graph ppi.npz epochs --model gcn,sage,gat --layers 1,2,3
    python benchmarks/agl_cells.py --lib gnnflow|pyg|dgl --graph cora.npz scores --model gcn,sage,gat --seeds 3

The file holds x [N, F], y [N] classes or [N, C] labels, edge_index [2, E], train_mask, val_mask and test_mask [N]. A
batch is its targets and everything within as many hops as there are layers, merged, without sampling; all libraries
get the same batches. Batches, and the orders of edges that a library sorts once, are made before the first epoch. Only
numpy and torch are imported at the top, so the file runs where the other libraries are installed and this one is not.
Prints one JSON line; how far it is goes to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from agl_models import LIBRARIES, Spec
from torch import Tensor

PEER_FORM = "as it is"
FORMS = ("base", "pruning", "partitioning", "both", "ahead")


@dataclass(frozen=True)
class Graph:
    """In-edges by target, features, labels and splits."""

    offsets: Any
    sources: Any
    x: Any
    y: Any
    masks: Mapping[str, Any]

    @property
    def spec(self) -> tuple[int, int]:
        """Widths of the features and of the outputs."""
        return self.x.shape[1], self.y.shape[1] if self.y.ndim > 1 else int(self.y.max()) + 1


@dataclass(frozen=True)
class Batch:
    """Merged neighbourhoods: the graph's number of each row, how many rows lie within 0, 1, ... hops, and in-edges.

    Targets come first, then rows by hop. The rows of the last hop have no in-edges here.
    """

    nodes: Any
    sizes: list[int]
    offsets: Any
    sources: Any
    in_degree: Any
    out_degree: Any

    def layer(self, index: int, *, pruned: bool) -> tuple[Any, Any, int]:
        """Return a layer's offsets [T + 1], sources [E] and number of rows it reads.

        Pruned: it computes what the next layer reads. Else: it computes every row, over all of the batch's edges.
        """
        rows = self.sizes[-1]
        if not pruned:
            return np.pad(self.offsets, (0, rows + 1 - len(self.offsets)), mode="edge"), self.sources, rows
        hops = len(self.sizes) - 1 - index
        offsets = self.offsets[: self.sizes[hops - 1] + 1]
        return offsets, self.sources[: offsets[-1]], self.sizes[hops]


def read_graph(file: str) -> Graph:
    """Return the graph of a file."""
    with np.load(file) as held:
        x, y, (source, target) = held["x"], held["y"], held["edge_index"]
        masks = {name: held[f"{name}_mask"] for name in ("train", "val", "test")}
    order = np.lexsort((source, target))
    return Graph(offsets_of(np.bincount(target, minlength=len(x))), source[order], x, y, masks)


def offsets_of(counts: Any) -> Any:
    """Return where each of some runs begins, and the last ends."""
    return np.concatenate([[0], np.cumsum(counts)])


def edges_of(graph: Graph, nodes: Any) -> Any:
    """Return the positions of all in-edges of some nodes, node by node."""
    counts = graph.offsets[nodes + 1] - graph.offsets[nodes]
    return np.repeat(graph.offsets[nodes] - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())


def batch_of(graph: Graph, targets: Any, *, hops: int) -> Batch:
    """Return the targets and everything within so many hops."""
    row = np.full(len(graph.x), -1)
    row[targets] = np.arange(len(targets))
    found, sizes = [targets], [len(targets)]
    for _ in range(hops):
        reached = np.unique(graph.sources[edges_of(graph, found[-1])])
        fresh = reached[row[reached] < 0]
        row[fresh] = sizes[-1] + np.arange(len(fresh))
        found.append(fresh)
        sizes.append(sizes[-1] + len(fresh))
    nodes = np.concatenate(found)
    inner = nodes[: sizes[-2]]
    degrees = np.diff(graph.offsets), np.bincount(graph.sources, minlength=len(graph.x))
    return Batch(
        nodes,
        sizes,
        offsets_of(degrees[0][inner]),
        row[graph.sources[edges_of(graph, inner)]],
        degrees[0][nodes],
        degrees[1][nodes],
    )


def batches_of(graph: Graph, *, layers: int, size: int, number: int) -> Iterator[Batch]:
    """Yield the first batches of an epoch over the shuffled training targets; one of all of them where size is 0."""
    targets = np.random.default_rng(0).permutation(np.flatnonzero(graph.masks["train"]))
    for start in range(0, len(targets), size or len(targets))[:number]:
        yield batch_of(graph, targets[start : start + (size or len(targets))], hops=layers)


def tell(line: str) -> None:
    """Say how far this process is, beside the JSON line."""
    print(line, file=sys.stderr, flush=True)


def epoch_of(graph: Graph, spec: Spec, form: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of an epoch, from some of its batches."""
    torch.manual_seed(0)
    library = LIBRARIES[chosen.lib]()
    net = library.model(spec)
    whole = int(graph.masks["train"].sum())
    batches = list(batches_of(graph, layers=spec.layers, size=chosen.batch_size, number=chosen.batches))
    labels_of = [torch.from_numpy(graph.y[each.nodes[: each.sizes[0]]]) for each in batches]
    prepared = [library.prepare(net, each, graph.x[each.nodes], form=form) for each in batches]
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    targets = sum(each.sizes[0] for each in batches)
    times = []
    with library.setting(form):
        for number in range(chosen.warmup + chosen.repeats):
            begin = time.perf_counter()
            for batch, labels in zip(prepared, labels_of, strict=True):
                optimizer.zero_grad()
                loss = library.loss(library.outputs(net, batch), labels)
                loss.backward()
                optimizer.step()
            if number >= chosen.warmup:
                times.append((time.perf_counter() - begin) * whole / targets)
    return {
        "times": times,
        "min": min(times),
        "median": statistics.median(times),
        "loss": round(float(loss.detach()), 4),
    }


def score_of(outputs: Tensor, labels: Tensor) -> float:
    """Return the accuracy, or micro F1 of many labels."""
    if labels.ndim == 1:
        return float((outputs.argmax(1) == labels).float().mean())
    said, true = outputs > 0, labels > 0
    return float(2 * (said & true).sum() / (said.sum() + true.sum()).clamp(min=1))


def scores_of(graph: Graph, spec: Spec, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the test score of each seed, with the weights of the epoch that is best on the validation split."""
    library, values = LIBRARIES[chosen.lib](), []
    labels = torch.from_numpy(graph.y)
    rows = {name: torch.from_numpy(np.flatnonzero(mask)) for name, mask in graph.masks.items()}
    for seed in range(chosen.seeds):
        begin = time.perf_counter()
        torch.manual_seed(seed)
        net = library.model(spec)
        batch = library.prepare(net, batch_of(graph, np.arange(len(graph.x)), hops=spec.layers), graph.x, form="both")
        optimizer = torch.optim.Adam(net.parameters(), lr=chosen.lr, weight_decay=chosen.weight_decay)
        best, test = -1.0, 0.0
        for _ in range(chosen.epochs):
            net.train()
            optimizer.zero_grad()
            outputs = library.outputs(net, batch)
            library.loss(outputs[rows["train"]], labels[rows["train"]]).backward()
            optimizer.step()
            net.eval()
            with torch.no_grad():
                outputs = library.outputs(net, batch)
            valid = score_of(outputs[rows["val"]], labels[rows["val"]])
            if valid > best:
                best, test = valid, score_of(outputs[rows["test"]], labels[rows["test"]])
        values.append(test)
        tell(f"{chosen.lib}: {spec.name}, seed {seed}: {test:.4f} after {time.perf_counter() - begin:.0f} s")
    return {"scores": values, "mean": statistics.mean(values)}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", choices=tuple(LIBRARIES), required=True)
    parser.add_argument("--graph", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="gcn,sage,gat")
    parser.add_argument("--layers", default="1,2,3")
    parser.add_argument("--citation", action="store_true", help="the small models of citation graphs, not those of PPI")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--batch-size", type=int, default=4096, help="targets; 0 takes the whole graph as one batch")
    parser.add_argument("--batches", type=int, default=2, help="of an epoch; its seconds are scaled from theirs")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("what", choices=("epochs", "scores"))
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    chosen = arguments()
    os.environ.setdefault("DGLBACKEND", "pytorch")
    torch.set_num_threads(chosen.threads)
    graph, results = read_graph(chosen.graph), {}
    forms = chosen.forms.split(",") if chosen.lib == "gnnflow" else [PEER_FORM]
    for name in chosen.model.split(","):
        for layers in map(int, chosen.layers.split(",")):
            spec = Spec(name, layers, *graph.spec, citation=chosen.citation)
            if chosen.what == "scores":
                results[f"{name}/{layers}"] = scores_of(graph, spec, chosen)
                continue
            for form in forms:
                with contextlib.suppress(NotImplementedError):  # a form that this model does not have
                    found = results[f"{name}/{layers}/{form}"] = epoch_of(graph, spec, form, chosen)
                    tell(f"{chosen.lib}: {name}, {layers} layers, {form}: {found['median']:.3f} s")
    print(json.dumps({"bench": "agl", "lib": chosen.lib, "threads": chosen.threads, "results": results}))


if __name__ == "__main__":
    main()
