"""The same epochs with PyG: GraphSAGE over NeighborLoader's batches, the whole graph in memory.

    PYTHON benchmarks/minibatch_pyg.py --graph big.npz [--epochs 10] [--threads 2]

Started by `minibatch.py --pyg PYTHON`; PYTHON has torch_geometric with torch-sparse or pyg-lib, which sample, and need
not have gnnflow. Prints one JSON line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
import torch_geometric
from minibatch_peers import BATCH, HIDDEN, load, parser_of, train
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

FANOUT = (15, 10)


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
    chosen = parser_of(__doc__, epochs=10, threads=2).parse_args()
    x, y, edges, seeds = load(chosen)
    begin = time.perf_counter()
    loader = NeighborLoader(Data(x=x, y=y, edge_index=edges), FANOUT, seeds, batch_size=BATCH, shuffle=True)
    prepared = time.perf_counter() - begin
    net = Sage(x.shape[1], int(y.max()) + 1)

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for batch in loader:
            yield net(batch), batch.y[: batch.batch_size]

    train(net, batches, epochs=chosen.epochs, prepared=prepared, versions={"pyg": torch_geometric.__version__})


if __name__ == "__main__":
    main()
