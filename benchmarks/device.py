"""Speed of a GPU: sums compared with its copies, and epochs of mini-batch training compared with the CPU.

    python benchmarks/device.py [--targets 20000 --nodes 200000 --epochs 3] [--rows 1000000]

Sums: milliseconds, and the bytes per second that a sum must move at least (a row per edge, sources, coefficients,
sums), relative to a plain copy on the same GPU; above one if rows come from its cache. The reference kernel is timed
too. `piece`: sums without coefficients over graphs as large as pieces of a streamed one, replayed without
Python. Epochs: the least of those after the first, which compiles the kernels; the reference is the CPU on 8 threads;
`kept`: one batch of all targets, which stays on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from harness import Benchmark, Chosen, Option, run

from gnnflow.config import MiniBatchConfig, model_from_dict
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.sampling import Sampling
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import Shard
from gnnflow.kernels import TABLE, Csr, segment_max, softmax_sums, weighted_sum
from gnnflow.layers.model import ModelInputs, ModelSpec
from gnnflow.progress import Silent
from gnnflow.train.job import Shards, TrainJob
from gnnflow.train.minibatch import open_source
from gnnflow.train.trainer import train as train_job

PLAIN = next(kernel for kernel in TABLE if kernel.name == "reference")
CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": weighted_sum,
    "attention": lambda csr, factor, value: softmax_sums(csr, factor, value).mean,
    "maximum": lambda csr, _, value: segment_max(csr, None, value),
}
"""Kernels by what they compute; on a card the table takes the card's."""
PIECES = ((286_000, 1_500_000), (667_000, 4_000_000), (1_000_000, 10_000_000), (2_000_000, 100_000_000))
SHAPES = ((1, 8), (1, 32), (1, 64), (1, 256), (4, 64), (8, 8))
EPOCHS = (("sage", 64, "float32"), ("sage", 256, "float32"), ("gat", 256, "float32"), ("gat", 256, "bfloat16"))
WIDTH = 64  # of the features of the epochs
REPEATS, IN_A_ROW = 5, 5  # in a row, so that the GPU never waits
Row = tuple[Any, ...]


def seconds(function: Callable[[], object]) -> float:
    """Return the least seconds of five consecutive runs on the GPU, after two that compile."""
    for _ in range(2):
        function()
    least = float("inf")
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(IN_A_ROW):
            function()
        end.record()
        torch.cuda.synchronize()
        least = min(least, begin.elapsed_time(end) / 1e3 / IN_A_ROW)
    return least


def copy_seconds(size: int) -> tuple[float, int]:
    """Return the seconds of a copy of this many numbers on the GPU, and its bytes."""
    held = torch.empty(size, device="cuda")
    other = torch.empty_like(held)
    return seconds(lambda: other.copy_(held)), held.nbytes


def random_graph(num_nodes: int, degree: float, *, skewed: bool) -> Csr:
    """Return a graph on the GPU; skewed: in-degrees follow a power law."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(round(num_nodes * degree), generator=generator)
    targets = ((drawn**3 if skewed else drawn) * num_nodes).long().clamp_(max=num_nodes - 1).sort().values
    offsets = torch.searchsorted(targets, torch.arange(num_nodes + 1))
    sources = torch.randint(num_nodes, (len(targets),), generator=generator)
    return Csr(offsets.cuda(), sources.cuda(), num_nodes)


def moved_by(csr: Csr, factor: torch.Tensor, value: torch.Tensor) -> int:
    """Return the bytes that a weighted sum must move: a row, a source and coefficients per edge, sums per target."""
    heads, width = value.shape[1:]
    moved = csr.num_edges * (8 + 4 * heads + heads * width * value.element_size())
    return moved + csr.num_targets * (8 + 4 * heads * width)


def pieces(rate: float) -> Iterator[Row]:
    """Yield the sums of graphs as large as pieces of a streamed one, replayed, that is, without Python's time."""
    sums: Any = import_module("gnnflow.kernels.cuda.sums")  # the package has a function of that name
    for num_nodes, num_edges in PIECES:
        drawn = random_graph(num_nodes, num_edges / num_nodes, skewed=False)
        csr = replace(drawn, longest=int(drawn.degree.max()))
        for width in (8, 32, 64, 256):
            value = torch.randn(num_nodes, 1, width, device="cuda")
            moved = csr.num_edges * (8 + 4 * width) + csr.num_targets * (8 + 4 * width)
            took = seconds(captured(partial(sums.sums, csr, None, value)).replay)
            yield "piece", f"{num_nodes:,} nodes, {num_edges:,} edges", f"1x{width}", took * 1e3, moved / took / rate


