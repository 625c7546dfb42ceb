"""Seconds of a global-batch step and its efficiency to 1,024 ranks, simulated from measurements on this machine.

    python benchmarks/globalbatch_scaling.py [--folder FOLDER] --save measured.json     # measure 1, 2 and 4 ranks
    python benchmarks/globalbatch_scaling.py --load measured.json --plot docs/images/globalbatch_scaling.png

Measured: GCN, 3 layers, hidden 128, on the graph of `globalbatch.py`, trained by 1, 2 and 4 processes of one thread;
the seconds of each stage (`gnnflow.executions.stages`), and each rank's rows, edges and mirrors. Costs per row and edge
come from one rank, costs per mirror from two. The first rows compare real and simulated steps, with as many cores as
this machine has and rows that travel through memory at 5 GB/s.

Simulated: a graph of 1 million nodes and 10 million edges, made and divided anew for each number of ranks, so that its
mirrors are counted; and one of GraphTheta's size, 1.4 billion nodes and 4.1 billion edges, whose ranks have the same
share of mirrors per edge. Nodes lie in communities of a thousand, each a run of ids; --far lists the shares of edges
that lead anywhere instead. Degrees follow a power law up to about 400 in-edges, and ranks own runs of equal cost, as
`partition: {kind: balanced}` makes them. GraphTheta reports 3.09 times the speed on four times the workers, 256 to
1,024: an efficiency of 77 %.

Assumptions:

- The computing time of a step is the sum of its stages: NN-Transform, NN-Apply, head, loss and optimiser per row of the
  rank, Gather and Sum per in-edge, and more per mirror (packing, unpacking, a second state to merge). All costs are for
  a whole step, forward and backward in all layers, as measured on one and two ranks with the same widths.
- In every layer all ranks wait for the slowest: a step takes the longest of all ranks for what comes before rows leave,
  plus the longest for what comes after. Ranks differ by their rows, edges and mirrors, counted in the graph that is
  divided, and by the speed of their hosts (`spread`, log-normal).
- Rows travel while own edges are aggregated, and only what takes longer is waited for. In K layers rows travel 2 K - 1
  times: K forward, K - 1 backward, since input rows have no gradient. A rank sends and receives at `bandwidth` at the
  same time, whatever the others do (full bisection, no loss); each message costs its sender `overhead`, and the last
  one arrives after `latency`.
- Gradients of weights are summed after the backward pass, in the time that `simulator.Network` says.
- Active sets, scoring, checkpoints and the first epoch are left out: every row is computed in every layer.

Shapes: p ranks.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from globalbatch import make_graph, on_ranks
from harness import FOLDER, PLOT, Benchmark, Chosen, Found, Option, draw_lines, folder_of, numbers, run
from numpy.typing import NDArray
from simulator import Network

Counts = NDArray[np.int64]
LAYERS, HIDDEN, FLOAT_BYTES = 3, 128, 4
COMMUNITY, HUB = 1_000, 100  # HUB: weight of a node with about 400 in-edges
THETA_NODES, THETA_EDGES, THETA_TIMES, THETA_EFFICIENCY = 1.4e9, 4.1e9, 4, 0.77
MEMORY = Network(50e-6, 5e9)


@dataclass(frozen=True)
class Costs:
    """Seconds of a step per row, in-edge and mirror; bytes of a mirror's row in one exchange and of all gradients."""

    per_row: float
    per_edge: float
    per_mirror: float
    row_bytes: float
    layers: int
    gradient_bytes: int

    @property
    def exchanges(self) -> int:
        """The number of exchanges of rows in a step."""
        return 2 * self.layers - 1


@dataclass(frozen=True)
class Divided:
    """The counts of p ranks [p]: rows, in-edges, mirrors that a rank reads, and its rows that others read."""

    rows: Counts
    edges: Counts
    mirrors: Counts
    sent: Counts

    @property
    def num_ranks(self) -> int:
        """Number of ranks p."""
        return len(self.rows)


