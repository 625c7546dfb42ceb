"""When ranks have computed their steps and batches, where threads of theirs share the cores of a host.

A rank has one thread that computes steps and, with batches prepared ahead, a reader that makes them; without, the first
one makes the next batch after its backward pass. A thread is runnable from when it has something to do; runnable
threads of a host share its cores equally, at most one core each, at every moment: what a fair scheduler comes to over
its slices of milliseconds. A thread that waits leaves its share to the others, and one that is woken computes at once.
What switching costs is not added: it is in the steps, where those were measured on shared cores.

Shapes: H hosts of P ranks each, K buckets, T steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Placing:
    """How many ranks a host has, and how many cores they share."""

    ranks: int = 1
    cores: int = 1


@dataclass(frozen=True)
class Computing:
    """Seconds that ranks compute [T, H, P], of whose backward pass a share [K] fills each bucket, on what cores.

    prefetch: how many batches are made ahead of the one that is asked for, if they are of the same per_epoch steps.
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
    """Where ranks are: a host's clock [H]; seconds left of the pass and of the batch that is made [H, P].

    A pass is a step without its batch. made: how many batches [H, P].
    """

    clock: Floats
    left: Floats
    batch: Floats
    made: Numbers


@dataclass(frozen=True)
class Times:
    """When each bucket was full [K, H, P], when passes ended [H, P], and since when a host has a free core [H]."""

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


def gone_on(state: State, computing: Computing, step: int, *, until: float = np.inf) -> tuple[State, Times]:
    """Return where ranks are that go on with a step's pass and with batches, until a time or while they can.

    An event is the end of a pass or of a batch; hosts, which do not concern each other here, go from one to the next
    side by side.
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
