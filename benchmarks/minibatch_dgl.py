"""The same epochs with DGL: GraphSAGE over NeighborSampler's blocks, the whole graph in memory.

    PYTHON benchmarks/minibatch_dgl.py --graph big.npz [--epochs 5] [--threads 1] [--layers 3 --targets 4096]

Started by `minibatch.py --dgl PYTHON`; PYTHON has DGL and need not have gnnflow. Neighbours are drawn anew for each
batch, on the thread that computes; with --layers every in-edge is read, by so many layers. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

FANOUT, BATCH, HIDDEN = (10, 15), 1024, 64  # DGL counts fan-outs from the first layer on


class _Nothing(types.ModuleType):
    """Stands for dgl.graphbolt, whose library is built for older versions of torch; these blocks do not use it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Sage(nn.Module):
    """GraphSAGE, as `minibatch.py` trains it."""

    def __init__(self, width: int, classes: int, layers: int) -> None:
        from dgl.nn import SAGEConv

        super().__init__()
        widths = [width, *[HIDDEN] * (layers - 1), classes]
        self.layers = nn.ModuleList([SAGEConv(*pair, "mean") for pair in pairwise(widths)])

    def forward(self, blocks: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the last block's nodes."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, functional.relu(x) if number else x)
        return x


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--targets", type=int, default=0)
    chosen = parser.parse_args()
    sys.modules["dgl.graphbolt"] = _Nothing("dgl.graphbolt")
    import dgl
    from dgl.dataloading import NeighborSampler

    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    with np.load(chosen.graph) as held:
        x, y, edges, seeds = (torch.from_numpy(held[name]) for name in ("x", "y", "edge_index", "seeds"))
    begin = time.perf_counter()
    graph = dgl.graph((edges[0], edges[1]), num_nodes=len(y)).formats(["csc"])
    sampler = NeighborSampler([-1] * chosen.layers if chosen.layers else list(FANOUT))
    seeds = seeds[: chosen.targets or None]
    prepared = time.perf_counter() - begin
    net = Sage(x.shape[1], int(y.max()) + 1, chosen.layers or len(FANOUT))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    times, spent, loss = [], [], torch.zeros(())
    for _ in range(chosen.epochs):
        begin, cpu = time.perf_counter(), time.process_time()
        for batch in seeds[torch.randperm(len(seeds))].split(BATCH):
            nodes, targets, blocks = sampler.sample_blocks(graph, batch)
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(blocks, x[nodes]), y[targets])
            loss.backward()
            optimizer.step()
        times.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
    versions = {"torch": torch.__version__, "dgl": dgl.__version__}
    found = {"times": times, "cpu": spent, "prep_s": prepared, "loss": float(loss.detach()), "versions": versions}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
