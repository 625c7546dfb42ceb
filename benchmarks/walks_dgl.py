"""DGL's random walks and a layer of message passing over what they find: what `walks.py` starts with DGL's interpreter.

    python benchmarks/walks_dgl.py FOLDER REPEATS WALKS LENGTH TOP_K THREADS

FOLDER holds src.npy and dst.npy. Prints one JSON line: seconds of each repeat for the walks from all nodes in batches
of 1024 (`walks`), and in one call (`walks_whole`), and for the weighted sum of 64 columns over what they found, forward
and backward (`layer`). Needs dgl and torch, and nothing of gnnflow.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("DGLBACKEND", "pytorch")
BATCH, WIDTH = 1024, 64


class _Nothing(types.ModuleType):
    """Stands for dgl.graphbolt, whose library is built for older versions of torch; walks do not use it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def main() -> None:
    """Measure."""
    sys.modules["dgl.graphbolt"] = _Nothing("dgl.graphbolt")
    import dgl
    import torch

    folder, numbers = Path(sys.argv[1]), [int(each) for each in sys.argv[2:]]
    repeats, walks, length, top_k, threads = numbers
    torch.set_num_threads(threads)
    src, dst = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("src", "dst"))
    num_nodes = int(max(src.max(), dst.max())) + 1
    # walks follow in-edges, which are the out-edges of the graph turned round
    graph = dgl.graph((dst, src), num_nodes=num_nodes)
    sampler = dgl.sampling.RandomWalkNeighborSampler(graph, length, 0.0, walks, top_k)
    sampler(torch.arange(BATCH))
    times: dict[str, list[float]] = {"walks": [], "walks_whole": [], "layer": []}
    for _ in range(repeats):
        order = torch.randperm(num_nodes)
        begin = time.perf_counter()
        for start in range(0, num_nodes, BATCH):
            sampler(order[start : start + BATCH])
        times["walks"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        found = sampler(torch.arange(num_nodes))
        times["walks_whole"].append(time.perf_counter() - begin)
        rows = torch.randn(num_nodes, WIDTH, requires_grad=True)
        weight = found.edata["weights"].float()
        begin = time.perf_counter()
        dgl.ops.u_mul_e_sum(found, rows, weight[:, None]).sum().backward()
        times["layer"].append(time.perf_counter() - begin)
    print(json.dumps({"times": times, "edges": found.num_edges(), "version": dgl.__version__}))


if __name__ == "__main__":
    main()
