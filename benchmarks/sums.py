"""One aggregation of 64 columns over graphs from sparse to dense: gnnflow, DGL, torch and C (NGra, figure 13).

    python benchmarks/sums.py [--nodes 10000] [--percent 0.01,0.1,1,10] [--dgl PYTHON] [--plot densities.png]
    python benchmarks/sums.py --graph ppi.npz [--dtype bfloat16] [--bare]

Sums, plain, weighted and gated (with gradients), and attention of 4 x 64, also with gradients. A graph of n nodes has
density x n x n edges with ends drawn alike; or --graph names an .npz file with edge_index [2, E] and train_mask [N],
whose edges with an end outside of the mask are omitted. torch: a product with a sparse matrix in CSR form. c: a loop
over the edges in plain C with software prefetch, compiled for this machine, the reference for the others; it needs
gcc. Each library computes in a separate process. Inputs are made beforehand; results are allocated by the library.
--dtype is for the rows; weights and logits stay float32. gnnflow computes under the settings of its training (freed
memory is kept), or with --bare without them.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import statistics
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import DGL, PLOT, Benchmark, Chosen, Found, Option, cell, draw_lines, run, seconds_of
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


def edges_of(chosen: Chosen) -> tuple[Tensor, Tensor, int]:
    """Return sources and targets [E], ascending by target, and the number of nodes."""
    if chosen.graph:
        with np.load(chosen.graph) as held:
            (source, target), mask = held["edge_index"], held["train_mask"]
        inside = mask[source] & mask[target]
        row = np.cumsum(mask) - 1
        source, target, nodes = row[source[inside]], row[target[inside]], int(mask.sum())
    else:
        nodes, number = chosen.nodes, round(chosen.density / 100 * chosen.nodes**2)
        source, target = np.random.default_rng(0).integers(0, nodes, (2, number))
    order = np.lexsort((source, target))
    return torch.from_numpy(source[order]), torch.from_numpy(target[order]), nodes


def calls_of_gnnflow(source: Tensor, target: Tensor, num_nodes: int, *, dtype: torch.dtype) -> Calls:
    """Return the measured calls of this library."""
    from gnnflow.graph.arrays import offsets_of
    from gnnflow.kernels import Csr, gated_sum, softmax_sums, weighted_sum

    offsets = torch.from_numpy(offsets_of(np.bincount(target.numpy(), minlength=num_nodes)))
    csr = Csr(offsets, source, num_nodes)
    rows, weight = torch.randn(num_nodes, 1, WIDTH).to(dtype), torch.rand(len(source), 1)
    value = torch.randn(num_nodes, HEADS, WIDTH).to(dtype).requires_grad_()
    logit = torch.randn(len(source), HEADS, requires_grad=True)

    def attention() -> None:
        softmax_sums(csr, logit, value).mean.sum().backward()  # type: ignore[no-untyped-call]

    def forward() -> None:
        with torch.no_grad():
            softmax_sums(csr, logit, value)

    halves = [torch.randn(num_nodes, WIDTH, requires_grad=True) for _ in range(3)]

    def gated() -> None:
        gated_sum(csr, *halves).sum().backward()  # type: ignore[no-untyped-call]

    attention()
    return {
        "plain": lambda: weighted_sum(csr, None, rows),
        "weighted": lambda: weighted_sum(csr, weight, rows),
        "attention forward": forward,
        "attention": attention,
        "gated": gated,
    }


def calls_of_dgl(source: Tensor, target: Tensor, num_nodes: int, *, dtype: torch.dtype) -> Calls:
    """Return the same calls of DGL, which takes one type for all operands; without the forward pass alone."""
    from peers import dgl_module

    dgl = dgl_module()

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
    warnings.simplefilter("ignore")  # such matrices are in beta
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
    # the tensors live as long as the calls that read them
    return {"weighted": lambda: loop(ctypes.c_int64(num_nodes), *(ctypes.c_void_p(each.data_ptr()) for each in given))}


LIBRARIES = {"gnnflow": calls_of_gnnflow, "dgl": calls_of_dgl, "torch": calls_of_torch, "c": calls_of_c}


def settings_of_training(threads: int) -> contextlib.AbstractContextManager[None]:
    """Return the settings that training computes under."""
    from gnnflow.train.reproducible import compute_settings

    return compute_settings(threads)


def measured(chosen: Chosen) -> Found:
    """Return the seconds of each call of one library in this process."""
    torch.set_num_threads(chosen.threads)
    is_bare, results = chosen.bare or chosen.lib != "gnnflow", {}
    with contextlib.nullcontext() if is_bare else settings_of_training(chosen.threads):
        source, target, nodes = edges_of(chosen)
        for name, call in LIBRARIES[chosen.lib](source, target, nodes, dtype=getattr(torch, chosen.dtype)).items():
            many = chosen.repeats if name in {"plain", "weighted"} else max(chosen.repeats // 5, 3)
            results[name] = seconds_of(call, repeats=many, warmup=3)
    return {"edges": len(source), "times": results}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the milliseconds of each operation and library by density."""
    libraries = {"gnnflow": "", "dgl": chosen.dgl, "torch": "", "c": ""}
    if chosen.dtype != "float32" or not shutil.which("gcc"):
        del libraries["c"]
    percents = [0.0] if chosen.graph else [float(each) for each in chosen.percent.split(",")]
    lines: dict[str, list[float]] = {}
    for percent in percents:
        ran: dict[str, Found] = {}
        for name, python in libraries.items():
            if python or name != "dgl":
                ran[name] = cell(chosen, "sums", python=python, threads=chosen.threads, lib=name, density=percent)
        floor = min(ran["c" if "c" in ran else "gnnflow"]["times"]["weighted"])
        for name, found in ran.items():
            lines.setdefault("C loop" if name == "c" else name, []).append(1e3 * min(found["times"]["weighted"]))
            for operation, times in found["times"].items():
                best, of_floor = min(times), min(times) / floor if operation in {"plain", "weighted"} else None
                yield (
                    chosen.graph or percent,
                    found["edges"],
                    operation,
                    name,
                    1e3 * best,
                    1e3 * statistics.median(times),
                    of_floor,
                )
    if chosen.plot:
        drawn = {name: (percents, each) for name, each in lines.items()}
        labels = {"x_label": "edges in 100 pairs of nodes", "y_label": "milliseconds per weighted sum, 64 columns"}
        draw_lines(chosen.plot, drawn, **labels, logarithmic="xy", dashed="C loop")


BENCH = Benchmark(
    columns=("density, %, or graph", "edges", "operation", "library", "min ms", "median ms", "x C loop"),
    rows=rows,
    options={
        "graph": Option("", "an .npz file in place of random graphs"),
        "nodes": 10_000,
        "percent": "0.01,0.03,0.1,0.3,1,3,10",
        "dtype": Option("float32", choices=("float32", "bfloat16", "float16")),
        "bare": Option(default=False, help="without the settings of training"),
        "dgl": DGL,
        "threads": 2,
        "repeats": 15,
        "plot": PLOT,
    },
    small={"nodes": 500, "percent": "1", "repeats": 2},
    cells={"sums": measured},
)


if __name__ == "__main__":
    run(BENCH)
