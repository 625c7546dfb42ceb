"""Whole runs: the share of verifying and syncing, and the slowdown of three runs at once.

    python benchmarks/runs.py [--nodes 200000 --edges 2000000] [--at-once 3] [--repeats 3]

Verifying: checksums, and syncing files to the disk, of a run of payments in one process, where the times of these
functions add up; they exclude the checksums of Parquet pages, which Arrow computes while it writes and reads. At most
3 % of the run. At once: each of R runs gets 1 / R of the machine, so it may take as long as R runs one after another.
The slowest must not exceed 1.2 times that, by the median of the repeats; these runs have a tenth of the nodes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import Benchmark, Chosen, Option, folder_of, run

from gnnflow.config import config_from_dict
from gnnflow.datasets import write_payments
from gnnflow.mapreduce import exchange
from gnnflow.stages import pipeline
from gnnflow.storage import documents, verified

VERIFYING_LIMIT, SHARE_LIMIT = 0.03, 1.2
VERIFYING = ((verified, "_digest"), (exchange, "_checksum"), (documents, "digest_of"), (os, "fsync"))
spent: dict[str, float] = defaultdict(float)


def timed(module: Any, name: str) -> None:
    """Let a module's function add its seconds to `spent`."""
    original: Callable[..., Any] = getattr(module, name)
    label = f"{module.__name__.rsplit('.', 1)[-1]}.{name}"

    def call(*given: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return original(*given, **options)
        finally:
            spent[label] += time.perf_counter() - begin

    setattr(module, name, call)


def large_run(folder: Path) -> dict[str, Any]:
    """Return a run in this process on the generated graph."""
    return {
        "name": "verifying",
        "workspace": str(folder / "runs"),
        "graph": {"nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges")},
        "neighbors": {"sampling": {"kind": "uniform", "fanout": [10, 5]}},
        "model": {"kind": "sage", "hidden": 32},
        "train": {"epochs": 3},
        "cluster": {"kind": "synchronous"},
    }


def together(folder: Path, count: int, name: str) -> list[float]:
    """Start runs at the same moment, each in a separate workspace, and return the seconds of each."""
    running = {}
    begin = time.monotonic()
    for number in range(count):
        file = folder / f"{name}-{number}.yaml"
        file.write_text(json.dumps(small_run(folder, f"{name}-{number}")))
        log = (folder / f"{name}-{number}.log").open("w")
        words = [sys.executable, "-m", "gnnflow", "run", str(file), "--json"]
        running[number] = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)  # noqa: S603 - as above
    took: dict[int, float] = {}
    while len(took) < count:
        for number, process in running.items():
            if number not in took and process.poll() is not None:
                took[number] = time.monotonic() - begin
                if process.returncode:
                    sys.exit((folder / f"{name}-{number}.log").read_text())
        time.sleep(0.05)
    return [took[number] for number in range(count)]


def small_run(folder: Path, name: str) -> dict[str, object]:
    """Return the quickstart's config on the generated graph."""
    return {
        "name": name,
        "workspace": str(folder / name),
        "graph": {
            "nodes": str(folder / "nodes.parquet"),
            "edges": str(folder / "edges"),
            "edge_features": ["amount", "hour_sin", "hour_cos"],
            "normalize": "standard",
            "partitions": 4,
        },
        "neighbors": {"sampling": {"kind": "uniform", "fanout": [10, 5]}},
        "model": {"kind": "gat_e", "hidden": 16, "heads": 4, "dropout": 0.1},
        "train": {"epochs": 5, "batch_size": 256},
        "cluster": {"kind": "local", "workers": 2, "memory_limit": "2GiB"},
    }


def verifying(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the share of verifying in a run, by function and in all."""
    for module, name in VERIFYING:
        timed(module, name)
    with folder_of("") as folder:
        write_payments(str(folder), num_nodes=chosen.nodes, num_edges=chosen.edges, seed=0)
        begin = time.perf_counter()
        pipeline.run_quietly(config_from_dict(large_run(folder)))
        whole = time.perf_counter() - begin
    for label, seconds in sorted(spent.items(), key=lambda each: -each[1]):
        yield label, seconds, seconds / whole, None, ""
    share = sum(spent.values()) / whole
    verdict = "FAIL" if share > VERIFYING_LIMIT and not chosen.small else ""
    yield "verifying in a run", whole, share, VERIFYING_LIMIT, verdict


def at_once(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the slowest of several runs at once, relative to the same runs one after another."""
    with folder_of("") as folder:
        write_payments(str(folder), num_nodes=chosen.nodes // 10, num_edges=chosen.edges // 10, seed=0)
        shares = []
        for number in range(chosen.repeats):
            (alone,) = together(folder, 1, f"alone-{number}")
            slowest = max(together(folder, chosen.at_once, f"several-{number}"))
            shares.append(slowest / (chosen.at_once * alone))
            yield f"alone, {chosen.at_once} at once", alone, shares[-1], None, ""
    verdict = "FAIL" if statistics.median(shares) > SHARE_LIMIT and not chosen.small else ""
    yield f"slowest of {chosen.at_once} at once", slowest, statistics.median(shares), SHARE_LIMIT, verdict


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield verifying, then runs at once."""
    yield from verifying(chosen)
    yield from at_once(chosen)


BENCH = Benchmark(
    columns=("what", "seconds", "share", "at most", "verdict"),
    rows=rows,
    options={"nodes": 200_000, "edges": 2_000_000, "at_once": Option(3, "runs"), "repeats": 3},
    small={"nodes": 5_000, "edges": 20_000, "at_once": 2, "repeats": 1},
)


if __name__ == "__main__":
    run(BENCH)
