"""Three runs at once on one machine: how much slower each is than its share of it.

    python benchmarks/three_runs.py [--runs 3] [--nodes 20000] [--edges 200000] [--repeat 3]

The share of one of R runs is the machine divided by R, so it may take as long as R runs one after another: R times one
alone. Prints each run's time divided by that; the slowest of them must not exceed 1.2.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate = [
            "generate",
            "payments",
            "--out",
            str(folder),
            "--nodes",
            str(chosen.nodes),
            "--edges",
            str(chosen.edges),
        ]
        command = [sys.executable, "-m", "gnnflow.cli", *generate]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command line
        worst = []
        for number in range(chosen.repeat):
            (alone,) = together(folder, 1, f"alone-{number}")
            several = together(folder, chosen.runs, f"several-{number}")
            shares = [seconds / (chosen.runs * alone) for seconds in several]
            worst.append(max(shares))
            times = ", ".join(f"{seconds:.1f} s ({share:.2f})" for seconds, share in zip(several, shares, strict=True))
            print(f"alone {alone:.1f} s; {chosen.runs} at once {times}")
    figure = statistics.median(worst)
    print(f"{os.cpu_count()} cores; slowest of {chosen.runs} at {figure:.2f} of its share (at most {LIMIT})")
    sys.exit(figure > LIMIT)


def together(folder: Path, count: int, name: str) -> list[float]:
    """Start runs at the same moment, each in a workspace of its own, and return how long each took."""
    running = {}
    begin = time.monotonic()
    for number in range(count):
        file = folder / f"{name}-{number}.yaml"
        file.write_text(json.dumps(config(folder, f"{name}-{number}")))
        log = (folder / f"{name}-{number}.log").open("w")
        words = [sys.executable, "-m", "gnnflow.cli", "run", str(file), "--json"]
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


def config(folder: Path, name: str) -> dict[str, object]:
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


if __name__ == "__main__":
    main()
