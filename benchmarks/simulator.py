"""A simulation of a step on n ranks, from measured computing times and a model of the network.

Assumptions, in addition to the measurements in `scaling.py`:

- A step of a rank is three measured intervals: `build` (its batch), `rest` (the forward pass, and the optimiser of the
  step before) and `backward`. The three of a step are drawn together from one measured rank; a
  simulated rank always stands for the same measured rank. So no step is slower than the slowest
  measured one, and hosts differ as much as the measured ranks did. `spread` adds a factor per rank (log-normal).
  Steps of different ranks are independent except for their place in the epoch: ranks begin an epoch together, and its
  first step, after the end of the epoch before, takes all of them longer.
- A rank has one thread that computes steps, and with batches made ahead a reader. Runnable threads of a host share its
  cores equally at every moment, at most one core each: the average of a fair scheduler over its slices of milliseconds.
  A thread that waits leaves its share to the others, and one that is woken computes at once. A switch costs nothing.
- Batches are made `prefetch` ahead (`train.prefetch`) by a reader, a separate thread; with 0 by the rank, after its
  backward pass. Both continue while gradients travel. So do the rounds of doubling after the first, in a thread: each
  is delayed by the slowest answer among ranks whose host has no free core, drawn from `answers`, or until a core is
  free.
- All-reduce is recursive doubling for small messages and gloo's ring for large ones, as
  `gnnflow.train.ranks.doubling` chooses. A message starts when the last rank has it and ends on all ranks at once;
  messages do not take bandwidth from each other, and none is lost. The ring has 2 (n - 1) hops, in each of which
  every rank sends 1 / n of the message, and begins when one of gloo's two threads is free. Doubling has rounds of one
  or two hops, assumed equally long; the first overlaps the backward pass, the others follow it, in parallel for all
  messages.
- Bucket k is ready after a measured share of the backward pass; the step's figures are in the first bucket.
- Scoring, checkpoints, restarts, and reading shards over the same network are ignored.

Shapes: R measured ranks, S measured steps of each, K buckets, n simulated ranks, T simulated steps; H hosts of P ranks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gnnflow.train.ranks.doubling import doubling_hops, doubling_rounds, is_cheaper

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Algorithm = Literal["chosen", "ring"]
PARTS = ("build", "rest", "backward")
ANSWERS = (4e-6,) * 50 + (17e-6,) * 40 + (4e-4,) * 9 + (3.3e-3,)
"""Seconds by which a rank that makes a batch answers later in a round than one that waits, as measured in 2026-11."""
THREADS = 2  # of gloo, which carry messages of one rank in parallel


@dataclass(frozen=True)
class Placing:
    """The number of ranks of a host, and the number of cores that they share."""

    ranks: int = 1
    cores: int = 1


ALONE = Placing(ranks=1, cores=1)


@dataclass(frozen=True)
class Computing:
    """Computing seconds of ranks [T, H, P], the share of the backward pass that fills each bucket [K], and cores.

    prefetch: the number of batches made ahead of the requested one, within the same per_epoch steps.
    """

    build: Floats
    rest: Floats
    backward: Floats
    ready: Sequence[float]
    prefetch: int
    cores: int
    per_epoch: int


@dataclass(frozen=True)
class State:
    """The progress of ranks: a host's clock [H]; remaining seconds of the pass and of the current batch [H, P].

    A pass is a step without its batch. made: the number of batches [H, P].
    """

    clock: Floats
    left: Floats
    batch: Floats
    made: Numbers


@dataclass(frozen=True)
class Times:
    """The times when buckets were full [K, H, P], passes ended [H, P], and hosts got a free core [H]."""

    ready: Floats
    done: Floats
    free: Floats


def beginning(computing: Computing) -> State:
    """Return ranks that have no batch yet."""
    _, hosts, ranks = computing.build.shape
    return State(
        np.zeros(hosts), np.zeros((hosts, ranks)), computing.build[0].copy(), np.zeros((hosts, ranks), np.int64)
    )


def stepping(state: State, computing: Computing, step: int) -> State:
    """Return ranks that begin a step's pass as soon as they have its batch."""
    return replace(state, left=computing.rest[step] + computing.backward[step])


