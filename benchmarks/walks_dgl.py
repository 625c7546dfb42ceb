"""DGL's random walks and a layer of message passing over what they find: what `walks.py` starts with DGL's interpreter.

    python benchmarks/walks_dgl.py FOLDER REPEATS WALKS LENGTH TOP_K THREADS

FOLDER holds src.npy and dst.npy. Prints one JSON line: seconds of each repeat for the walks from all nodes in batches
of 1024 (`walks`), and in one call (`walks_whole`), and for the weighted sum of 64 columns over what they found, forward
and backward (`layer`). Needs dgl and torch, and nothing of gnnflow.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH, WIDTH, CLASSES = 1024, 64, 32


def epochs(graph: Any, weight: Any, repeats: int) -> list[float]:
    """Return the seconds of steps of PinSage of two layers and a linear head over all nodes."""
    import torch
    from dgl_shim import dgl

    torch.manual_seed(0)
    pools, maps = ([torch.nn.Linear(width, WIDTH) for _ in range(2)] for width in (WIDTH, 2 * WIDTH))
    head = torch.nn.Linear(WIDTH, CLASSES)
    parameters = [each for layer in (*pools, *maps, head) for each in layer.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    x, labels = torch.randn(graph.num_nodes(), WIDTH), torch.randint(0, CLASSES, (graph.num_nodes(),))
    total = dgl.ops.copy_e_sum(graph, weight[:, None]).clamp(min=1e-12)
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        h = x
        for pool, own in zip(pools, maps, strict=True):
            pooled = dgl.ops.u_mul_e_sum(graph, torch.relu(pool(h)), weight[:, None]) / total
            h = torch.nn.functional.normalize(torch.relu(own(torch.cat([h, pooled], 1))))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(h), labels).backward()
        optimizer.step()
        found.append(time.perf_counter() - begin)
    return found


def main() -> None:
    """Measure."""
    import torch
    from dgl_shim import dgl

    folder, numbers = Path(sys.argv[1]), [int(each) for each in sys.argv[2:]]
    repeats, walks, length, top_k, threads = numbers
    torch.set_num_threads(threads)
    src, dst = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("src", "dst"))
    num_nodes = int(max(src.max(), dst.max())) + 1
    # walks follow in-edges, which are the out-edges of the graph turned round
    graph = dgl.graph((dst, src), num_nodes=num_nodes)
    sampler = dgl.sampling.RandomWalkNeighborSampler(graph, length, 0.0, walks, top_k)
    sampler(torch.arange(BATCH))
    times: dict[str, list[float]] = {"walks": [], "walks_whole": [], "layer": [], "epoch": []}
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
        times["epoch"] += epochs(found, weight, 2)[1:]
    print(json.dumps({"times": times, "edges": found.num_edges(), "version": dgl.__version__}))


if __name__ == "__main__":
    main()
