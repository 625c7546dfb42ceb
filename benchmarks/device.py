"""What a graphics card gives: epochs of mini-batch training beside the CPU's, and the kernels beside the card's copies.

    python benchmarks/device.py --nodes 200000 --degree 10 --targets 20000 --epochs 3

Tables in Markdown. Epochs: seconds of each epoch after the first, which compiles the kernels, the least of them. Sums:
the bytes that a sum must move at least (a row per edge, sources, coefficients, sums) per second, over those of a plain
copy on the same card; above one where rows come from the card's cache. The reference kernel stands beside it, and the
maximum. Tiles: the same sum for other sizes of a program's tile, and for other lengths of pieces of targets of many
edges. Pieces: sums without coefficients over graphs of several sizes, replayed without Python.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch

from gnnflow.config import MiniBatchConfig, model_from_dict
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import Shard
from gnnflow.kernels import TABLE, Csr, segment_max, softmax_sums
from gnnflow.kernels.cuda import hubs
from gnnflow.layers.model import ModelInputs
from gnnflow.progress import Silent
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch import open_source
from gnnflow.train.trainer import train

KERNELS = {kernel.name: kernel for kernel in TABLE}
PIECES = ((286_000, 1_500_000), (667_000, 4_000_000), (1_000_000, 10_000_000), (2_000_000, 100_000_000))
REPEATS, IN_A_ROW = 5, 5  # in a row, so that the card waits for nobody
cuda_sums: Any = import_module("gnnflow.kernels.cuda.sums")  # the package has a function of that name


def seconds(function: Callable[[], object]) -> float:
    """Return the least seconds of a run on the card, of five one after the other, after two that compile."""
    for _ in range(2):
        function()
    least = float("inf")
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(IN_A_ROW):
            function()
        end.record()
        torch.cuda.synchronize()
        least = min(least, begin.elapsed_time(end) / 1e3 / IN_A_ROW)
    return least


def copy_rate() -> float:
    """Return the bytes per second, read and written, of a copy of a gigabyte on the card."""
    held = torch.empty(1 << 28, device="cuda")
    other = torch.empty_like(held)
    return 2 * held.nbytes / seconds(lambda: other.copy_(held))


def random_graph(num_nodes: int, degree: float, *, skewed: bool) -> Csr:
    """Return a graph on the card; skewed: in-degrees follow a power law."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(round(num_nodes * degree), generator=generator)
    targets = ((drawn**3 if skewed else drawn) * num_nodes).long().clamp_(max=num_nodes - 1).sort().values
    offsets = torch.searchsorted(targets, torch.arange(num_nodes + 1))
    sources = torch.randint(num_nodes, (len(targets),), generator=generator)
    return Csr(offsets.cuda(), sources.cuda(), num_nodes)


def print_sums(num_nodes: int, degree: int) -> None:
    """Print how near the kernels come to what the card copies."""
    rate = copy_rate()
    print(f"\nA copy on {torch.cuda.get_device_name()}: {rate / 1e9:,.0f} GB/s\n")
    print("| graph | rows | kernel | forward ms | of the copy | reference ms | with gradients ms | reference ms |")
    print("|---|---|---|---|---|---|---|---|")
    for skewed in (False, True):
        csr = random_graph(num_nodes, degree, skewed=skewed)
        for heads, width, dtype in (
            (1, 8, torch.float32),
            (1, 32, torch.float32),
            (1, 64, torch.float32),
            (1, 64, torch.bfloat16),
            (1, 256, torch.float32),
            (4, 64, torch.float32),
            (8, 8, torch.float32),
        ):
            value = torch.randn(num_nodes, heads, width, device="cuda").to(dtype).requires_grad_()
            factor = torch.randn(csr.num_edges, heads, device="cuda").requires_grad_()
            print_row(csr, factor, value, rate, graph="skewed" if skewed else "uniform")


def moved_by(csr: Csr, factor: torch.Tensor, value: torch.Tensor) -> int:
    """Return the bytes that a weighted sum must move: a row, a source and coefficients per edge, sums per target."""
    heads, width = value.shape[1:]
    moved = csr.num_edges * (8 + 4 * heads + heads * width * value.element_size())
    return moved + csr.num_targets * (8 + 4 * heads * width)