def advance(state: State, computing: Computing, step: int, *, until: float = np.inf) -> tuple[State, Times]:
    """Advance the pass and the batches of ranks, until a time or as far as possible.

    An event is the end of a pass or of a batch; all hosts, which are independent here, go from event to event in
    parallel.
    """
    clock, left, batch, made = state.clock, state.left, state.batch, state.made
    marks = [(1 - share) * computing.backward[step] for share in computing.ready]
    end_of_epoch = (step // computing.per_epoch + 1) * computing.per_epoch
    ready, done, free = np.zeros((len(marks), *left.shape)), np.zeros_like(left), np.zeros_like(clock)
    while True:
        passing = (left > 0) & (made > step)
        # a batch is asked for when the pass before it has ended
        making = (made <= step + (left <= 0) + computing.prefetch) & (made < end_of_epoch)
        runnable = passing.sum(axis=1) + making.sum(axis=1)
        share = computing.cores / np.maximum(runnable, computing.cores)
        least = np.minimum(np.where(passing, left, np.inf), np.where(making, batch, np.inf)).min(axis=1)
        room = until - clock
        ends = least / share <= room
        work = np.where(runnable, np.where(ends, least, room * share), 0.0)
        passed = np.where(runnable, np.where(ends, least / share, room), 0.0)
        ended, finished = passing & (left <= work[:, None]), making & (batch <= work[:, None])
        if not (passed.any() or ended.any() or finished.any()):
            break
        for number, mark in enumerate(marks):
            full = passing & (left >= mark) & (left - work[:, None] <= mark)
            ready[number] = np.where(full, clock[:, None] + (left - mark) / share[:, None], ready[number])
        clock = clock + passed
        left = np.where(ended, 0.0, np.where(passing, left - work[:, None], left))
        done = np.where(ended, clock[:, None], done)
        made = made + finished
        following = np.take_along_axis(computing.build, made[None] % len(computing.build), axis=0)[0]
        batch = np.where(finished, following, np.where(making, batch - work[:, None], batch))
        free = np.where((runnable >= computing.cores) & (passed > 0), clock, free)
    if np.isfinite(until):
        clock = np.full_like(clock, until)
    return State(clock, left, batch, made), Times(ready, done, free)


@dataclass(frozen=True)
class Measured:
    """Seconds of measured steps [R, S]; bytes of the buckets [K] and the share of the backward pass before each.

    per_epoch: the number of steps in an epoch; S covers whole epochs.
    """

    build: Floats
    rest: Floats
    backward: Floats
    bucket_bytes: Sequence[int]
    bucket_ready: Sequence[float]
    per_epoch: int = 1

    @property
    def seconds(self) -> Floats:
        """The seconds of whole steps of a rank that never waits."""
        return self.build + self.rest + self.backward


@dataclass(frozen=True)
class Network:
    """The latency of a message in seconds, and the bandwidth of a link in each direction in bytes per second."""

    latency: float
    bandwidth: float

    def all_reduce(self, size: int, *, ranks: int, algorithm: Algorithm = "chosen") -> float:
        """Return the seconds of an all-reduce of this many bytes, from the arrival of the last rank."""
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


def drawn(
    measured: Measured, *, ranks: int, steps: int, seed: int, spread: float = 0.0
) -> tuple[Floats, Floats, Floats]:
    """Return build, rest and backward [T, n]: first the measured ranks, then random copies of them.

    Steps are drawn from steps at the same place in any epoch.
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
    """The delays of answers of ranks that are busy with a batch."""

    answers: Sequence[float]
    random: np.random.Generator

    def after(self, now: float, busy: Floats, rounds: Sequence[float]) -> float:
        """Return the end of rounds of these seconds that begin now; busy: the end of each rank's work [n]."""
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
    """Return the mean seconds of a step of ranks that average gradients during the backward pass.

    hosts: their placing; prefetch: batches that a reader makes ahead, 0 if each rank makes its batches itself.
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
        _, times = advance(state, computing, step)
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
        state, _ = advance(state, computing, step, until=now)
    return now / steps


def speed_ups(seconds: dict[int, float]) -> dict[int, float]:
    """Return the samples per second relative to one rank; every rank takes a separate batch."""
    return {ranks: ranks * seconds[1] / each for ranks, each in seconds.items()}


def fitted_network(sizes: Sequence[int], seconds: Sequence[float], *, ranks: int) -> Network:
    """Return the latency and bandwidth that fit measured all-reduces best, by relative error."""
    measured = np.asarray(seconds)
    columns = np.array([hops_and_bytes(size, ranks=ranks) for size in sizes])
    solved, *_ = np.linalg.lstsq(columns / measured[:, None], np.ones(len(measured)), rcond=None)
    latency, per_byte = (max(float(each), 1e-12) for each in solved)
    return Network(latency, 1 / per_byte)


def to_document(measured: Measured) -> dict[str, Any]:
    """Return the measurements as JSON values."""
    return {
        **{name: getattr(measured, name).round(7).tolist() for name in PARTS},
        "bucket_bytes": list(measured.bucket_bytes),
        "bucket_ready": list(measured.bucket_ready),
        "per_epoch": measured.per_epoch,
    }


def from_document(document: dict[str, Any]) -> Measured:
    """Return the measurements that `to_document` wrote."""
    parts: dict[str, Any] = {name: np.array(document[name]) for name in PARTS}
    beside = {name: document[name] for name in ("bucket_bytes", "bucket_ready", "per_epoch")}
    return Measured(**parts, **beside)
