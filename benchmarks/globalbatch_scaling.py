"""Seconds of a global-batch step and its efficiency to 1,024 ranks, simulated from what this machine measures.

    python benchmarks/globalbatch_scaling.py --data FOLDER --save measured.json     # measure 1, 2 and 4 ranks
    python benchmarks/globalbatch_scaling.py --load measured.json --plot docs/images/globalbatch_scaling.png

Measured: GCN, 3 layers, hidden 128, on the graph of `globalbatch.py` (--nodes, --edges, --width), trained by 1, 2 and 4
processes of one thread each; the seconds of each stage (`gnnflow.executions.stages`), and each rank's rows, edges and
mirrors. Costs per row and edge come of one rank, those per mirror of two. Validated: the steps of 2 and 4 ranks beside
the simulated ones, with as many cores as there are here and rows that travel through memory.

Simulated: a graph of 1 million nodes and 10 million edges, made and divided anew for each number of ranks, so that its
mirrors are counted and not guessed; and one of GraphTheta's size, 1.4 billion nodes and 4.1 billion edges, whose ranks
have the same share of mirrors per edge. Nodes lie in communities of a thousand, each a run of ids; --far lists the
shares of edges that lead anywhere instead. Degrees follow a power law up to about 400 in-edges, and ranks own runs of
equal cost, as `partition: {kind: balanced}` makes them. GraphTheta reports 3.09 times the speed on four times the
workers, 256 to 1,024: an efficiency of 77 %. `globalbatch_simulator.py` has the model and what it assumes. Prints one
JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from globalbatch import make_graph, on_ranks
from globalbatch_simulator import Cluster, Costs, Counts, Divided, divide, enlarged, step_seconds
from plots import draw_lines
from simulator import Network

LAYERS, HIDDEN, FLOAT_BYTES = 3, 128, 4
NODES, EDGES, COMMUNITY = 1_000_000, 10_000_000, 1_000
HUB = 100  # weight of a node with about 400 in-edges
THETA_NODES, THETA_EDGES, THETA_TIMES, THETA_EFFICIENCY = 1.4e9, 4.1e9, 4, 0.77
RANKS = (1, 4, 16, 64, 256, 1024)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return what 1, 2 and 4 ranks took, and what each had."""
    folder = chosen.data
    make_graph(folder, nodes=chosen.nodes, edges=chosen.edges, width=chosen.width, classes=41)
    asked = SimpleNamespace(data=folder, repeats=chosen.repeats, recompute=False, hidden=HIDDEN)
    return {str(size): on_ranks(asked, layers=LAYERS, size=size) for size in (1, 2, 4)}  # type: ignore[arg-type]


def costs_of(measured: dict[str, Any]) -> Costs:
    """Return the costs per row and edge that one rank had, and those per mirror that two had beside them."""
    (alone,), pair = measured["1"]["ranks"], measured["2"]["ranks"]
    rows, seconds = max(alone["rows"]), statistics.median(alone["times"])
    per_edge = alone["stages"]["gather_sum_seconds"] / alone["edges"]
    per_row = (seconds - alone["stages"]["gather_sum_seconds"]) / rows
    more = [
        rank["stages"]["gather_sum_seconds"] + rank["stages"].get("reduce_seconds", 0.0) - per_edge * rank["edges"]
        for rank in pair
    ]
    mirrors = [max(each["rows_sent"]) for each in reversed(pair)]  # of two ranks one reads what the other sends
    per_mirror = max(0.0, sum(more) / sum(mirrors))
    return Costs(per_row, per_edge, per_mirror, HIDDEN * FLOAT_BYTES, LAYERS, alone["gradient_bytes"])


def divided_as(ranks: list[dict[str, Any]]) -> Divided:
    """Return what real ranks had. Those that others read stand for those read: they are as many together."""
    sent = np.array([max(each["rows_sent"]) for each in ranks])
    rows, edges = (np.array([value(each) for each in ranks]) for value in (_rows, _edges))
    return Divided(rows, edges, np.full(len(sent), int(sent.mean())), sent)


def _rows(rank: dict[str, Any]) -> int:
    return max(rank["rows"])


def _edges(rank: dict[str, Any]) -> int:
    return int(rank["edges"])


