"""The same epochs with PyG: GraphSAGE over NeighborLoader's batches, the whole graph in memory.

    PYTHON benchmarks/minibatch_pyg.py --graph big.npz [--epochs 10] [--threads 2]

Started by `minibatch.py --pyg PYTHON`; PYTHON has torch_geometric with torch-sparse or pyg-lib, which sample, and need
not have gnnflow. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

FANOUT, BATCH, HIDDEN = (15, 10), 1024, 64


class Sage(nn.Module):
    """GraphSAGE of two layers, as `minibatch.py` trains it."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(width, HIDDEN), SAGEConv(HIDDEN, classes)

    def forward(self, batch: Any) -> torch.Tensor:
        """Return the logits of the batch's seeds."""
        hidden = functional.relu(self.first(batch.x, batch.edge_index))
        logits: torch.Tensor = self.second(hidden, batch.edge_index)[: batch.batch_size]
        return logits


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    with np.load(chosen.graph) as held:
        x, y, edges, seeds = (torch.from_numpy(held[name]) for name in ("x", "y", "edge_index", "seeds"))
    begin = time.perf_counter()
    loader = NeighborLoader(Data(x=x, y=y, edge_index=edges), FANOUT, seeds, batch_size=BATCH, shuffle=True)
    prepared = time.perf_counter() - begin
    net = Sage(x.shape[1], int(y.max()) + 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    times, spent, loss = [], [], torch.zeros(())
    for _ in range(chosen.epochs):
        begin, cpu = time.perf_counter(), time.process_time()
        for batch in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(batch), batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
        times.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
    versions = {"torch": torch.__version__, "pyg": torch_geometric.__version__}
    found = {"times": times, "cpu": spent, "prep_s": prepared, "loss": float(loss.detach()), "versions": versions}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
