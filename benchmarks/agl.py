"""AGL's tables 3 and 4 beside PyG and DGL: accuracy, and seconds per epoch with and without its two optimisations.

    python benchmarks/agl.py --ppi ppi.npz --data DATA [--pyg PYTHON] [--dgl PYTHON] [--rounds 2] [--only 4]

Table 4: GCN, GraphSAGE and GAT of 1 to 3 layers over merged neighbourhoods of the PPI-shaped graph: base, with pruning,
with edge partitioning, with both, and with the first layer's sums made ahead; ratios are times as fast as base. Whole
graph as one batch with --batch-size 0, where pruning has nothing to leave out. Table 3: test scores on Cora (of --data,
as the tests read it) and the PPI-shaped graph, same splits, epochs and settings for all, the best validation epoch.
`agl_cells.py` says what a batch holds and what is left out of the times; --pyg and --dgl name interpreters that have
these libraries, and a library whose interpreter is "" is left out. Libraries run in turns, so that what else the
machine does meanwhile concerns all of them. Each cell's figure goes to stderr as it is there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from agl_cells import FORMS, PEER_FORM

from gnnflow.storage.columns import combine, to_numpy

CELLS = Path(__file__).with_name("agl_cells.py")
Times = dict[str, list[float]]
Scores = dict[str, list[float]]


def run(python: str, library: str, graph: Path, arguments: Sequence[str], *, threads: int) -> dict[str, Any]:
    """Return the results of one library's cells, each with its figures."""
    command = [python, str(CELLS), "--lib", library, "--graph", str(graph), "--threads", str(threads), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)  # noqa: S603 - our own file
    if done.returncode:
        sys.exit(f"{library} failed")
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["results"]
    return results


def write_graph(folder: Path, path: Path) -> Path:
    """Write a public graph, with features normalised by row, as the file that all libraries read."""
    nodes, edges = (pq.read_table(folder / f"{name}.parquet") for name in ("nodes", "edges"))
    ids, order = np.unique(to_numpy(nodes["id"]), return_index=True)
    nodes = nodes.take(order)
    x = dense_features(nodes)
    split = np.array(nodes["split"].to_pylist(), dtype=object)
    masks = {f"{name}_mask": split == value for name, value in (("train", "train"), ("val", "valid"), ("test", "test"))}
    ends = [np.searchsorted(ids, to_numpy(edges[column])) for column in ("src", "dst")]
    x /= np.maximum(np.abs(x).sum(1, keepdims=True), 1e-12)
    np.savez(path, x=x, y=to_numpy(nodes["label"]).astype(np.int64), edge_index=np.stack(ends), **masks)
    return path


def dense_features(nodes: Any) -> Any:
    """Return x [N, F] of a node table, whose column x or x_index and x_value hold it."""
    if "x" in nodes.column_names:
        rows = combine(nodes["x"])
        return to_numpy(rows.flatten()).astype(np.float32).reshape(len(rows), -1)
    rows = combine(nodes["x_index"])
    index = to_numpy(rows.flatten())
    value = to_numpy(combine(nodes["x_value"]).flatten()) if "x_value" in nodes.column_names else np.ones(len(index))
    x = np.zeros((len(rows), int(index.max()) + 1), np.float32)
    x[np.repeat(np.arange(len(rows)), np.diff(to_numpy(rows.offsets))), index] = value
    return x


def table_4(chosen: argparse.Namespace, pythons: dict[str, str]) -> str:
    """Return seconds per epoch as a Markdown table, libraries having run in turns."""
    given = ["--model", chosen.model, "--layers", chosen.layers, "--batch-size", str(chosen.batch_size)]
    given += ["--batches", str(chosen.batches), "--repeats", str(chosen.repeats), "epochs"]
    times: dict[str, Times] = {library: {} for library in pythons}
    for _ in range(chosen.rounds):
        for library, python in pythons.items():
            for cell, found in run(python, library, chosen.ppi, given, threads=chosen.threads).items():
                times[library].setdefault(cell, []).extend(found["times"])
    return epochs_table(times, models=chosen.model.split(","), layers=chosen.layers.split(","))