def validated(measured: dict[str, Any], costs: Costs) -> dict[str, Any]:
    """Return simulated and real seconds of a step, by number of ranks; memory carries 5 GB/s."""
    here = Cluster(Network(50e-6, 5e9), cores=os.cpu_count() or 1)
    found = {}
    for size, ran in measured.items():
        simulated = step_seconds(divided_as(ran["ranks"]), costs, here).step
        found[size] = {"simulated": simulated, "real": ran["seconds"], "ratio": simulated / ran["seconds"]}
    return found


def edges_of(far: float) -> tuple[Counts, Counts]:
    """Return sources and targets of the graph that is divided: targets by a power law, sources of their community."""
    rng = np.random.default_rng(0)
    weight = np.minimum(rng.pareto(1.5, NODES) + 1, HUB)
    targets = rng.choice(NODES, EDGES, p=weight / weight.sum())
    sources = targets // COMMUNITY * COMMUNITY + rng.integers(0, COMMUNITY, EDGES)
    anywhere = rng.random(EDGES) < far
    sources[anywhere] = rng.integers(0, NODES, int(anywhere.sum()))
    return sources, targets


def simulate(costs: Costs, cluster: Cluster, shares: list[float]) -> dict[str, dict[int, Any]]:
    """Return seconds of a step by graph and number of ranks."""
    found: dict[str, dict[int, Any]] = {}
    for far in shares:
        sources, targets = edges_of(far)
        for ranks in RANKS:
            counted = divide(sources, targets, costs, nodes=NODES, ranks=ranks)
            large = enlarged(counted, nodes=THETA_NODES, edges=THETA_EDGES)
            for name, held in (("1M nodes, 10M edges", counted), ("1.4G nodes, 4.1G edges", large)):
                took = step_seconds(held, costs, cluster)
                row = {"seconds": took.step, "waited": took.exchange, "mirrors": int(held.mirrors.max())}
                found.setdefault(f"{name}, {far:.0%} far", {})[ranks] = row
    return found


def efficiency(seconds: dict[int, Any]) -> dict[int, float]:
    """Return the efficiency at four times as many ranks, by that number."""
    return {
        ranks: seconds[ranks // THETA_TIMES]["seconds"] / (THETA_TIMES * seconds[ranks]["seconds"])
        for ranks in seconds
        if ranks // THETA_TIMES in seconds and ranks >= THETA_TIMES
    }


def main() -> None:
    """Measure or load, simulate, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    for name, default in {"nodes": 250_000, "edges": 5_000_000, "width": 64, "repeats": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--bandwidth", type=float, default=10.0, help="Gbit/s of a link")
    parser.add_argument("--latency", type=float, default=50.0, help="microseconds to another host")
    parser.add_argument("--overhead", type=float, default=10.0, help="microseconds of a message for its sender")
    parser.add_argument("--spread", type=float, default=0.05, help="how much hosts differ in speed")
    parser.add_argument("--far", default="0.1,0.3", help="shares of edges that lead anywhere")
    chosen = parser.parse_args()
    measured = json.loads(chosen.load.read_text()) if chosen.load else measure(chosen)
    if chosen.save:
        chosen.save.write_text(json.dumps(measured))
    costs = costs_of(measured)
    network = Network(chosen.latency * 1e-6, chosen.bandwidth * 1e9 / 8)
    cluster = Cluster(network, chosen.overhead * 1e-6, chosen.spread)
    found = simulate(costs, cluster, [float(each) for each in chosen.far.split(",")])
    at_four = {name: efficiency(rows) for name, rows in found.items()}
    if chosen.plot:
        lines = {name: (list(rows), list(rows.values())) for name, rows in at_four.items()}
        published = {"GraphTheta, 256 to 1,024": ([4, 1024], [THETA_EFFICIENCY] * 2)}
        draw_lines(
            chosen.plot,
            {**lines, **published},
            x_label="ranks",
            y_label="efficiency against a quarter of them",
            logarithmic="x",
            dashed="GraphTheta, 256 to 1,024",
        )
    results = {"costs": vars(costs), "validated": validated(measured, costs), "simulated": found, "at 4x": at_four}
    print(json.dumps({"bench": "globalbatch_scaling", "results": results}))


if __name__ == "__main__":
    main()
