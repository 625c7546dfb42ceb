"""Sums of 64 columns over graphs from sparse to dense, beside other libraries: NGra's figure 13 (Ma et al. 2018).

    python benchmarks/densities.py [--nodes 10000] [--percent 0.01,0.1,1,10] [--threads 2] [--dgl PYTHON]
                                   [--plot docs/images/densities.png]

A graph of n nodes has density x n x n edges with ends drawn alike. Each library computes each graph in a process of its
own (`spmm.py`), one after the other. Prints a table in milliseconds, the best of each, and draws weighted sums.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from plots import draw_lines

HERE = Path(__file__).resolve().parent
OPERATIONS = {
    "gnnflow": ("plain", "weighted", "gated"),
    "dgl": ("plain", "weighted", "gated"),
    "torch": ("plain", "weighted"),
    "c": ("weighted",),
}


def write_graph(file: Path, nodes: int, density: float) -> int:
    """Write a graph and return its number of edges."""
    edges = round(density * nodes * nodes)
    ends = np.random.default_rng(0).integers(0, nodes, (2, edges))
    np.savez(file, edge_index=ends, train_mask=np.ones(nodes, bool))
    return edges


def columns_of(libraries: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the table's columns: a library and an operation by what they are called."""
    return {f"{library} {each}": (library, each) for library in libraries for each in OPERATIONS[library]}


def best(library: str, python: str, graph: Path, *, threads: int) -> dict[str, float]:
    """Return the least milliseconds of each operation."""
    command = [python, str(HERE / "spmm.py"), "--graph", str(graph), "--lib", library, "--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    asked = [*command, "--only", ",".join(OPERATIONS[library]), "--repeats", "15"]
    done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, env=environment)  # noqa: S603
    return {name: 1000.0 * found["min"] for name, found in json.loads(done.stdout)["results"].items()}


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--percent", default="0.01,0.03,0.1,0.3,1,3,10")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dgl", help="a Python that has DGL")
    parser.add_argument("--plot", type=Path)
    chosen = parser.parse_args()
    libraries = {"gnnflow": sys.executable, "torch": sys.executable, "c": sys.executable}
    libraries |= {"dgl": chosen.dgl} if chosen.dgl else {}
    percents, found = [float(each) for each in chosen.percent.split(",")], {}
    print(f"{'%':>6} {'edges':>9} " + " ".join(f"{name:>17}" for name in columns_of(libraries)))
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph.npz"
        for percent in percents:
            edges = write_graph(graph, chosen.nodes, percent / 100.0)
            each = {name: best(name, python, graph, threads=chosen.threads) for name, python in libraries.items()}
            found[percent] = each
            cells = (each[library][operation] for library, operation in columns_of(libraries).values())
            print(f"{percent:>6g} {edges:>9} {' '.join(f'{cell:>17.2f}' for cell in cells)}", flush=True)
    if chosen.plot:
        lines = {name: (percents, [found[each][name]["weighted"] for each in percents]) for name in libraries}
        named = {"C loop" if name == "c" else name: line for name, line in lines.items()}
        labels = {"x_label": "edges in 100 pairs of nodes", "y_label": "milliseconds per weighted sum, 64 columns"}
        draw_lines(chosen.plot, named, **labels, logarithmic="xy", dashed="C loop")


if __name__ == "__main__":
    main()
