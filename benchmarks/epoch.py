"""Seconds per training epoch over a whole graph as one batch, beside other libraries' scripts.

    python benchmarks/epoch.py --graph ppi.npz [--model gcn,sage,gat] [--layers 1,2,3] [--threads 2] [--repeats 5]
                               [--precision float32|bfloat16] [--first-sums once|each] [--device cpu|cuda]

The file holds x [N, F], y [N, C], edge_index [2, E], and train_mask [N]; edges with an end outside of the mask are left
out. A model is L layers, each with its activation, then a linear map to the C labels; GCN and SAGE are 64 wide, GAT has
4 heads of 64. Blocks and their orders are made once, before the first epoch, and so is what GCN and SAGE aggregate of
the features, as training does with a batch it keeps; `--first-sums each` aggregates that in every epoch. Prints one
JSON line.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import MiniBatchConfig, model_from_dict
from gnnflow.executions.minibatch import aggregates_ahead, first_terms, forward, prepared
from gnnflow.executions.moving import beside
from gnnflow.executions.tensors import BatchTensors, batch_tensors
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block, Degrees, Features, InPlaceBatch, MiniBatch
from gnnflow.graph.edges import InEdges
from gnnflow.kernels import binary_cross_entropy
from gnnflow.kernels.device import CPU
from gnnflow.layers.gat import GAT
from gnnflow.layers.model import Model, ModelInputs, build_model
from gnnflow.train.objective import build_optimizer
from gnnflow.train.reproducible import compute_settings

WIDTH, HEADS = 64, 4
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"kind": "gcn", "hidden": WIDTH},
    "sage": {"kind": "sage", "hidden": WIDTH},
    "gat": {"kind": "gat", "hidden": WIDTH, "heads": HEADS, "activation": "elu"},
}


@dataclass(frozen=True)
class Graph:
    """The graph within the mask: adjacency, degrees, features and labels of its N nodes."""

    adjacency: Block
    degrees: Degrees
    features: Features
    labels: Tensor


def read_graph(file: str) -> Graph:
    """Return the edges with both ends in the mask, grouped by target."""
    with np.load(file) as held:
        x, y, (source, target), mask = (held[name] for name in ("x", "y", "edge_index", "train_mask"))
    inside = mask[source] & mask[target]
    row = np.cumsum(mask) - 1
    source, target = row[source[inside]], row[target[inside]]
    order = np.lexsort((source, target))
    in_degree, out_degree = (np.bincount(ends, minlength=int(mask.sum())) for ends in (target, source))
    return Graph(
        Block(InEdges(offsets_of(in_degree), source[order]), len(in_degree)),
        Degrees(in_degree, out_degree, in_degree.astype(np.float32)),
        Features(x.shape[1], dense=x[mask]),
        torch.from_numpy(y[mask]).float(),
    )


def model_of(name: str, layers: int, inputs: ModelInputs) -> Model:
    """Return the model; every layer of gat has its heads side by side, also the last."""
    config = model_from_dict({**MODELS[name], "layers": layers, "head": "linear", "dropout": 0.0})
    if name != "gat":
        return build_model(config, inputs)
    widths = [inputs.feature_width, *(HEADS * WIDTH for _ in range(layers - 1))]
    return Model(config, inputs, encoder=None, layers=[GAT(width, WIDTH, heads=HEADS) for width in widths])


def batch_of(model: Model, graph: Graph, *, ahead: bool = True) -> BatchTensors:
    """Return the whole graph as one batch, as training would keep it from one epoch to the next.

    ahead: with the sums of the first layer, where these are the same in every epoch.
    """
    rows, blocks = np.arange(graph.adjacency.num_targets), (graph.adjacency,) * model.num_layers
    if not ahead or not aggregates_ahead(model, training=True):
        return batch_tensors(MiniBatch(blocks, graph.degrees, graph.features, rows))
    terms = first_terms(model, graph.features, graph.degrees)
    placed = InPlaceBatch(blocks[0], rows, blocks[1:], graph.degrees, rows)
    return prepared(model, terms, placed, features=graph.features)


def step(
    model: Model, batch: BatchTensors, *, labels: Tensor, optimizer: torch.optim.Optimizer, precision: str
) -> float:
    """Take one step and return its loss; nothing of it is kept."""
    optimizer.zero_grad()
    with torch.autocast(labels.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        logits = forward(model, batch)
    loss = binary_cross_entropy(logits.float(), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def epochs(name: str, layers: int, graph: Graph, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of each measured epoch."""
    torch.manual_seed(0)
    model = model_of(name, layers, ModelInputs(graph.features.width, graph.labels.shape[1])).train()
    batch = batch_of(model, graph, ahead=chosen.first_sums == "once")
    device = torch.device(chosen.device)
    model.to(device)
    batch, labels = beside(device, batch), graph.labels.to(device)
    optimizer = build_optimizer(model, MiniBatchConfig(lr=0.005))
    times = []
    for number in range(chosen.warmup + chosen.repeats):
        begin = time.perf_counter()
        loss = step(model, batch, labels=labels, optimizer=optimizer, precision=chosen.precision)
        if chosen.device == "cuda":
            torch.cuda.synchronize()
        if number >= chosen.warmup:
            times.append(time.perf_counter() - begin)
    return {
        "times": times,
        "min": min(times),
        "median": statistics.median(times),
        "loss": round(loss, 4),
        "params": sum(parameter.numel() for parameter in model.parameters()),
        "rss_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", required=True)
    parser.add_argument("--model", default="gcn,sage,gat")
    parser.add_argument("--layers", default="1,2,3")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--first-sums", choices=("once", "each"), default="once")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    chosen = parser.parse_args()
    graph, results = read_graph(chosen.graph), {}
    device = CPU if chosen.device == "cpu" else torch.device("cuda", 0)
    for name in chosen.model.split(","):
        for layers in chosen.layers.split(","):
            with compute_settings(chosen.threads, device):  # one training: memory is kept for its length
                results[f"{name}/{layers}/full"] = epochs(name, int(layers), graph, chosen)
    about = {"bench": "epoch", "lib": "gnnflow", "precision": chosen.precision, "threads": chosen.threads}
    about["first_sums"] = chosen.first_sums
    print(json.dumps({**about, "results": results}))


if __name__ == "__main__":
    main()
