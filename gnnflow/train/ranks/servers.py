"""Parameter servers: Dask actors that hold the weights and the optimiser, each of some of the parameters.

(AGL, section 3.3.) A rank computes a gradient, pushes it to every server and gets weights back, in one call per server
and step. When a server steps is the mode:

- synchronous: once per step, with the gradients of all ranks in rank order, weighed as all-reduce weighs them. Every
  rank waits for all; the weights equal all-reduce's to rounding.
- bounded: with each gradient as it comes. A rank waits only where it would begin a step more than `staleness` steps
  ahead of the slowest rank (stale synchronous parallel: Ho et al., NeurIPS 2013).
- asynchronous: with each gradient as it comes, and nobody waits.

In the last two the order of arrival decides, so runs differ, and an epoch takes as many optimiser steps as there are
batches on all ranks. At the end of an epoch all ranks meet and fetch the same weights, which are scored and kept.

Weights have a version: how many updates made them. A push says of which version its gradient is, so what is stale is
counted. With `stealing` the first server deals an epoch's batches (`stealing.py`), a reply brings the next one, and the
bound is one of versions, since ranks that take unequal numbers of batches have no common step. A checkpoint is then cut
where no batch is under way: ranks that have pushed wait for it, so that the weights of all servers, their optimisers
and the batches that are done are of one moment.

A call that Dask makes again, because its connection broke before the answer came, counts once: `begin`, `open_epoch`
and `push` find what the first one left. A push is known by its rank, its fit and its step; servers live as long as one
attempt of the ranks, so none comes from an earlier one.

A large parameter that is looked up by rows (`tables.py`) does not come back with the others: before a step a rank pulls
the rows that its batch reads, and it pushes the gradients of these rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnnflow.config import ParameterServerConfig, TrainConfig
from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.errors import ClusterError
from gnnflow.train.ranks.push_counts import Staleness, Tally
from gnnflow.train.ranks.server_shard import Push, Shard, State
from gnnflow.train.ranks.stealing import BatchQueue
from gnnflow.train.source import DealtBatch
from gnnflow.train.updater import StepLoss


class ServerClosedError(ClusterError):
    """The attempt that this server belongs to is over."""


@dataclass(frozen=True)
class Reply:
    """The dense weights after a push.

    loss: of the targets that the weights have seen since this rank's last push. version: of the weights. batches: what
    the rank computes next, from the queue.
    """

    weights: FloatArray
    loss: StepLoss
    version: int = 0
    batches: Sequence[DealtBatch] = ()


@dataclass(frozen=True)
class Pause:
    """The state in which ranks are held.

    version: which every server comes to. done: whether each batch of the epoch is done.
    """

    version: int
    epoch: int
    done: Array


@dataclass(frozen=True)
class Weights:
    """The dense weights and the whole tables as they are, and their version."""

    dense: FloatArray
    tables: list[FloatArray]
    version: int


@dataclass(frozen=True)
class _Answer:
    """The answer to a rank's last push, without weights. step: of that push; -1 before the first."""

    step: int
    loss: StepLoss
    batches: Sequence[DealtBatch]


