"""The same epochs as `epoch.py` with PyG, on the CPU or a graphics card.

    PYTHON benchmarks/epoch_pyg.py --graph ppi.npz [--model gcn,sage,gat] [--layers 1,2,3] [--device cuda]

Each model twice where PyG offers both: over a list of edges, and over torch's CSR matrix. Normalisation is computed
once (`cached`). PYTHON has torch_geometric and need not have gnnflow. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

WIDTH, HEADS = 64, 4


class Net(nn.Module):
    """L layers, each with its activation, then a linear map."""

    def __init__(self, name: str, layers: int, width: int, outputs: int, *, cached: bool) -> None:
        super().__init__()
        wide = HEADS * WIDTH if name == "gat" else WIDTH
        widths = [width, *(wide for _ in range(layers))]
        self.activation = functional.elu if name == "gat" else functional.relu
        make: Any = {
            "gcn": lambda n: GCNConv(n, WIDTH, cached=cached, add_self_loops=True),
            "sage": lambda n: SAGEConv(n, WIDTH),
            "gat": lambda n: GATConv(n, WIDTH, heads=HEADS),
        }[name]
        self.layers = nn.ModuleList(make(each) for each in widths[:-1])
        self.head = nn.Linear(wide, outputs)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        """Return the logits of all nodes."""
        for layer in self.layers:
            x = self.activation(layer(x, adjacency))
        logits: torch.Tensor = self.head(x)
        return logits


def measured(net: Net, x: torch.Tensor, y: torch.Tensor, adjacency: torch.Tensor, repeats: int) -> list[float]:
    """Return the seconds of epochs after two that warm up."""
    optimizer, times = torch.optim.Adam(net.parameters(), lr=0.005), []
    for _ in range(repeats + 2):
        begin = time.perf_counter()
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(net(x, adjacency), y).backward()
        optimizer.step()
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return times[2:]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", required=True)
    parser.add_argument("--model", default="gcn,sage,gat")
    parser.add_argument("--layers", default="1,2,3")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    with np.load(chosen.graph) as held:
        x, y, (source, target), mask = (held[name] for name in ("x", "y", "edge_index", "train_mask"))
    inside, row = mask[source] & mask[target], np.cumsum(mask) - 1
    edges = torch.from_numpy(np.stack([row[source[inside]], row[target[inside]]])).to(chosen.device)
    features, labels = (torch.from_numpy(each[mask]).float().to(chosen.device) for each in (x, y))
    num_nodes = len(features)
    # rows are targets; PyG reads the transposed matrix
    matrix = torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.shape[1], device=chosen.device), (num_nodes,) * 2)
    forms = {"edges": edges, "csr": matrix.coalesce().to_sparse_csr()}
    results: dict[str, Any] = {}
    for name in chosen.model.split(","):
        for layers in map(int, chosen.layers.split(",")):
            for form, adjacency in forms.items():
                torch.manual_seed(0)
                net = Net(name, layers, features.shape[1], labels.shape[1], cached=form == "edges").to(chosen.device)
                try:
                    times = measured(net, features, labels, adjacency, chosen.repeats)
                except (RuntimeError, NotImplementedError, ValueError) as error:
                    results[f"{name}/{layers}/{form}"] = str(error).splitlines()[0][:80]
                    continue
                results[f"{name}/{layers}/{form}"] = {"min": min(times), "median": statistics.median(times)}
    print(json.dumps({"bench": "epoch", "lib": "pyg", "device": chosen.device, "results": results}))


if __name__ == "__main__":
    main()