def print_pieces() -> None:
    """Print the sums of graphs as large as pieces of a streamed one, replayed: Python's part is left out."""
    rate, columns = copy_rate(), (8, 32, 64, 256)
    names = " | ".join(f"{each} columns us, of the copy" for each in columns)
    print(f"\n| targets and sources | edges | {names} |")
    print("|---|---|" + "---|" * len(columns))
    for num_nodes, num_edges in PIECES:
        drawn, cells = random_graph(num_nodes, num_edges / num_nodes, skewed=False), []
        csr = replace(drawn, longest=int(drawn.degree.max()))
        for width in columns:
            value = torch.randn(num_nodes, 1, width, device="cuda")
            moved = csr.num_edges * (8 + 4 * width) + csr.num_targets * (8 + 4 * width)
            asked = captured(partial(cuda_sums.sums, csr, None, value))
            took = seconds(asked.replay)
            cells.append(f"{took * 1e6:,.0f}, {moved / took / rate:.0%}")
        print(f"| {num_nodes:,} | {csr.num_edges:,} | " + " | ".join(cells) + " |", flush=True)


def captured(function: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Return what a function asks of the card, to be asked again without it; after one run that compiles."""
    function()
    torch.cuda.synchronize()
    asked = torch.cuda.CUDAGraph()
    with torch.cuda.graph(asked):
        function()
    return asked


def print_row(csr: Csr, factor: torch.Tensor, value: torch.Tensor, rate: float, *, graph: str) -> None:
    """Print a line each for the weighted sum, attention and the maximum."""
    heads, width = value.shape[1:]
    moved = moved_by(csr, factor, value)
    rows = f"{heads}x{width} {str(value.dtype).removeprefix('torch.')}"
    ours, plain = KERNELS["cuda"], KERNELS["reference"]
    detached = factor.detach(), value.detach()

    def gradients(kernel: object) -> None:
        out = kernel.weighted_sum(csr, factor, value)  # type: ignore[attr-defined]
        torch.autograd.grad(out, [factor, value], torch.ones_like(out))

    def attention(*, backward: bool) -> None:
        found = softmax_sums(csr, factor, value).mean
        if backward:
            torch.autograd.grad(found, [factor, value], torch.ones_like(found))

    forward = seconds(lambda: ours.weighted_sum(csr, *detached))
    slow = seconds(lambda: plain.weighted_sum(csr, *detached))
    both, slow_both = seconds(lambda: gradients(ours)), seconds(lambda: gradients(plain))
    share = moved / forward / rate
    print(
        f"| {graph} | {rows} | sum | {forward * 1e3:.2f} | {share:.0%} | {slow * 1e3:.2f} "
        f"| {both * 1e3:.2f} | {slow_both * 1e3:.2f} |"
    )
    forward, both = seconds(lambda: attention(backward=False)), seconds(lambda: attention(backward=True))
    print(
        f"| {graph} | {rows} | attention | {forward * 1e3:.2f} | {moved / forward / rate:.0%} | | {both * 1e3:.2f} | |"
    )
    moved -= csr.num_edges * 4 * heads  # no coefficients

    def largest(*, backward: bool) -> None:
        found = segment_max(csr, None, value)
        if backward:
            torch.autograd.grad(found, value, torch.ones_like(found))

    forward, both = seconds(lambda: largest(backward=False)), seconds(lambda: largest(backward=True))
    print(
        f"| {graph} | {rows} | maximum | {forward * 1e3:.2f} | {moved / forward / rate:.0%} | | {both * 1e3:.2f} | |",
        flush=True,
    )


@contextmanager
def tiles(times: float, longest: int) -> Iterator[None]:
    """Compute sums with tiles of so many times the targets, and pieces of so many edges."""
    tile, before = cuda_sums.Tile, (cuda_sums.Tile.added, hubs._LONGEST)  # noqa: SLF001 - what is compared
    tile.added = staticmethod(lambda *shape: resized(before[0](*shape), times))
    hubs._LONGEST = longest  # noqa: SLF001
    try:
        yield
    finally:
        tile.added, hubs._LONGEST = staticmethod(before[0]), before[1]  # noqa: SLF001


def resized(tile: Any, times: float) -> Any:
    """Return a tile of so many times the targets, one at least."""
    return tile._replace(rows=max(1, int(tile.rows * times)))


def print_tiles(num_nodes: int, degree: int) -> None:
    """Print what share of the copy's bytes sums move for other tiles, and for other lengths of pieces."""
    shapes, rate = ((1, 8), (1, 64), (4, 64), (8, 8)), copy_rate()
    names = " | ".join(f"{heads}x{width}" for heads, width in shapes)
    print(f"\n| graph | times the targets | edges of a piece | {names} |")
    print("|---|---|---|" + "---|" * len(shapes))
    graphs = {kind: random_graph(num_nodes, degree, skewed=kind == "skewed") for kind in ("uniform", "skewed")}
    for kind, times, longest in (
        *(("uniform", times, 512) for times in (0.5, 1, 2, 4)),
        *(("skewed", 1, longest) for longest in (128, 256, 512, 1024)),
    ):
        graph, cells = graphs[kind], []
        csr = Csr(graph.offsets, graph.sources, graph.num_sources)  # whose pieces are of this length
        for heads, width in shapes:
            value = torch.randn(num_nodes, heads, width, device="cuda")
            factor = torch.randn(csr.num_edges, heads, device="cuda")
            with tiles(times, longest):
                took = seconds(partial(cuda_sums.sums, csr, factor, value))
            cells.append(f"{moved_by(csr, factor, value) / took / rate:.0%}")
        print(f"| {kind} | {times} | {longest} | " + " | ".join(cells) + " |", flush=True)


def planted(num_nodes: int, degree: int, num_targets: int, *, width: int = 64) -> Shard:
    """Return a graph of five classes that features tell in part, as one shard."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 5, num_nodes)
    dense = rng.normal(0, 2, (num_nodes, width)).astype(np.float32)
    dense[:, :5] += np.eye(5, dtype=np.float32)[classes]
    sources = rng.integers(0, num_nodes, num_nodes * degree).astype(np.int32)
    in_degree = np.full(num_nodes, degree)
    out_degree = np.bincount(sources, minlength=num_nodes)
    neighborhood = Neighborhood(
        roots=np.arange(num_targets),
        node_ids=np.arange(num_nodes),
        degrees=Degrees(in_degree, out_degree, in_degree.astype(np.float32)),
        features=Features(width, dense=dense),
        edges=InEdges(offsets_of(in_degree), sources),
    )
    return Shard(neighborhood, np.arange(num_targets), np.arange(num_targets), classes[:num_targets])


def print_epochs(num_nodes: int, degree: int, num_targets: int, epochs: int) -> None:
    """Print an epoch's seconds on the CPU and on the card."""
    shard = planted(num_nodes, degree, num_targets)
    assert isinstance(shard.neighborhood.features, Features)
    entry = ShardEntry("train-0", "train", "shared", num_targets, num_nodes, num_nodes * degree, 1)
    print(f"\n{num_nodes:,} nodes, {num_nodes * degree:,} edges, {num_targets:,} targets, batches of 1,024\n")
    print("| model | precision | hidden | cpu s | cuda s | cuda, batches kept s |")
    print("|---|---|---|---|---|---|")
    for kind, hidden, precision in (
        ("sage", 64, "float32"),
        ("sage", 256, "float32"),
        ("gat", 256, "float32"),
        ("gat", 256, "bfloat16"),
    ):
        cells = []
        for device, batch_size in (("cpu", 1024), ("cuda", 1024), ("cuda", num_targets)):
            model = model_from_dict(
                {"kind": kind, "hidden": hidden, "dropout": 0.1, **({"heads": 4} if kind == "gat" else {})}
            )
            settings = {"epochs": epochs, "batch_size": batch_size, "device": device, "cache": 1 << 34}
            threads = 8 if device == "cpu" else 1
            job = TrainJob(
                artifact="planted",
                entries=[entry],
                fanouts=(10, 10),
                model=model,
                inputs=ModelInputs(shard.neighborhood.features.width, 5),
                label_kind="single",
                num_classes=5,
                train=MiniBatchConfig.model_validate({**settings, "precision": precision, "threads": threads}),
                seed=0,
            )
            opened = partial(open_source, read=lambda _: shard)
            result = train(job, progress=Silent(), open_source=opened)
            cells.append(f"{min(row['seconds'] for row in result.history[1:]):.2f}")
        print(f"| {kind} | {precision} | {hidden} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--degree", type=int, default=10)
    parser.add_argument("--targets", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000, help="targets and sources of the graph of the sums")
    options = parser.parse_args()
    begin = time.monotonic()
    print_pieces()
    print_sums(options.rows, options.degree)
    print_tiles(options.rows, options.degree)
    print_epochs(options.nodes, options.degree, options.targets, options.epochs)
    print(f"\n{time.monotonic() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
