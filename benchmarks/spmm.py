"""One aggregation over a whole graph: sums of width 64, plain and weighted, and 4 x 64 attention with its gradients.

    python benchmarks/spmm.py --graph ppi.npz [--lib gnnflow|dgl] [--threads 2] [--repeats 30]
                              [--dtype float32|bfloat16|float16] [--bare]

The file holds edge_index [2, E] and train_mask [N]; edges with an end outside of the mask are left out. Inputs are made
beforehand; results are allocated by the library. dtype is that of the rows; weights and logits stay float32. gnnflow
computes under the settings of its training (memory that is freed is kept), or with --bare without them. Prints one JSON
line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

HEADS, WIDTH = 4, 64
Calls = dict[str, Callable[[], Any]]


def edges_of(file: str) -> tuple[Tensor, Tensor, int]:
    """Return sources and targets [E], ascending by target, and the number of nodes."""
    with np.load(file) as held:
        (source, target), mask = held["edge_index"], held["train_mask"]
    inside = mask[source] & mask[target]
    row = np.cumsum(mask) - 1
    source, target = row[source[inside]], row[target[inside]]
    order = np.lexsort((source, target))
    return torch.from_numpy(source[order]), torch.from_numpy(target[order]), int(mask.sum())


def calls_of_gnnflow(source: Tensor, target: Tensor, num_nodes: int, *, dtype: torch.dtype) -> Calls:
    """Return what is measured of this library."""
    from gnnflow.graph.arrays import offsets_of
    from gnnflow.kernels import Csr, softmax_sums, weighted_sum

    offsets = torch.from_numpy(offsets_of(np.bincount(target.numpy(), minlength=num_nodes)))
    csr = Csr(offsets, source, num_nodes)
    rows, weight = torch.randn(num_nodes, 1, WIDTH).to(dtype), torch.rand(len(source), 1)
    value = torch.randn(num_nodes, HEADS, WIDTH).to(dtype).requires_grad_()
    logit = torch.randn(len(source), HEADS, requires_grad=True)

    def attention() -> None:
        softmax_sums(csr, logit, value).mean.sum().backward()

    def forward() -> None:
        with torch.no_grad():
            softmax_sums(csr, logit, value)

    attention()
    return {
        "plain": lambda: weighted_sum(csr, None, rows),
        "weighted": lambda: weighted_sum(csr, weight, rows),
        "attention forward": forward,
        "attention": attention,
    }


def calls_of_dgl(source: Tensor, target: Tensor, num_nodes: int, *, dtype: torch.dtype) -> Calls:
    """Return the same of DGL, which takes one type for all operands; without its forward pass alone."""
    with contextlib.suppress(ImportError):
        import dgl_shim  # noqa: F401 - lets DGL's core run on a newer torch, where such a module is at hand
    import dgl

    graph = dgl.graph((source, target), num_nodes=num_nodes)
    graph.create_formats_()
    rows, weight = torch.randn(num_nodes, WIDTH).to(dtype), torch.rand(len(source)).to(dtype)
    value = torch.randn(num_nodes, HEADS, WIDTH).to(dtype).requires_grad_()
    logit = torch.randn(len(source), HEADS, 1).to(dtype).requires_grad_()

    def attention() -> None:
        share = dgl.ops.edge_softmax(graph, logit)
        dgl.ops.u_mul_e_sum(graph, value, share).sum().backward()

    attention()
    return {
        "plain": lambda: dgl.ops.copy_u_sum(graph, rows),
        "weighted": lambda: dgl.ops.u_mul_e_sum(graph, rows, weight),
        "attention": attention,
    }


def settings_of_training(threads: int) -> contextlib.AbstractContextManager[None]:
    """Return what training computes under."""
    from gnnflow.train.reproducible import compute_settings

    return compute_settings(threads)


def times_of(call: Callable[[], Any], *, repeats: int) -> list[float]:
    """Return the seconds of each call after the first three."""
    times = []
    for _ in range(3 + repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times[3:]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", required=True)
    parser.add_argument("--lib", choices=("gnnflow", "dgl"), default="gnnflow")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--bare", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    make = calls_of_gnnflow if chosen.lib == "gnnflow" else calls_of_dgl
    results = {}
    with contextlib.nullcontext() if chosen.bare or chosen.lib == "dgl" else settings_of_training(chosen.threads):
        for name, call in make(*edges_of(chosen.graph), dtype=getattr(torch, chosen.dtype)).items():
            times = times_of(call, repeats=chosen.repeats if name != "attention" else max(chosen.repeats // 5, 3))
            results[name] = {"times": times, "min": min(times), "median": statistics.median(times)}
    about = {"bench": "spmm", "lib": chosen.lib, "dtype": chosen.dtype, "threads": chosen.threads}
    print(json.dumps({**about, "results": results}))


if __name__ == "__main__":
    main()