@dataclass(frozen=True)
class Cluster:
    """Hosts: the spread of their speeds, the cost of a message for its sender; all cores, 0 for one per rank."""

    network: Network
    overhead: float = 0.0
    spread: float = 0.0
    cores: int = 0


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a step, its mean computing time, and the time that the slowest rank waits for rows."""

    step: float
    computing: float
    exchange: float


def step_seconds(divided: Divided, costs: Costs, cluster: Cluster, *, seed: int = 0) -> StepSeconds:
    """Return the seconds of a step of all ranks."""
    ranks = divided.num_ranks
    factor = np.exp(cluster.spread * np.random.default_rng([seed, ranks]).standard_normal(ranks))
    if cluster.cores and ranks > cluster.cores:
        factor = factor * (ranks / cluster.cores)
    rows, own = factor * costs.per_row * divided.rows, factor * costs.per_edge * divided.edges
    mirrors = factor * costs.per_mirror * divided.mirrors
    travelling = np.zeros(ranks)
    if ranks > 1:
        moved = np.maximum(divided.mirrors, divided.sent) * costs.row_bytes / cluster.network.bandwidth
        per_exchange = moved + np.minimum(ranks - 1, divided.sent) * cluster.overhead + cluster.network.latency
        travelling = costs.exchanges * per_exchange
    summed = cluster.network.all_reduce(costs.gradient_bytes, ranks=ranks) if ranks > 1 else 0.0
    step = float(rows.max() + (np.maximum(own, travelling) + mirrors).max() + summed)
    waited = float(np.maximum(travelling - own, 0.0).max())
    return StepSeconds(step, float((rows + own + mirrors).mean()), waited)


def divide(sources: Counts, targets: Counts, costs: Costs, *, nodes: int, ranks: int) -> Divided:
    """Count the rows, edges and mirrors of ranks that own runs of nodes of about the same cost."""
    cost = costs.per_row + costs.per_edge * np.bincount(targets, minlength=nodes)
    spent = np.cumsum(cost)
    # the rank that owns each node [N], and the rank that reads each edge [E]
    owners = np.minimum((spent - cost / 2) * ranks / spent[-1], ranks - 1).astype(np.int64)
    reader = owners[targets]
    cut = np.flatnonzero(owners[sources] != reader)
    # one mirror per source and reading rank
    pairs = np.unique(reader[cut] * nodes + sources[cut])
    return Divided(
        np.bincount(owners, minlength=ranks),
        np.bincount(reader, minlength=ranks),
        np.bincount(pairs // nodes, minlength=ranks),
        np.bincount(owners[pairs % nodes], minlength=ranks),
    )


def enlarged(like: Divided, *, nodes: float, edges: float) -> Divided:
    """Return a graph of another size, divided among the same ranks with the same differences.

    Mirrors per in-edge stay the same: right if edges between ranks have distinct sources, and too many if they share
    them.
    """
    more_nodes, more_edges = nodes / like.rows.sum(), edges / like.edges.sum()
    grown = [(each * more_edges).astype(np.int64) for each in (like.edges, like.mirrors, like.sent)]
    return Divided((like.rows * more_nodes).astype(np.int64), *grown)


def costs_of(measured: Found) -> Costs:
    """Return the costs per row and edge, from one rank, and per mirror, from two ranks."""
    (alone,), pair = measured["1"], measured["2"]
    rows, seconds = max(alone["rows"]), statistics.median(alone["times"])
    per_edge = alone["stages"]["gather_sum_seconds"] / alone["edges"]
    per_row = (seconds - alone["stages"]["gather_sum_seconds"]) / rows
    more = [
        rank["stages"]["gather_sum_seconds"] + rank["stages"].get("reduce_seconds", 0.0) - per_edge * rank["edges"]
        for rank in pair
    ]
    mirrors = [max(each["rows_sent"]) for each in reversed(pair)]  # one rank reads the rows that the other sends
    per_mirror = max(0.0, sum(more) / sum(mirrors))
    return Costs(per_row, per_edge, per_mirror, HIDDEN * FLOAT_BYTES, LAYERS, alone["gradient_bytes"])


def divided_as(ranks: list[Found]) -> Divided:
    """Return the counts of real ranks. Rows that others read stand for mirrors: their sums are equal."""
    sent = np.array([max(each["rows_sent"]) for each in ranks])
    rows, edges = np.array([max(each["rows"]) for each in ranks]), np.array([each["edges"] for each in ranks])
    return Divided(rows, edges, np.full(len(sent), int(sent.mean())), sent)


def edges_of(far: float, *, nodes: int, edges: int) -> tuple[Counts, Counts]:
    """Return sources and targets of the graph that is divided: targets by a power law, sources of their community."""
    rng = np.random.default_rng(0)
    weight = np.minimum(rng.pareto(1.5, nodes) + 1, HUB)
    targets = rng.choice(nodes, edges, p=weight / weight.sum())
    sources = targets // COMMUNITY * COMMUNITY + rng.integers(0, COMMUNITY, edges)
    anywhere = rng.random(edges) < far
    sources[anywhere] = rng.integers(0, nodes, int(anywhere.sum()))
    return sources, targets


def measure(chosen: Chosen, folder: Path) -> Found:
    """Return the times of 1, 2 and 4 ranks, and their counts."""
    make_graph(folder, nodes=chosen.nodes, edges=chosen.edges, width=chosen.width, classes=41)
    asked = Chosen(folder=str(folder), repeats=chosen.repeats, recompute=False, hidden=HIDDEN)
    return {str(size): on_ranks(asked, layers=LAYERS, size=size) for size in numbers(chosen.real)}


def measured_of(chosen: Chosen) -> Found:
    """Return the measurements of an earlier run, or measure now."""
    if chosen.load:
        return dict(json.loads(Path(chosen.load).read_text()))
    with folder_of(chosen.folder) as folder:
        measured = measure(chosen, folder)
    if chosen.save:
        Path(chosen.save).write_text(json.dumps(measured))
    return measured


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield real and simulated steps, then the simulated graphs by number of ranks."""
    measured = measured_of(chosen)
    costs, here = costs_of(measured), Cluster(MEMORY, cores=os.cpu_count() or 1)
    for size, ran in measured.items():
        simulated = step_seconds(divided_as(ran), costs, here)
        real = max(statistics.median(each["times"]) for each in ran)
        yield "here", int(size), simulated.step, real, simulated.step / real, simulated.exchange, None
    network = Network(chosen.latency * 1e-6, chosen.bandwidth * 1e9 / 8)
    cluster = Cluster(network, chosen.overhead * 1e-6, chosen.spread)
    lines: dict[str, Any] = {}
    for name, steps in simulate(costs, cluster, chosen).items():
        efficiency = {
            ranks: steps[ranks // THETA_TIMES].step / (THETA_TIMES * step.step)
            for ranks, step in steps.items()
            if ranks // THETA_TIMES in steps
        }
        lines[name] = list(efficiency), list(efficiency.values())
        for ranks, step in steps.items():
            yield name, ranks, step.step, None, None, step.exchange, efficiency.get(ranks)
    if chosen.plot:
        published = "GraphTheta, 256 to 1,024"
        lines[published] = [THETA_TIMES, 1024], [THETA_EFFICIENCY] * 2
        labels = {"x_label": "ranks", "y_label": "efficiency against a quarter of them"}
        draw_lines(chosen.plot, lines, **labels, logarithmic="x", dashed=published)


def simulate(costs: Costs, cluster: Cluster, chosen: Chosen) -> dict[str, dict[int, StepSeconds]]:
    """Return the steps by graph and number of ranks."""
    found: dict[str, dict[int, StepSeconds]] = {}
    nodes, edges = chosen.divided, 10 * chosen.divided
    for far in map(float, chosen.far.split(",")):
        sources, targets = edges_of(far, nodes=nodes, edges=edges)
        for ranks in numbers(chosen.ranks):
            counted = divide(sources, targets, costs, nodes=nodes, ranks=ranks)
            large = enlarged(counted, nodes=THETA_NODES, edges=THETA_EDGES)
            for name, held in ((f"{nodes:,} nodes", counted), ("1.4G nodes, 4.1G edges", large)):
                found.setdefault(f"{name}, {far:.0%} far", {})[ranks] = step_seconds(held, costs, cluster)
    return found


BENCH = Benchmark(
    columns=("graph", "ranks", "simulated s", "real s", "simulated / real", "waited s", "efficiency against a quarter"),
    rows=rows,
    options={
        "folder": FOLDER,
        "nodes": Option(250_000, "of the graph that is measured"),
        "edges": 5_000_000,
        "width": 64,
        "repeats": 3,
        "real": Option("1,2,4", "numbers of ranks that are measured; 1 and 2 among them"),
        "save": Option("", "file for what was measured"),
        "load": Option("", "file that --save wrote"),
        "plot": PLOT,
        "divided": Option(1_000_000, "of the graph that is divided, with ten times as many edges"),
        "ranks": Option("1,4,16,64,256,1024", "that are simulated"),
        "bandwidth": Option(10.0, "Gbit/s of a link"),
        "latency": Option(50.0, "microseconds to another host"),
        "overhead": Option(10.0, "microseconds of a message for its sender"),
        "spread": Option(0.05, "how much hosts differ in speed"),
        "far": Option("0.1,0.3", "shares of edges that lead anywhere"),
    },
    small={"nodes": 1_000, "edges": 8_000, "width": 16, "real": "1,2", "divided": 20_000, "ranks": "1,4"},
)


if __name__ == "__main__":
    run(BENCH)
