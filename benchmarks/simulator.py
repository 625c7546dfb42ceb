"""How long a step takes on n ranks, from what one rank computes and what a network does.

Assumptions, beside those that `scaling.py` writes down for its measurements:

- A step of a rank is two measured intervals: `rest` (the optimiser of the step before, waiting for the reader, the
  forward pass) and `backward`. Both of a step are drawn together from the measured ones of one measured rank; a
  simulated rank stands for the same measured rank all the time. So the slowest of many steps is at most the slowest
  that was measured, and hosts differ as much as the measured ranks did. `spread` adds a factor per rank (log-normal).
- All-reduce is gloo's ring: 2 (n - 1) hops, in each of which every rank sends 1 / n of the message. A message starts
  when the last rank has it and one of gloo's two threads is free, and ends on all ranks at once. Messages do not take
  bandwidth from each other, and none is lost. `tree` is what is not used: 2 log2(n) hops with as many bytes.
- Bucket k is ready after a measured share of the backward pass; the step's figures (24 bytes) as it begins.
- A rank waits for its own reader as long as it did when it was alone, although its reader goes on while it waits for
  other ranks: this errs against the ranks.
- A parameter server takes pushes one after the other, `service` seconds each; its link sends one reply after the other,
  and a push reaches it at its rank's bandwidth, after what Dask takes beside (`overhead`). Servers share the parameters
  evenly, behave alike, and ranks push to all of them at once, after the whole backward pass. A rank goes on when it is
  at most `staleness` steps ahead of the slowest: 0 is the synchronous mode.
- Scoring, checkpoints, restarts, and reading shards over the same network are left out.

Shapes: R measured ranks, S measured steps of each, K buckets, n simulated ranks, T simulated steps.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Algorithm = Literal["ring", "tree"]
FIGURES_BYTES = 24
THREADS = 2  # of gloo's, which carry messages of one rank side by side


@dataclass(frozen=True)
class Measured:
    """Seconds of measured steps [R, S]; bytes [K] of the buckets and the share of the backward pass each waits for."""

    rest: Floats
    backward: Floats
    bucket_bytes: Sequence[int]
    bucket_ready: Sequence[float]

    @property
    def model_bytes(self) -> int:
        """What all gradients take."""
        return sum(self.bucket_bytes)


@dataclass(frozen=True)
class Network:
    """Seconds that a message takes to the next rank, and bytes per second of a link in each direction."""

    latency: float
    bandwidth: float

    def all_reduce(self, size: int, *, ranks: int, algorithm: Algorithm = "ring") -> float:
        """Return the seconds of an all-reduce of so many bytes, once every rank is there."""
        if ranks == 1:
            return 0.0
        hops = 2 * (ranks - 1) if algorithm == "ring" else 2 * math.ceil(math.log2(ranks))
        return hops * self.latency + 2 * (ranks - 1) / ranks * size / self.bandwidth


@dataclass(frozen=True)
class Servers:
    """Parameter servers: how many, seconds each takes per push, and steps that a rank may be ahead of the slowest.

    overhead: seconds more that a push takes which do not keep the server from others.
    """

    count: int
    service: float
    staleness: float
    overhead: float = 0.0


def drawn(measured: Measured, *, ranks: int, steps: int, seed: int, spread: float = 0.0) -> tuple[Floats, Floats]:
    """Return rest and backward [T, n]: the measured ranks themselves first, more of them by lot."""
    random = np.random.default_rng([seed, ranks])
    known, length = measured.rest.shape
    of = np.concatenate([random.permutation(known), random.integers(known, size=ranks)])[:ranks]
    at = random.integers(length, size=(steps, ranks))
    factor = np.exp(spread * random.standard_normal(ranks))
    return measured.rest[of, at] * factor, measured.backward[of, at] * factor


def all_reduced(
    measured: Measured,
    network: Network,
    *,
    ranks: int,
    steps: int,
    seed: int,
    spread: float = 0.0,
    algorithm: Algorithm = "ring",
) -> float:
    """Return the mean seconds of a step of ranks whose gradients are averaged as the backward pass goes on."""
    rest, backward = drawn(measured, ranks=ranks, steps=steps, seed=seed, spread=spread)
    costs = [
        network.all_reduce(size, ranks=ranks, algorithm=algorithm) for size in (FIGURES_BYTES, *measured.bucket_bytes)
    ]
    shares = (0.0, *measured.bucket_ready)
    now = 0.0  # when all ranks have the last step's gradients
    for step in range(steps):
        begin = now + rest[step]
        free = [now] * THREADS
        for share, cost in zip(shares, costs, strict=True):
            start = max(float((begin + share * backward[step]).max()), heapq.heappop(free))
            heapq.heappush(free, start + cost)
        now = max(float((begin + backward[step]).max()), *free)
    return now / steps


def served(
    measured: Measured,
    network: Network,
    servers: Servers,
    *,
    ranks: int,
    steps: int,
    seed: int,
    spread: float = 0.0,
) -> float:
    """Return the mean seconds between two steps of a rank whose weights lie on parameter servers.

    An event is a push that arrives; pushes are served in the order they arrive.
    """
    rest, backward = drawn(measured, ranks=ranks, steps=steps, seed=seed, spread=spread)
    computing = rest + backward
    sending = measured.model_bytes / servers.count / network.bandwidth
    way = network.latency + sending + servers.overhead
    arrivals = [(float(computing[0, rank]) + way, rank) for rank in range(ranks)]
    heapq.heapify(arrivals)
    taken = [0] * ranks  # steps whose push was served, by rank
    left = [ranks] + [0] * steps  # ranks that have taken so many steps
    waiting: list[int] = []
    slowest, link, now = 0, 0.0, 0.0
    while arrivals:
        at, rank = heapq.heappop(arrivals)
        now = max(now, at) + servers.service
        left[taken[rank]] -= 1
        taken[rank] += 1
        left[taken[rank]] += 1
        before = slowest
        while not left[slowest]:
            slowest += 1
        asked = [*waiting, rank] if slowest > before else [rank]
        free = [each for each in asked if taken[each] - slowest <= servers.staleness]
        kept = [each for each in asked if taken[each] - slowest > servers.staleness]
        waiting = kept if slowest > before else waiting + kept
        for each in free:
            link = max(link, now) + sending
            if taken[each] < steps:
                heapq.heappush(arrivals, (link + network.latency + float(computing[taken[each], each]) + way, each))
    return (link + network.latency) / steps


def speed_ups(seconds: dict[int, float]) -> dict[int, float]:
    """Return how many times as many samples per second as one rank, where every rank takes a batch of its own."""
    return {ranks: ranks * seconds[1] / each for ranks, each in seconds.items()}


def fitted_network(sizes: Sequence[int], seconds: Sequence[float], *, ranks: int) -> Network:
    """Return the latency and bandwidth whose ring comes nearest to measured all-reduces, relative to each."""
    measured = np.asarray(seconds)
    columns = np.array([[2 * (ranks - 1), 2 * (ranks - 1) / ranks * size] for size in sizes])
    solved, *_ = np.linalg.lstsq(columns / measured[:, None], np.ones(len(measured)), rcond=None)
    latency, per_byte = (max(float(each), 1e-12) for each in solved)
    return Network(latency, 1 / per_byte)


def to_document(measured: Measured) -> dict[str, Any]:
    """Return what was measured as JSON knows it."""
    return {
        "rest": measured.rest.round(7).tolist(),
        "backward": measured.backward.round(7).tolist(),
        "bucket_bytes": list(measured.bucket_bytes),
        "bucket_ready": list(measured.bucket_ready),
    }


def from_document(document: dict[str, Any]) -> Measured:
    """Return what `to_document` wrote."""
    return Measured(
        np.array(document["rest"]),
        np.array(document["backward"]),
        document["bucket_bytes"],
        document["bucket_ready"],
    )
