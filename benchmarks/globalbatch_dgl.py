"""DGL's GCN over a whole graph: what `globalbatch.py` starts with DGL's interpreter.

    python benchmarks/globalbatch_dgl.py FOLDER LAYERS --threads N --repeats N

Prints one JSON line: the seconds of each epoch after the first. Needs dgl and torch, and nothing of gnnflow.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

DROPOUT = 0.5


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("layers", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    chosen = parser.parse_args()
    import torch
    from dgl_shim import dgl
    from torch.nn import functional

    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    held = {name: np.load(chosen.folder / f"{name}.npy") for name in ("offsets", "sources", "x", "y", "train")}
    targets = np.repeat(np.arange(len(held["y"])), np.diff(held["offsets"]))
    graph = dgl.graph((torch.from_numpy(held["sources"]), torch.from_numpy(targets)), num_nodes=len(held["y"]))
    graph = dgl.add_self_loop(graph)
    graph.create_formats_()
    widths = [held["x"].shape[1], *[chosen.hidden] * (chosen.layers - 1), int(held["y"].max()) + 1]
    layers = torch.nn.ModuleList(dgl.nn.GraphConv(*pair, norm="both") for pair in pairwise(widths))
    x, y, rows = (torch.from_numpy(each) for each in (held["x"], held["y"], np.flatnonzero(held["train"])))
    optimizer, times = torch.optim.Adam(layers.parameters(), lr=0.01), []
    for _ in range(chosen.repeats + 1):
        begin = time.perf_counter()
        h = x
        for number, layer in enumerate(layers):
            h = layer(graph, functional.dropout(h, DROPOUT))
            h = functional.relu(h) if number + 1 < len(layers) else h
        loss = functional.cross_entropy(h[rows], y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"times": times[1:], "loss": float(loss.detach()), "dgl": dgl.__version__}))


if __name__ == "__main__":
    main()
