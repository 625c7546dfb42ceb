"""The aggregation kernels side by side on one random bipartite block.

    python benchmarks/kernels.py --targets 20000 --sources 60000 --edges 200000 --repeats 9

Prints a Markdown table of milliseconds of processor time, which other programs on the machine disturb least: the best
of the repeats, which take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gnnflow.kernels import TABLE, Csr

KERNELS = {kernel.name: kernel for kernel in TABLE}
PLAIN, FUSED = KERNELS["reference"], KERNELS["fused"]
SHAPES = ((1, 16), (1, 64), (4, 16), (4, 64), (8, 16), (8, 64))  # heads, width of a head
Reduction = Callable[[Csr, Tensor, Tensor], Tensor]


def random_block(targets: int, sources: int, edges: int) -> Csr:
    """Return a block whose edges fall uniformly on targets and sources."""
    order = torch.randint(targets, (edges,)).sort().values
    offsets = torch.searchsorted(order, torch.arange(targets + 1))
    return Csr(offsets, torch.randint(sources, (edges,)), sources)


def by_sparse_matrix(csr: Csr, coefficient: Tensor, value: Tensor) -> Tensor:
    """Return the weighted sums as one product with a CSR matrix per head."""
    heads = range(value.shape[1])
    return torch.stack([csr.matrix(coefficient[:, h].contiguous()) @ value[:, h].contiguous() for h in heads], 1)


def by_segment_reduce(csr: Csr, coefficient: Tensor, value: Tensor) -> Tensor:
    """Return the weighted sums as a gather and a segment reduction."""
    messages = coefficient[:, :, None] * value[csr.sources]
    return torch.segment_reduce(messages, "sum", offsets=csr.offsets, unsafe=True)


def forward(reduction: Reduction, csr: Csr, coefficient: Tensor, value: Tensor) -> None:
    """Run the reduction alone."""
    with torch.no_grad():
        reduction(csr, coefficient, value)


def both_ways(reduction: Reduction, csr: Csr, coefficient: Tensor, value: Tensor) -> None:
    """Run a training step's share, with a fresh adjacency as every batch brings one."""
    fresh = Csr(csr.offsets, csr.sources, csr.num_sources)
    inputs = coefficient.detach().requires_grad_(), value.detach().requires_grad_()
    torch.autograd.grad(reduction(fresh, *inputs).sum(), inputs)


COLUMNS = {
    "sum: index_add": partial(forward, PLAIN.weighted_sum),
    "segment_reduce": partial(forward, by_segment_reduce),
    "CSR matmul": partial(forward, by_sparse_matrix),
    "fused": partial(forward, FUSED.weighted_sum),
    "sum and gradients: index_add": partial(both_ways, PLAIN.weighted_sum),
    "fused ": partial(both_ways, FUSED.weighted_sum),
    "max: scatter_reduce": partial(forward, PLAIN.segment_max),
    "fused  ": partial(forward, FUSED.segment_max),
}


def milliseconds(csr: Csr, coefficient: Tensor, value: Tensor, *, repeats: int) -> list[float]:
    """Return each column's best time."""
    best = dict.fromkeys(COLUMNS, float("inf"))
    for _ in range(repeats):
        for name, run in COLUMNS.items():
            started = time.process_time()
            run(csr, coefficient, value)
            best[name] = min(best[name], 1e3 * (time.process_time() - started))
    return list(best.values())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("targets", 20_000), ("sources", 60_000), ("edges", 200_000), ("repeats", 9), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    csr = random_block(args.targets, args.sources, args.edges)
    print("| H | D | a row per edge |", " | ".join(COLUMNS), "|")
    print("|--:|--:|--:|" + "--:|" * len(COLUMNS))
    for heads, width in SHAPES:
        coefficient, value = torch.randn(args.edges, heads), torch.randn(args.sources, heads, width)
        found = milliseconds(csr, coefficient, value, repeats=args.repeats)
        row = " | ".join(f"{taken:.1f}" for taken in found)
        print(f"| {heads} | {width} | {4 * args.edges * heads * width / 2**20:.0f} MiB | {row} |", flush=True)


if __name__ == "__main__":
    main()
