"""AGL's table 3: test scores of GCN, GraphSAGE and GAT on Cora and a PPI-shaped graph, with PyG and DGL.

    python benchmarks/scores.py --data DATA [--ppi ppi.npz] [--dgl PYTHON] [--model gcn,sage,gat] [--seeds 3]

Same splits, epochs and settings for all, two layers, the whole graph per step; the test score belongs to the epoch with
the best validation score. The score is the accuracy, or micro-F1 of many labels.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import DATA, DGL, PYG, Benchmark, Chosen, Found, Option, Spread, cell, folder_of, run
from models import LIBRARIES, Graph, Spec, batch_of, read_graph
from torch import Tensor

LAYERS, RATE = 2, 0.01


def write_graph(folder: Path, path: Path) -> str:
    """Write a public graph, with features normalised by row, to a file for all libraries."""
    import pyarrow.parquet as pq

    from gnnflow.storage.columns import to_numpy

    nodes, edges = (pq.read_table(folder / f"{name}.parquet") for name in ("nodes", "edges"))
    ids, order = np.unique(to_numpy(nodes["id"]), return_index=True)
    nodes = nodes.take(order)
    x = dense_features(nodes)
    split = np.array(nodes["split"].to_pylist(), dtype=object)
    masks = {f"{name}_mask": split == value for name, value in (("train", "train"), ("val", "valid"), ("test", "test"))}
    ends = [np.searchsorted(ids, to_numpy(edges[column])) for column in ("src", "dst")]
    x /= np.maximum(np.abs(x).sum(1, keepdims=True), 1e-12)
    np.savez(path, x=x, y=to_numpy(nodes["label"]).astype(np.int64), edge_index=np.stack(ends), **masks)
    return str(path)


def dense_features(nodes: Any) -> Any:
    """Return x [N, F] of a node table, whose column x or x_index and x_value hold it."""
    from gnnflow.storage.columns import combine, to_numpy

    if "x" in nodes.column_names:
        rows = combine(nodes["x"])
        return to_numpy(rows.flatten()).astype(np.float32).reshape(len(rows), -1)
    rows = combine(nodes["x_index"])
    index = to_numpy(rows.flatten())
    value = to_numpy(combine(nodes["x_value"]).flatten()) if "x_value" in nodes.column_names else np.ones(len(index))
    x = np.zeros((len(rows), int(index.max()) + 1), np.float32)
    x[np.repeat(np.arange(len(rows)), np.diff(to_numpy(rows.offsets))), index] = value
    return x


def score_of(outputs: Tensor, labels: Tensor) -> float:
    """Return the accuracy, or micro-F1 of many labels."""
    if labels.ndim == 1:
        return float((outputs.argmax(1) == labels).float().mean())
    said, true = outputs > 0, labels > 0
    return float(2 * (said & true).sum() / (said.sum() + true.sum()).clamp(min=1))


def scores_of(graph: Graph, spec: Spec, chosen: Chosen) -> list[float]:
    """Return the test score of each seed, with the weights of the epoch of the best validation score."""
    library, values = LIBRARIES[chosen.lib](), []
    labels = torch.from_numpy(graph.y)
    rows_of = {name: torch.from_numpy(np.flatnonzero(mask)) for name, mask in graph.masks.items()}
    for seed in range(chosen.seeds):
        torch.manual_seed(seed)
        net = library.model(spec)
        batch = library.prepare(net, batch_of(graph, np.arange(len(graph.x)), hops=spec.layers), graph.x, form="both")
        optimizer = torch.optim.Adam(net.parameters(), lr=RATE, weight_decay=chosen.weight_decay)
        best, test = -1.0, 0.0
        for _ in range(chosen.epochs):
            net.train()
            optimizer.zero_grad()
            outputs = library.outputs(net, batch)
            library.loss(outputs[rows_of["train"]], labels[rows_of["train"]]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            net.eval()
            with torch.no_grad():
                outputs = library.outputs(net, batch)
            valid = score_of(outputs[rows_of["val"]], labels[rows_of["val"]])
            if valid > best:
                best, test = valid, score_of(outputs[rows_of["test"]], labels[rows_of["test"]])
        values.append(test)
    return values


def measured(chosen: Chosen) -> Found:
    """Return the scores of one library's model in this process."""
    torch.set_num_threads(chosen.threads)
    graph = read_graph(chosen.graph)
    spec = Spec(chosen.model, LAYERS, *graph.spec, citation=graph.y.ndim == 1)
    return {"scores": scores_of(graph, spec, chosen)}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the scores of each graph and model, and ours over the best peer's."""
    pythons = {"gnnflow": "", "pyg": chosen.pyg, "dgl": chosen.dgl}
    with folder_of("") as folder:
        graphs = {"Cora": (write_graph(Path(chosen.data) / "cora", folder / "cora.npz"), chosen.epochs, 5e-4)}
        if chosen.ppi:
            graphs["PPI-shaped"] = (chosen.ppi, chosen.ppi_epochs, 0.0)
        for name, (graph, epochs, decay) in graphs.items():
            for model in chosen.model.split(","):
                given = {"graph": graph, "epochs": epochs, "weight_decay": decay, "model": model}
                found = {
                    library: Spread(cell(chosen, "scores", python=python, lib=library, **given)["scores"])
                    for library, python in pythons.items()
                    if python or library == "gnnflow"
                }
                best = max((statistics.mean(found[each]) for each in ("pyg", "dgl") if each in found), default=None)
                ratio = statistics.mean(found["gnnflow"]) / best if best else None
                yield f"{name}, {model}", *(found.get(each) for each in pythons), ratio


BENCH = Benchmark(
    columns=("graph, model", "gnnflow", "PyG", "DGL", "ours / best peer"),
    rows=rows,
    options={
        "data": DATA,
        "ppi": Option("", "an .npz file, as models.py describes it"),
        "model": "gcn,sage,gat",
        "seeds": 3,
        "epochs": Option(200, "on Cora"),
        "ppi_epochs": 50,
        "pyg": PYG,
        "dgl": DGL,
        "threads": 2,
    },
    small={"model": "gcn", "seeds": 1, "epochs": 5},
    cells={"scores": measured},
    needs=("data/cora",),
)


if __name__ == "__main__":
    run(BENCH)
