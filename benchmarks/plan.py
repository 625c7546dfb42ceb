"""What `gnnflow plan` says of runs beside what they then take: each config is planned, then run, in a new workspace.

    python benchmarks/plan.py --graph power-law --nodes 1000000 --edges 12000000
    python benchmarks/plan.py --config configs/cora.yaml --set train.epochs=50

Time is that of the whole command, bytes those of all artifacts, memory that of the largest process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gnnflow.datasets.power_law import write_power_law
from gnnflow.report.formats import bytes_text, seconds_text
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


def main() -> None:
    """Print, of each stage and of all, what was planned, what it took, and the ratio of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="a YAML file")
    parser.add_argument("--graph", choices=["power-law"], help="a generated graph instead, sampled 10 and 5 neighbours")
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--edges", type=int, default=3_000_000)
    parser.add_argument("--set", action="append", default=[], dest="sets", help="KEY=VALUE, as of gnnflow")
    parser.add_argument("--seconds", type=float, default=60.0, help="that rehearsing may take")
    chosen = parser.parse_args()
    if bool(chosen.config) == bool(chosen.graph):
        parser.error("name a --config or a --graph")
    with tempfile.TemporaryDirectory() as folder:
        config = chosen.config or _generated(folder, nodes=chosen.nodes, edges=chosen.edges)
        options = ["--workspace", f"{folder}/runs", "--json"]
        options += [part for each in chosen.sets for part in ("--set", each)]
        planned, took, _ = _run("plan", config, "--seconds", str(chosen.seconds), *options)
        found, seconds, memory = _run("run", config, *options)
        _show(planned, found, seconds, memory)
        print(f"planned in {seconds_text(took)}, on 1/{' and 1/'.join(map(str, planned['one_in']))} of the nodes")


def _generated(folder: str, *, nodes: int, edges: int) -> str:
    node_table, edge_table = write_power_law(f"{folder}/graph", num_nodes=nodes, num_edges=edges)
    config = Path(folder, "power-law.yaml")
    config.write_text(_POWER_LAW.format(nodes=node_table, edges=edge_table))
    return str(config)


def _run(command: str, *arguments: str) -> tuple[dict[str, Any], float, int]:
    """Return what a command printed, how long it took, and the most bytes of memory that one of its processes had."""
    begin = time.monotonic()
    with PeakMemory() as peak:
        command_line = [*_COMMAND, command, *arguments]
        done = subprocess.run(command_line, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
    if done.returncode:
        sys.exit(f"gnnflow {command} ended with {done.returncode}")
    return json.loads(done.stdout), time.monotonic() - begin, peak.worker


def _show(planned: dict[str, Any], found: dict[str, Any], seconds: float, memory: int) -> None:
    written = {name: read_manifest(stage["artifact"]).num_bytes for name, stage in found["stages"].items()}
    for name in planned["stages"]:
        if name in found["stages"]:
            figures = planned["stages"][name]
            _line(name, "time", seconds_text, figures["seconds"], found["stages"][name]["seconds"])
            _line(name, "bytes", bytes_text, figures["num_bytes"], written[name])
    _line("all", "time", seconds_text, planned["seconds"], seconds)
    _line("all", "bytes", bytes_text, planned["num_bytes"], sum(written.values()))
    _line("all", "memory", bytes_text, planned["memory"], memory)
    for warning in planned["warnings"]:
        print(f"beware: {warning}")


def _line(name: str, what: str, text: Any, planned: float, found: float) -> None:
    ratio = f"{planned / found:6.2f}x" if found else ""
    print(f"{name:<10}{what:<8}planned {text(planned):>12}   took {text(found):>12}  {ratio}")


if __name__ == "__main__":
    main()
