"""One aggregation over a whole graph: sums of width 64, plain, weighted and gated, and 4 x 64 attention.

    python benchmarks/spmm.py --graph ppi.npz [--lib gnnflow|dgl|torch|c] [--threads 2] [--repeats 30]
                              [--dtype float32|bfloat16|float16] [--bare] [--only plain,weighted]

Of attention and gates also with gradients. torch: a product with a sparse matrix in CSR form. c: a loop over the edges
in plain C with software prefetch, compiled for this machine, which is what the others are measured by; it needs gcc.

The file holds edge_index [2, E] and train_mask [N]; edges with an end outside of the mask are left out. Inputs are made
beforehand; results are allocated by the library. dtype is that of the rows; weights and logits stay float32. gnnflow
computes under the settings of its training (memory that is freed is kept), or with --bare without them. Prints one JSON
line.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

HEADS, WIDTH = 4, 64
FLOOR = """
#include <stdint.h>
#include <string.h>
void weighted(int64_t rows, const int32_t *offsets, const int32_t *sources, const float *weight, const float *from,
              float *out) {
#pragma omp parallel for schedule(dynamic, 64)
    for (int64_t row = 0; row < rows; row++) {
        float sum[64] = {0};
        for (int32_t i = offsets[row]; i < offsets[row + 1]; i++) {
            const float *value = from + (int64_t)sources[i] * 64;
            if (i + 16 < offsets[rows])
                for (int k = 0; k < 64; k += 16) __builtin_prefetch(from + (int64_t)sources[i + 16] * 64 + k);
            for (int k = 0; k < 64; k++) sum[k] += weight[i] * value[k];
        }
        memcpy(out + row * 64, sum, sizeof sum);
    }
}
"""
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
    from gnnflow.kernels import Csr, gated_sum, softmax_sums, weighted_sum

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

    halves = [torch.randn(num_nodes, WIDTH, requires_grad=True) for _ in range(3)]

    def gated() -> None:
        gated_sum(csr, *halves).sum().backward()

    attention()
    return {
        "plain": lambda: weighted_sum(csr, None, rows),
        "weighted": lambda: weighted_sum(csr, weight, rows),
        "attention forward": forward,
        "attention": attention,
        "gated": gated,
    }


def calls_of_dgl(source: Tensor, target: Tensor, num_nodes: int, *, dtype: torch.dtype) -> Calls:
    """Return the same of DGL, which takes one type for all operands; without its forward pass alone."""
    from dgl_shim import dgl

    graph = dgl.graph((source, target), num_nodes=num_nodes)
    graph.create_formats_()
    rows, weight = torch.randn(num_nodes, WIDTH).to(dtype), torch.rand(len(source)).to(dtype)
    value = torch.randn(num_nodes, HEADS, WIDTH).to(dtype).requires_grad_()
    logit = torch.randn(len(source), HEADS, 1).to(dtype).requires_grad_()

    def attention() -> None:
        share = dgl.ops.edge_softmax(graph, logit)
        dgl.ops.u_mul_e_sum(graph, value, share).sum().backward()

    own, other, passed = (torch.randn(num_nodes, WIDTH, requires_grad=True) for _ in range(3))

    def gated() -> None:
        gates = torch.sigmoid(dgl.ops.u_add_v(graph, other, own))
        dgl.ops.u_mul_e_sum(graph, passed, gates).sum().backward()

    attention()
    return {
        "plain": lambda: dgl.ops.copy_u_sum(graph, rows),
        "weighted": lambda: dgl.ops.u_mul_e_sum(graph, rows, weight),
        "attention": attention,
        "gated": gated,
    }


def calls_of_torch(source: Tensor, target: Tensor, num_nodes: int, *, dtype: torch.dtype) -> Calls:
    """Return the sums of torch's sparse matrices."""
    offsets = torch.searchsorted(target, torch.arange(num_nodes + 1))
    rows, weight = torch.randn(num_nodes, WIDTH).to(dtype), torch.rand(len(source)).to(dtype)
    warnings.simplefilter("ignore")  # that such matrices are in beta
    matrices = [torch.sparse_csr_tensor(offsets, source, each) for each in (torch.ones_like(weight), weight)]
    return {"plain": lambda: matrices[0] @ rows, "weighted": lambda: matrices[1] @ rows}


def calls_of_c(source: Tensor, target: Tensor, num_nodes: int, *, dtype: torch.dtype) -> Calls:
    """Return the weighted sum of a loop in C over 32-bit indices, of float32 rows."""
    assert dtype == torch.float32, "the loop is written for float32"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "floor"
        file.with_suffix(".c").write_text(FLOOR)
        flags = ("-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-fopenmp", "-shared", "-fPIC")
        subprocess.run(["gcc", *flags, "-o", file.with_suffix(".so"), file.with_suffix(".c")], check=True)  # noqa: S603, S607
        loop = ctypes.CDLL(str(file.with_suffix(".so"))).weighted
    offsets = torch.searchsorted(target, torch.arange(num_nodes + 1)).int()
    rows, weight = torch.randn(num_nodes, WIDTH), torch.rand(len(source))
    given = (offsets, source.int(), weight, rows, torch.empty_like(rows))
    # the tensors live as long as what reads them
    return {"weighted": lambda: loop(ctypes.c_int64(num_nodes), *(ctypes.c_void_p(each.data_ptr()) for each in given))}


LIBRARIES = {"gnnflow": calls_of_gnnflow, "dgl": calls_of_dgl, "torch": calls_of_torch, "c": calls_of_c}


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
    parser.add_argument("--lib", choices=tuple(LIBRARIES), default="gnnflow")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--only", help="names of calls; all by default")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    results, asked = {}, chosen.only.split(",") if chosen.only else None
    with contextlib.nullcontext() if chosen.bare or chosen.lib != "gnnflow" else settings_of_training(chosen.threads):
        for name, call in LIBRARIES[chosen.lib](*edges_of(chosen.graph), dtype=getattr(torch, chosen.dtype)).items():
            if asked is not None and name not in asked:
                continue
            many = chosen.repeats if name in {"plain", "weighted"} else max(chosen.repeats // 5, 3)
            times = times_of(call, repeats=many)
            results[name] = {"times": times, "min": min(times), "median": statistics.median(times)}
    about = {"bench": "spmm", "lib": chosen.lib, "dtype": chosen.dtype, "threads": chosen.threads}
    print(json.dumps({**about, "results": results}))


if __name__ == "__main__":
    main()
