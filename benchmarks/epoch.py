"""Seconds per training epoch over a whole graph as one batch, beside other libraries' scripts.

    python benchmarks/epoch.py --graph ppi.npz [--model gcn,sage,gat] [--layers 1,2,3] [--threads 2] [--repeats 5]

The file holds x [N, F], y [N, C], edge_index [2, E], and train_mask [N]; edges with an end outside of the mask are left
out. A model is L layers, each with its activation, then a linear map to the C labels; GCN and SAGE are 64 wide, GAT has
4 heads of 64. Blocks and their orders are made once, before the first epoch. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from gnnflow.config import model_from_dict
from gnnflow.executions import minibatch
from gnnflow.executions.tensors import BatchTensors, BlockTensors
from gnnflow.graph.arrays import offsets_of
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext
from gnnflow.layers.model import ModelInputs, build_model

MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"kind": "gcn", "hidden": 64},
    "sage": {"kind": "sage", "hidden": 64},
    "gat": {"kind": "gat", "hidden": 256, "heads": 4, "activation": "elu"},
}


def whole_graph(file: str, layers: int) -> BatchTensors:
    """Return the graph as one batch whose every block is the whole adjacency."""
    with np.load(file) as held:
        x, y, (source, target), mask = (held[name] for name in ("x", "y", "edge_index", "train_mask"))
    inside = mask[source] & mask[target]
    row = np.cumsum(mask) - 1
    source, target = row[source[inside]], row[target[inside]]
    order = np.lexsort((source, target))
    degree = np.bincount(target, minlength=int(mask.sum()))
    csr = Csr(torch.from_numpy(offsets_of(degree)), torch.from_numpy(source[order]), len(degree))
    block = BlockTensors(csr, EdgeContext(csr.num_edges), None)
    degrees = torch.from_numpy(degree).float()
    nodes = NodeContext(degrees, torch.from_numpy(np.bincount(source, minlength=len(degree))).float(), degrees)
    features = FeatureTensors(x.shape[1], dense=torch.from_numpy(x[mask]))
    return BatchTensors((block,) * layers, nodes, features, torch.from_numpy(y[mask]).float())


def epochs(name: str, layers: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of each measured epoch."""
    batch = whole_graph(chosen.graph, layers)
    assert batch.labels is not None
    torch.manual_seed(0)
    config = model_from_dict({**MODELS[name], "layers": layers, "head": "linear", "dropout": 0.0})
    model = build_model(config, ModelInputs(batch.features.width, batch.labels.shape[1])).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    times = []
    for number in range(chosen.warmup + chosen.repeats):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(minibatch.forward(model, batch), batch.labels)
        loss.backward()
        optimizer.step()
        if number >= chosen.warmup:
            times.append(time.perf_counter() - begin)
    return {
        "times": times,
        "min": min(times),
        "median": statistics.median(times),
        "loss": round(float(loss.detach()), 4),
        "params": sum(parameter.numel() for parameter in model.parameters()),
        "rss_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", required=True)
    parser.add_argument("--model", default="gcn,sage,gat")
    parser.add_argument("--layers", default="1,2,3")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    results = {
        f"{name}/{layers}/full": epochs(name, int(layers), chosen)
        for name in chosen.model.split(",")
        for layers in chosen.layers.split(",")
    }
    print(json.dumps({"bench": "epoch", "lib": "gnnflow", "threads": chosen.threads, "results": results}))


if __name__ == "__main__":
    main()
