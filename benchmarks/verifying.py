"""What verifying costs: the time a whole run spends on checksums and on bringing files to the disk, as a share of it.

    python benchmarks/verifying.py [--nodes 200000] [--edges 2000000]

One process does everything, so the times of the functions below add up. The checksums of Parquet pages, which Arrow
computes while it writes and reads, are not among them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnflow.config import config_from_dict
from gnnflow.datasets import write_payments
from gnnflow.mapreduce import exchange
from gnnflow.stages import pipeline
from gnnflow.storage import documents, verified

LIMIT = 0.03
VERIFYING = ((verified, "_digest"), (exchange, "_checksum"), (documents, "_checksum"))
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    chosen = parser.parse_args()
    for module, name in (*VERIFYING, (os, "fsync")):
        timed(module, name)
    with tempfile.TemporaryDirectory() as folder:
        write_payments(folder, num_nodes=chosen.nodes, num_edges=chosen.edges, seed=0)
        begin = time.perf_counter()
        pipeline.run_quietly(config_from_dict(config(Path(folder))))
        whole = time.perf_counter() - begin
    for label, seconds in sorted(spent.items(), key=lambda each: -each[1]):
        print(f"{label:24}{seconds:8.2f} s {seconds / whole:8.2%}")
    share = sum(spent.values()) / whole
    print(f"{'the run':24}{whole:8.2f} s; verifying and syncing take {share:.2%} of it (at most {LIMIT:.0%})")
    sys.exit(share > LIMIT)


def config(folder: Path) -> dict[str, Any]:
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


if __name__ == "__main__":
    main()
