"""How long a step takes on n ranks, from what one rank computes and what a network does.

Assumptions, beside those that `scaling.py` writes down for its measurements:

- A step of a rank is three measured intervals: `build` (its batch), `rest` (the forward pass, and the optimiser of the
  step before) and `backward`. Those of a step are drawn together from the measured ones of one measured rank; a
  simulated rank stands for the same measured rank all the time. So the slowest of many steps is at most the slowest
  that was measured, and hosts differ as much as the measured ranks did. `spread` adds a factor per rank (log-normal).
  Steps of different ranks are independent but for their place in the epoch: ranks begin an epoch together, and its
  first step, behind what ends the one before, takes each of them longer.
- Threads share the cores of their host as `cores.py` has it: ranks that share cores, or a rank and its reader.
- Batches are made `prefetch` ahead (`train.prefetch`) by a reader, a thread of its own; with 0 by the rank, after its
  backward pass. Either goes on while gradients travel. The rounds of doubling after the first go on too, in a thread:
  each as much later as the slowest of the ranks whose host has no core free takes to answer, drawn from `answers`,
  measured with a rank that makes batches, or until a core is free.
- All-reduce is recursive doubling for small messages and gloo's ring for large ones, as
  `gnnflow.train.ranks.doubling` chooses. A message starts when the last rank has it and ends on all ranks at once;
  messages do not take bandwidth from each other, and none is lost. The ring has 2 (n - 1) hops, in each of which
  every rank sends 1 / n of the message, and begins when one of gloo's two threads is free. Doubling has rounds of a
  hop or two, taken as equally long; the first goes on beside the backward pass, the others follow after it, those of
  all messages side by side.
- Bucket k is ready after a measured share of the backward pass; the step's figures are in the first bucket.
- A parameter server takes pushes one after the other, `service` seconds each; its link sends one reply after the other,
  and a push reaches it at its rank's bandwidth, after what Dask takes beside (`overhead`). Servers share the parameters
  evenly, behave alike, and ranks push to all of them at once, after the whole backward pass. A rank goes on when it is
  at most `staleness` steps ahead of the slowest: 0 is the synchronous mode.
- Scoring, checkpoints, restarts, and reading shards over the same network are left out.

Shapes: R measured ranks, S measured steps of each, K buckets, n simulated ranks, T simulated steps.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from cores import Computing, Placing, beginning, gone_on, stepping
from numpy.typing import NDArray

from gnnflow.train.ranks.doubling import doubling_hops, doubling_rounds, is_cheaper

Floats = NDArray[np.float64]
Algorithm = Literal["chosen", "ring"]
ALONE = Placing(ranks=1, cores=1)
PARTS = ("build", "rest", "backward")
THREADS = 2  # of gloo's, which carry messages of one rank side by side


@dataclass(frozen=True)
class Measured:
    """Seconds of measured steps [R, S]; bytes [K] of the buckets and the share of the backward pass each waits for.

    per_epoch: how many steps an epoch has; the S are those of whole epochs.
    """

    build: Floats
    rest: Floats
    backward: Floats
    bucket_bytes: Sequence[int]
    bucket_ready: Sequence[float]
    per_epoch: int = 1

    @property
    def seconds(self) -> Floats:
        """What whole steps take a rank that waits for nobody."""
        return self.build + self.rest + self.backward

    @property
    def model_bytes(self) -> int:
        """What all gradients take."""
        return sum(self.bucket_bytes)


@dataclass(frozen=True)
class Network:
    """Seconds that a message takes to the next rank, and bytes per second of a link in each direction."""

    latency: float
    bandwidth: float

    def all_reduce(self, size: int, *, ranks: int, algorithm: Algorithm = "chosen") -> float:
        """Return the seconds of an all-reduce of so many bytes, once every rank is there."""
        hops, sent = hops_and_bytes(size, ranks=ranks, algorithm=algorithm)
        return hops * self.latency + sent / self.bandwidth


def doubles(size: int, *, ranks: int, algorithm: Algorithm) -> bool:
    """Return whether a message is summed by recursive doubling."""
    return algorithm == "chosen" and is_cheaper(size, ranks)


def hops_and_bytes(size: int, *, ranks: int, algorithm: Algorithm = "chosen") -> tuple[int, float]:
    """Return the hops of an all-reduce, one after the other, and the bytes that a rank sends meanwhile."""
    if doubles(size, ranks=ranks, algorithm=algorithm):
        return doubling_hops(ranks, size), doubling_rounds(ranks) * size
    return 2 * (ranks - 1), 2 * (ranks - 1) / ranks * size


@dataclass(frozen=True)
class Servers:
    """Parameter servers: how many, seconds each takes per push, and steps that a rank may be ahead of the slowest.

    overhead: seconds more that a push takes which do not keep the server from others.
    """

    count: int
    service: float
    staleness: float
    overhead: float = 0.0


def drawn(
    measured: Measured, *, ranks: int, steps: int, seed: int, spread: float = 0.0
) -> tuple[Floats, Floats, Floats]:
    """Return build, rest and backward [T, n]: the measured ranks themselves first, more of them by lot.

    Steps are drawn from those of the same place in any epoch.
    """
    random = np.random.default_rng([seed, ranks])
    known, length = measured.rest.shape
    of = np.concatenate([random.permutation(known), random.integers(known, size=ranks)])[:ranks]
    epochs = random.integers(length // measured.per_epoch, size=(steps, ranks))
    at = epochs * measured.per_epoch + (np.arange(steps) % measured.per_epoch)[:, None]
    factor = np.exp(spread * random.standard_normal(ranks))
    build, rest, backward = (each[of, at] * factor for each in (measured.build, measured.rest, measured.backward))
    return build, rest, backward


@dataclass(frozen=True)
class _Late:
    """How much later ranks answer that are busy with a batch."""

    answers: Sequence[float]
    random: np.random.Generator

    def after(self, now: float, busy: Floats, rounds: Sequence[float]) -> float:
        """Return when rounds of so many seconds have ended that begin now; busy: until when each rank is [n]."""
        for seconds in rounds:
            left = np.maximum(busy - now, 0.0)
            now += float(np.minimum(self.random.choice(self.answers, len(left)), left).max()) + seconds
        return now


def all_reduced(
    measured: Measured,
    network: Network,
    *,
    ranks: int,
    steps: int,
    seed: int,
    spread: float = 0.0,
    algorithm: Algorithm = "chosen",
    prefetch: int = 0,
    hosts: Placing = ALONE,
    answers: Sequence[float] = (0.0,),
) -> float:
    """Return the mean seconds of a step of ranks whose gradients are averaged as the backward pass goes on.

    hosts: where they run; prefetch: how many batches a reader makes ahead, 0 where each rank makes its own in turn.
    """
    late = _Late(answers, np.random.default_rng([seed, ranks, 1]))
    parts = drawn(measured, ranks=ranks, steps=steps, seed=seed, spread=spread)
    build, rest, backward = (each.reshape(steps, -1, hosts.ranks) for each in parts)
    per_epoch = measured.per_epoch if measured.per_epoch > 1 else steps
    computing = Computing(build, rest, backward, measured.bucket_ready, prefetch, hosts.cores, per_epoch)
    sizes = measured.bucket_bytes
    costs = [network.all_reduce(size, ranks=ranks, algorithm=algorithm) for size in sizes]
    doubled = [doubles(size, ranks=ranks, algorithm=algorithm) for size in sizes]
    later = doubling_rounds(ranks) - 1
    first_round = 1 / (later + 1) if ranks > 1 else 0.0
    now, state = 0.0, beginning(computing)
    for step in range(steps):
        state = stepping(state, computing, step)
        _, times = gone_on(state, computing, step)
        back, busy = float(times.done.max()), np.repeat(times.free, hosts.ranks)
        free, ends = [now] * THREADS, [back]
        for full, cost, is_doubled in zip(times.ready, costs, doubled, strict=True):
            ready = float(full.max())
            if is_doubled:
                first, others = ready + first_round * cost, (1 - first_round) * cost
                ends.append(first if later == 0 else late.after(max(first, back), busy, [others / later] * later))
            else:
                heapq.heappush(free, max(ready, heapq.heappop(free)) + cost)
        now = max(*ends, *free)
        # when all ranks have the step's gradients
        state, _ = gone_on(state, computing, step, until=now)
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
    build, rest, backward = drawn(measured, ranks=ranks, steps=steps, seed=seed, spread=spread)
    computing = build + rest + backward
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
    """Return the latency and bandwidth that come nearest to measured all-reduces, relative to each."""
    measured = np.asarray(seconds)
    columns = np.array([hops_and_bytes(size, ranks=ranks) for size in sizes])
    solved, *_ = np.linalg.lstsq(columns / measured[:, None], np.ones(len(measured)), rcond=None)
    latency, per_byte = (max(float(each), 1e-12) for each in solved)
    return Network(latency, 1 / per_byte)


def to_document(measured: Measured) -> dict[str, Any]:
    """Return what was measured as JSON knows it."""
    return {
        **{name: getattr(measured, name).round(7).tolist() for name in PARTS},
        "bucket_bytes": list(measured.bucket_bytes),
        "bucket_ready": list(measured.bucket_ready),
        "per_epoch": measured.per_epoch,
    }


def from_document(document: dict[str, Any]) -> Measured:
    """Return what `to_document` wrote."""
    parts: dict[str, Any] = {name: np.array(document[name]) for name in PARTS}
    beside = {name: document[name] for name in ("bucket_bytes", "bucket_ready", "per_epoch")}
    return Measured(**parts, **beside)
