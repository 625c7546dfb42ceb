"""The same epochs with DGL: GraphSAGE over NeighborSampler's blocks, the whole graph in memory.

    PYTHON benchmarks/minibatch_dgl.py --graph big.npz [--epochs 5] [--threads 1] [--layers 3 --targets 4096]

Started by `minibatch.py --dgl PYTHON`; PYTHON has DGL and need not have gnnflow. Neighbours are drawn anew for each
batch, on the thread that computes; with --layers every in-edge is read, by so many layers. Prints one JSON line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from minibatch_peers import BATCH, HIDDEN, load, parser_of, train
from torch import nn
from torch.nn import functional

FANOUT = (10, 15)  # DGL counts fan-outs from the first layer on


class Sage(nn.Module):
    """GraphSAGE, as `minibatch.py` trains it."""

    def __init__(self, width: int, classes: int, layers: int) -> None:
        from dgl_shim import dgl

        super().__init__()
        widths = [width, *[HIDDEN] * (layers - 1), classes]
        self.layers = nn.ModuleList([dgl.nn.SAGEConv(*pair, "mean") for pair in pairwise(widths)])

    def forward(self, blocks: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the last block's nodes."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, functional.relu(x) if number else x)
        return x


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__, epochs=5, threads=1)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--targets", type=int, default=0)
    chosen = parser.parse_args()
    from dgl_shim import dgl

    x, y, edges, seeds = load(chosen)
    begin = time.perf_counter()
    graph = dgl.graph((edges[0], edges[1]), num_nodes=len(y)).formats(["csc"])
    sampler = dgl.dataloading.NeighborSampler([-1] * chosen.layers if chosen.layers else list(FANOUT))
    seeds = seeds[: chosen.targets or None]
    prepared = time.perf_counter() - begin
    net = Sage(x.shape[1], int(y.max()) + 1, chosen.layers or len(FANOUT))

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for batch in seeds[torch.randperm(len(seeds))].split(BATCH):
            nodes, targets, blocks = sampler.sample_blocks(graph, batch)
            yield net(blocks, x[nodes]), y[targets]

    train(net, batches, epochs=chosen.epochs, prepared=prepared, versions={"dgl": dgl.__version__})


if __name__ == "__main__":
    main()
