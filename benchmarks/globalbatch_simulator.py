"""How long a global-batch step takes on p ranks, from what stages cost per row and edge and what a network does.

Assumptions:

- A step's computing is that of its stages: NN-Transform, NN-Apply, head, loss and optimiser per row of the rank, Gather
  and Sum per in-edge, and more per mirror (packing, unpacking, a second state to merge). All costs are of a step,
  forward and backward, all layers together, as measured on one and two ranks, with the widths of there.
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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from simulator import Network

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


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
        """How often rows travel in a step."""
        return 2 * self.layers - 1


@dataclass(frozen=True)
class Divided:
    """What each of p ranks has of a graph [p]: rows, in-edges, mirrors that it reads, rows that others read of it."""

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
    """Hosts: how much their speeds differ, what a message costs its sender; cores of all, 0 for one per rank."""

    network: Network
    overhead: float = 0.0
    spread: float = 0.0
    cores: int = 0


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a step, of these what ranks compute on average, and how long the slowest waits for rows."""

    step: float
    computing: float
    exchange: float


def step_seconds(divided: Divided, costs: Costs, cluster: Cluster, *, seed: int = 0) -> StepSeconds:
    """Return what a step of all ranks takes."""
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
    """Count what ranks have that own runs of nodes of about the same cost."""
    cost = costs.per_row + costs.per_edge * np.bincount(targets, minlength=nodes)
    spent = np.cumsum(cost)
    # rank that owns each node, and that reads each edge
    owners = np.minimum((spent - cost / 2) * ranks / spent[-1], ranks - 1).astype(np.int64)
    reader = owners[targets]
    cut = np.flatnonzero(owners[sources] != reader)
    # a source once per rank that reads it
    pairs = np.unique(reader[cut] * nodes + sources[cut])
    return Divided(
        np.bincount(owners, minlength=ranks),
        np.bincount(reader, minlength=ranks),
        np.bincount(pairs // nodes, minlength=ranks),
        np.bincount(owners[pairs % nodes], minlength=ranks),
    )


def enlarged(like: Divided, *, nodes: float, edges: float) -> Divided:
    """Return a graph of other size, divided among as many ranks, that differ from each other as much.

    Mirrors per in-edge stay what they are: right where an edge that leads to another rank has a source of its own, and
    too many where edges share it.
    """
    more_nodes, more_edges = nodes / like.rows.sum(), edges / like.edges.sum()
    grown = [(each * more_edges).astype(np.int64) for each in (like.edges, like.mirrors, like.sent)]
    return Divided((like.rows * more_nodes).astype(np.int64), *grown)