class Server:
    """One server. Its methods run on its worker's event loop, one at a time between their waits."""

    def __init__(self, train: TrainConfig, num_ranks: int) -> None:
        assert isinstance(train.updater, ParameterServerConfig)
        self._train = train
        self._mode, self._staleness = train.updater.mode, train.updater.staleness
        self._stealing = train.updater.stealing
        self._num_ranks = num_ranks
        self._fit = -1
        self._closed = False
        self._turn = asyncio.Condition()
        self._counted: list[Staleness] = []

    async def begin(
        self,
        fit: int,
        parameters: Sequence[FloatArray] | None = None,
        state: State | None = None,
        tables: int = 0,
        done: tuple[int, Array] | None = None,
    ) -> None:
        """Start a fit with the weights and the optimiser's state that rank 0 gives; other ranks wait for it.

        tables: how many of the parameters, the last ones, are looked up by rows. done: an epoch, and which of its
        batches these weights have seen.
        """
        async with self._turn:
            if self._fit >= fit:
                return
            if parameters is None:
                await self._until(lambda: self._fit >= fit)
                return
            self._shard = Shard(parameters, self._train, tables=tables)
            self._shard.restore(state or {})
            self._waiting: dict[int, Push] = {}
            self._clocks = [0] * self._num_ranks
            self._tallies = [Tally() for _ in range(self._num_ranks)]
            self._answers = [_Answer(-1, StepLoss(0.0, 0), ())] * self._num_ranks
            self._counted.append(Staleness())
            self._version = 0
            self._parked: set[int] = set()  # ranks that have pushed and have no reply yet
            self._read = [0] * self._num_ranks  # version that each rank computes with
            self._paused = False
            self._queue = None if done is None else BatchQueue(*done, num_ranks=self._num_ranks)
            self._fit = fit
            self._turn.notify_all()

    async def open_epoch(self, rank: int, epoch: int, *, size: tuple[int, int], count: int) -> list[DealtBatch]:
        """Return a rank's first batches of an epoch, when all ranks have come for theirs.

        size: number of shares, and batches of each. None are dealt before, since a rank that once finds too few left
        has ended its epoch: what it was dealt after another had come would stay undone.
        """
        async with self._turn:
            if self._queue is None or self._queue.epoch != epoch:
                assert self._queue is None or self._queue.done.all(), "an epoch began before the last one was done"
                self._queue = BatchQueue(epoch, np.zeros(size, np.bool_), num_ranks=self._num_ranks)
                self._read = [self._version] * self._num_ranks  # all have met, with these weights
            queue = self._queue
            assert queue.done.shape == size, "a checkpoint's epoch has other batches"
            if queue.come(rank, count):
                self._turn.notify_all()
            await self._until(lambda: queue.first(rank) is not None)
            return queue.first(rank) or []

    async def push(self, push: Push) -> Reply:
        """Take a rank's gradients and return weights when the mode lets it go on.

        One that comes again is not added again, and gets the loss and the batches that the first got. Raises
        ServerClosedError where its rank has pushed another since, so that nobody waits for this answer.
        """
        rank = push.rank
        async with self._turn:
            if (push.fit, push.step) < (self._fit, self._clocks[rank] - 1):
                raise ServerClosedError(f"rank {rank} is past its step {push.step}", where="train.updater")
            if self._mode == "synchronous":
                await self._apply_step(push)
            else:
                await self._apply_push(push)
            if not self._is_answered(push):
                self._parked.discard(rank)
                self._read[rank] = self._version
                taken = [] if self._queue is None else self._queue.take(rank)
                self._answers[rank] = _Answer(push.step, self._tallies[rank].take(), taken)
            given = self._answers[rank]
            return Reply(self._shard.weights(), given.loss, self._version, given.batches)

    async def pause(self, rank: int) -> Pause:
        """Hold all ranks where they have no batch under way. rank: the one that asks, which has none."""
        async with self._turn:
            self._paused = True
            await self._until(lambda: not any(self._is_under_way(other) for other in self._others(rank)))
            assert self._queue is not None
            return Pause(self._version, self._queue.epoch, self._queue.done.copy())

    async def reach(self, version: int) -> None:
        """Return when the weights are of a version, in a pause."""
        async with self._turn:
            await self._until(lambda: self._version >= version)
            assert self._version == version, "a batch was under way"

    async def resume(self) -> None:
        """Let ranks continue after a pause."""
        async with self._turn:
            self._paused = False
            self._turn.notify_all()

    async def pull(self, wanted: Sequence[IntArray]) -> list[FloatArray]:
        """Return these rows of each table as they are."""
        return self._shard.rows(wanted)

    async def fetch(self) -> Weights:
        """Return all weights as they are."""
        return Weights(self._shard.weights(), self._shard.whole_tables(), self._version)

    async def state(self) -> State:
        """Return the optimiser's state."""
        return self._shard.state()

    async def clocks(self) -> list[int]:
        """Return how many steps each rank has pushed in this fit."""
        return list(self._clocks)

    async def figures(self) -> dict[str, float]:
        """Return the counts of stale and stolen batches in the first fit, by name of the metric.

        Ranks that go on from the last checkpoint of all begin none.
        """
        return (self._counted or [Staleness()])[0].figures()

    async def close(self) -> None:
        """Release all ranks that wait."""
        async with self._turn:
            self._closed = True
            self._turn.notify_all()

    async def _apply_step(self, push: Push) -> None:
        if push.step >= self._clocks[push.rank]:
            self._waiting[push.rank] = push
        if len(self._waiting) == self._num_ranks:
            pushes = [self._waiting.pop(rank) for rank in range(self._num_ranks)]
            for tally in self._tallies:
                for each in pushes:
                    tally.add(each)
            self._shard.step(pushes)
            self._version += 1
            self._clocks = [each.step + 1 for each in pushes]
            self._turn.notify_all()
        await self._until(lambda: self._clocks[push.rank] > push.step)

    async def _apply_push(self, push: Push) -> None:
        if push.step >= self._clocks[push.rank]:
            self._add(push)
            self._parked.add(push.rank)
        await self._until(lambda: self._is_answered(push) or self._may_continue(push.rank))

    def _add(self, push: Push) -> None:
        """Step with one rank's gradients."""
        for tally in self._tallies:
            tally.add(push)
        self._counted[-1].add(self._version - push.version)
        self._shard.step([push])
        self._version += 1
        self._clocks[push.rank] = push.step + 1
        if push.batch is not None and self._queue is not None:  # the first server has it
            self._counted[-1].stolen += self._queue.finish(push.rank, push.batch)
        self._turn.notify_all()

    def _is_answered(self, push: Push) -> bool:
        return self._answers[push.rank].step >= push.step

    def _may_continue(self, rank: int) -> bool:
        """Return whether a rank that has pushed may begin another batch."""
        if self._paused:
            return False
        if self._mode != "bounded":
            return True
        if not self._stealing:
            return self._clocks[rank] - min(self._clocks) <= self._staleness
        if self._queue is None:  # the first server has it
            return True
        read = [self._read[each] for each in self._others(rank) if self._is_under_way(each)]
        return self._version - min(read, default=self._version) <= self._staleness * self._num_ranks

    def _others(self, rank: int) -> list[int]:
        return [other for other in range(self._num_ranks) if other != rank]

    def _is_under_way(self, rank: int) -> bool:
        """Return whether a rank has taken a batch, and computes."""
        return self._queue is not None and self._queue.holds(rank) and rank not in self._parked

    async def _until(self, ready: Callable[[], bool]) -> None:
        await self._turn.wait_for(lambda: self._closed or ready())
        if self._closed:
            raise ServerClosedError("the parameter server was told to end", where="train.updater")