def epochs_table(times: dict[str, Times], *, models: Sequence[str], layers: Sequence[str]) -> str:
    """Return the medians: base in seconds, every other form and library as times as fast as base."""
    peers = [library for library in times if library != "gnnflow"]
    head = ["cell", "base, s", "+ pruning", "+ partitioning", "both", "ahead", *peers, "fastest peer / ours"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for model in models:
        for number in layers:
            ours = {form: times["gnnflow"].get(f"{model}/{number}/{form}") for form in FORMS}
            beside = {peer: times[peer].get(f"{model}/{number}/{PEER_FORM}") for peer in peers}
            seconds = {name: statistics.median(each) for name, each in (ours | beside).items() if each}
            base, best = seconds["base"], seconds.get("ahead", seconds["both"])
            rest = [f"{base / seconds[name]:.2f}" if name in seconds else "" for name in (*FORMS[1:], *peers)]
            fastest = min((seconds[peer] for peer in peers if peer in seconds), default=None)
            rest.append(f"{fastest / best:.2f}" if fastest else "")
            lines.append(f"| {model}, {number} | {base:.3f} | " + " | ".join(rest) + " |")
    return "\n".join(lines)


def table_3(chosen: argparse.Namespace, pythons: dict[str, str]) -> str:
    """Return test scores as a Markdown table."""
    scores: dict[str, dict[str, Scores]] = {}
    with tempfile.TemporaryDirectory(prefix="gnnflow-agl-") as folder:
        seeds = ["--model", chosen.model, "--layers", "2", "--seeds", str(chosen.seeds)]
        graphs = chosen.graphs.split(",")
        settings: dict[str, tuple[Path, list[str]]] = {}
        if "cora" in graphs:
            cora = write_graph(chosen.data / "cora", Path(folder) / "cora.npz")
            settings["cora"] = (cora, [*seeds, "--epochs", str(chosen.cora_epochs), "--citation", "scores"])
        if "ppi" in graphs:
            settings["ppi"] = (
                chosen.ppi,
                [*seeds, "--epochs", str(chosen.ppi_epochs), "--weight-decay", "0", "scores"],
            )
        for name, (graph, given) in settings.items():
            for library, python in pythons.items():
                found = run(python, library, graph, given, threads=chosen.threads)
                scores.setdefault(name, {})[library] = {cell: each["scores"] for cell, each in found.items()}
    return scores_table(scores)


def scores_table(scores: dict[str, dict[str, Scores]]) -> str:
    """Return means with their deviation over the seeds, and ours over the best peer's."""
    libraries = list(next(iter(scores.values())))
    peers = [library for library in libraries if library != "gnnflow"]
    lines = ["| graph, model | " + " | ".join([*libraries, "ours / best peer"]) + " |"]
    lines.append("|---" * (len(libraries) + 2) + "|")
    for graph, by_library in scores.items():
        for cell in by_library["gnnflow"]:
            values = {library: by_library[library][cell] for library in libraries}
            shown = [f"{statistics.mean(each):.4f} +- {statistics.pstdev(each):.4f}" for each in values.values()]
            best = max((statistics.mean(values[peer]) for peer in peers), default=None)
            shown.append(f"{statistics.mean(values['gnnflow']) / best:.3f}" if best else "")
            lines.append(f"| {graph}, {cell.partition('/')[0]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ppi", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("GNNFLOW_DATA", "data")))
    parser.add_argument("--pyg", default=sys.executable, help="interpreter that has PyG")
    parser.add_argument("--dgl", default="", help="interpreter that has DGL")
    parser.add_argument("--only", choices=("3", "4"), help="one of the tables")
    parser.add_argument("--graphs", default="cora,ppi", help="of table 3")
    parser.add_argument("--model", default="gcn,sage,gat")
    parser.add_argument("--layers", default="1,2,3", help="of table 4")
    parser.add_argument("--batch-size", type=int, default=4096, help="targets; 0 takes the whole graph as one batch")
    parser.add_argument("--batches", type=int, default=2, help="of an epoch; its seconds are scaled from theirs")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cora-epochs", type=int, default=200)
    parser.add_argument("--ppi-epochs", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    """Run and print."""
    chosen = arguments()
    asked = {"gnnflow": sys.executable, "pyg": chosen.pyg, "dgl": chosen.dgl}
    pythons = {library: python for library, python in asked.items() if python}
    size = f"batches of {chosen.batch_size} targets" if chosen.batch_size else "the whole graph as one batch"
    if chosen.only != "3":
        print(f"Table 4: seconds per epoch, {size}; forms and libraries as times as fast as base\n")
        print(table_4(chosen, pythons))
    if chosen.only != "4":
        print("\nTable 3: test accuracy (Cora) and micro F1 (PPI-shaped), two layers\n")
        print(table_3(chosen, pythons))
    print(f"\n{chosen.threads} threads, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