def captured(function: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Return a function's work on the GPU, to be replayed without the function, after one run that compiles."""
    function()
    torch.cuda.synchronize()
    asked = torch.cuda.CUDAGraph()
    with torch.cuda.graph(asked):
        function()
    return asked


def kernels_over(csr: Csr, graph: str, rate: float) -> Iterator[Row]:
    """Yield the weighted sum, attention and the maximum over rows of each shape."""
    shapes = [(heads, width, torch.float32) for heads, width in SHAPES]
    for heads, width, dtype in [*shapes, (1, 64, torch.bfloat16)]:
        value = torch.randn(csr.num_sources, heads, width, device="cuda").to(dtype).requires_grad_()
        factor = torch.randn(csr.num_edges, heads, device="cuda").requires_grad_()
        rows_of = f"{heads}x{width} {str(dtype).removeprefix('torch.')}"
        for name, call in CALLS.items():
            moved = moved_by(csr, factor, value) - (csr.num_edges * 4 * heads if name == "maximum" else 0)
            forward, gradients = both_ways(partial(call, csr), factor, value)
            slow: tuple[float | None, ...] = (None, None)
            if name == "sum":
                slow = tuple(1e3 * each for each in both_ways(partial(PLAIN.weighted_sum, csr), factor, value))
            yield name, graph, rows_of, forward * 1e3, moved / forward / rate, gradients * 1e3, *slow


def both_ways(call: Callable[..., torch.Tensor], factor: torch.Tensor, value: torch.Tensor) -> tuple[float, float]:
    """Return the seconds of a call alone, and with the gradients of its operands."""
    held = factor.detach(), value.detach()

    def gradients() -> None:
        out = call(factor, value)
        torch.autograd.grad(out, [factor, value], torch.ones_like(out), allow_unused=True)

    return seconds(lambda: call(*held)), seconds(gradients)


def planted(num_nodes: int, degree: int, num_targets: int) -> Shard:
    """Return a graph of five classes that features partly reveal, as one shard."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 5, num_nodes)
    dense = rng.normal(0, 2, (num_nodes, WIDTH)).astype(np.float32)
    dense[:, :5] += np.eye(5, dtype=np.float32)[classes]
    sources = rng.integers(0, num_nodes, num_nodes * degree).astype(np.int32)
    in_degree = np.full(num_nodes, degree)
    out_degree = np.bincount(sources, minlength=num_nodes)
    neighborhood = Neighborhood(
        roots=np.arange(num_targets),
        node_ids=np.arange(num_nodes),
        degrees=Degrees(in_degree, out_degree, in_degree.astype(np.float32)),
        features=Features(WIDTH, dense=dense),
        edges=InEdges(offsets_of(in_degree), sources),
    )
    return Shard(neighborhood, np.arange(num_targets), np.arange(num_targets), classes[:num_targets])


def epoch_of(shard: Shard, chosen: Chosen, *, kind: str, hidden: int, **train: Any) -> float:
    """Return the least seconds of an epoch after the first."""
    heads = {"heads": 4} if kind == "gat" else {}
    settings = {"epochs": chosen.epochs, "cache": 1 << 34, "threads": 8 if train["device"] == "cpu" else 1}
    targets, nodes = len(shard.rows), shard.neighborhood.num_nodes
    job = TrainJob(
        model=ModelSpec(
            model_from_dict({"kind": kind, "hidden": hidden, "dropout": 0.1, **heads}), ModelInputs(WIDTH, 5)
        ),
        graph=Shards(
            "planted",
            [ShardEntry("train-0", "train", "shared", targets, nodes, nodes * chosen.degree, 1)],
            Sampling("uniform", (10, 10)),
        ),
        label_kind="single",
        num_classes=5,
        train=MiniBatchConfig.model_validate(settings | train),
        seed=0,
    )
    result = train_job(job, progress=Silent(), open_source=partial(open_source, read=lambda _: shard))
    return float(min(row["seconds"] for row in result.history[1:]))


def epochs(chosen: Chosen) -> Iterator[Row]:
    """Yield an epoch's milliseconds on the GPU, in batches and as one kept batch, and on the CPU."""
    shard = planted(chosen.nodes, chosen.degree, chosen.targets)
    for kind, hidden, precision in EPOCHS:
        keys: dict[str, Any] = {"kind": kind, "hidden": hidden, "precision": precision}
        slow, fast, kept = (
            1e3 * epoch_of(shard, chosen, device=device, batch_size=size, **keys)
            for device, size in (("cpu", 1024), ("cuda", 1024), ("cuda", chosen.targets))
        )
        yield f"epoch, {kind}", "batches of 1,024", f"{hidden} {precision}", None, None, fast, None, slow
        yield f"epoch, {kind}", "kept", f"{hidden} {precision}", None, None, kept, None, slow


def rows(chosen: Chosen) -> Iterator[Row]:
    """Yield the copy, the sums and the epochs."""
    took, gigabyte = copy_seconds(1 << 28)
    rate = 2 * gigabyte / took
    empty = (None,) * 3
    yield f"copy, {rate / 1e9:,.0f} GB/s", "", torch.cuda.get_device_name(), took * 1e3, 1.0, *empty
    for row in pieces(rate):
        yield (*row, *empty)
    for kind in ("uniform", "skewed"):
        yield from kernels_over(random_graph(chosen.rows, chosen.degree, skewed=kind == "skewed"), kind, rate)
    yield from epochs(chosen)


BENCH = Benchmark(
    columns=(
        "what",
        "graph",
        "rows",
        "ms",
        "of the copy",
        "with gradients ms",
        "reference ms",
        "reference with gradients ms",
    ),
    rows=rows,
    options={
        "nodes": Option(200_000, "of the shard of the epochs"),
        "degree": 10,
        "targets": 20_000,
        "epochs": 3,
        "rows": Option(1_000_000, "targets and sources of the graph of the sums"),
    },
    small={"nodes": 2_000, "targets": 1_000, "epochs": 2, "rows": 10_000},
    needs=("cuda",),
)


if __name__ == "__main__":
    run(BENCH)
