"""Forecasts of `gnnflow plan` against real costs: each config is planned, then run, in a new workspace.

    python benchmarks/plan.py --nodes 1000000 --edges 12000000
    python benchmarks/plan.py --config configs/cora.yaml --set "train.epochs=50"

Without --config the graph is generated and 10 and 5 neighbours are sampled. Time is for the whole command, bytes
are for all artifacts, memory is for the largest process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Benchmark, Chosen, Found, Option, folder_of, run, tell

from gnnflow.datasets.power_law import write_power_law
from gnnflow.stages.rehearsal import PeakMemory
from gnnflow.storage.manifest import read_manifest

_COMMAND = [sys.executable, "-m", "gnnflow"]
_POWER_LAW = """
name: power-law
graph: {{nodes: {nodes}, edges: {edges}, features: [x], partitions: 8}}
neighbors: {{sampling: {{kind: uniform, fanout: [10, 5]}}}}
model: {{kind: gcn, hidden: 64, layers: 2}}
train: {{strategy: mini-batch, epochs: 3, batch_size: 512}}
cluster: {{kind: local, workers: 2, memory_limit: 4GiB}}
"""


def _generated(folder: str, *, nodes: int, edges: int) -> str:
    node_table, edge_table = write_power_law(f"{folder}/graph", num_nodes=nodes, num_edges=edges)
    config = Path(folder, "power-law.yaml")
    config.write_text(_POWER_LAW.format(nodes=node_table, edges=edge_table))
    return str(config)


def _run(command: str, *arguments: str) -> tuple[Found, float, int]:
    """Return a command's output, its seconds, and the peak bytes of its largest process."""
    begin = time.monotonic()
    with PeakMemory() as peak:
        command_line = [*_COMMAND, command, *arguments]
        done = subprocess.run(command_line, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
    if done.returncode:
        sys.exit(f"gnnflow {command} ended with {done.returncode}")
    return json.loads(done.stdout), time.monotonic() - begin, peak.worker


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield for each stage, and for all, the forecast, the real cost, and their ratio."""
    with folder_of("") as folder:
        config = chosen.config or _generated(str(folder), nodes=chosen.nodes, edges=chosen.edges)
        options = ["--workspace", f"{folder}/runs", "--json"]
        limit = ["--seconds", str(chosen.seconds)] if chosen.seconds else []
        options += [part for each in chosen.set.split(";") if each.strip() for part in ("--set", each.strip())]
        planned, took, _ = _run("plan", config, *limit, *options)
        found, seconds, memory = _run("run", config, *options)
        written = {name: read_manifest(stage["artifact"]).num_bytes for name, stage in found["stages"].items()}
        pairs = [("all", "seconds", planned["seconds"], seconds), ("all", "memory MiB", planned["memory"], memory)]
        pairs.append(("all", "artifacts MiB", planned["num_bytes"], sum(written.values())))
        for name, figures in planned["stages"].items():
            if name in found["stages"]:
                pairs.append((name, "seconds", figures["seconds"], found["stages"][name]["seconds"]))
                pairs.append((name, "artifacts MiB", figures["num_bytes"], written[name]))
    for warning in planned["warnings"]:
        tell(f"beware: {warning}")
    tell(f"planned in {took:.1f} s, on 1/{' and 1/'.join(map(str, planned['one_in']))} of the nodes")
    for name, what, guess, real in pairs:
        unit = 1 << 20 if what.endswith("MiB") else 1
        yield name, what, guess / unit, real / unit, guess / real if real else None


BENCH = Benchmark(
    columns=("stage", "what", "planned", "took", "planned / took"),
    rows=rows,
    options={
        "config": Option("", "a YAML file"),
        "nodes": 300_000,
        "edges": 3_000_000,
        "set": Option("", "KEY=VALUE of the config, several separated by ';'"),
        "seconds": Option(0.0, "that rehearsing may take; 0 for what plan takes by itself"),
    },
    small={"nodes": 2_000, "edges": 20_000, "seconds": 5.0, "set": "cluster={kind: synchronous}; train.epochs=1"},
)


if __name__ == "__main__":
    run(BENCH)
