"""Parameter servers: Dask actors that hold the weights and the optimiser, each of some of the parameters.

(AGL, section 3.3.) A rank computes a gradient, pushes it to every server and gets weights back, in one call per server
and step. When a server steps is the mode:

- synchronous: once per step, with the gradients of all ranks in rank order, weighed as all-reduce weighs them. Every
  rank waits for all; the weights are those of all-reduce to rounding.
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

A large parameter that is looked up by rows (`tables.py`) does not come back with the others: before a step a rank pulls
the rows that its batch reads, and it pushes the gradients of those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn

from gnnflow.config import ParameterServerConfig, TrainConfig
from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.errors import ClusterError
from gnnflow.train.ranks.stealing import BatchQueue
from gnnflow.train.ranks.tables import RowTable
from gnnflow.train.source import DealtBatch
from gnnflow.train.updater import LocalUpdater, StepLoss

State = dict[str, Array]


class ServerClosedError(ClusterError):
    """The attempt that this server belongs to is over."""


@dataclass(frozen=True)
class RowGradients:
    """Gradients [R, W] of distinct rows [R] of a table, ascending."""

    rows: IntArray
    gradients: FloatArray


@dataclass(frozen=True)
class Push:
    """One rank's part of a step: gradients of a server's dense parameters, one after the other, and which there are.

    tables: the gradients of each of its tables, None where the batch read none of it.
    loss: the mean over num_targets labelled targets; weight: what that mean was divided by. rate: the learning rate,
    where it is another than the config's. version: of the weights that the gradients were computed with. batch: which
    of the epoch's batches this was, where ranks take them from a queue.
    """

    rank: int
    step: int
    gradients: FloatArray
    present: Array
    loss: float
    weight: float
    num_targets: int
    rate: float | None = None
    tables: tuple[RowGradients | None, ...] = ()
    version: int = 0
    batch: DealtBatch | None = None


@dataclass(frozen=True)
class Reply:
    """The dense weights after a push, and the loss of the targets that they have seen since this rank's last one.

    version: of the weights. batches: what the rank computes next, from the queue.
    """

    weights: FloatArray
    loss: StepLoss
    version: int = 0
    batches: Sequence[DealtBatch] = ()


@dataclass
class _Tally:
    """Losses to report to one rank."""

    loss_sum: float = 0.0
    weight: float = 0.0
    num_targets: int = 0

    def add(self, push: Push) -> None:
        self.loss_sum += push.loss * push.weight
        self.weight += push.weight
        self.num_targets += push.num_targets

    def take(self) -> StepLoss:
        taken = StepLoss(self.loss_sum / (self.weight or 1.0), self.num_targets)
        self.loss_sum, self.weight, self.num_targets = 0.0, 0.0, 0
        return taken


@dataclass
class Staleness:
    """Updates that others made between a push's weights and its own update; batches that were stolen."""

    pushes: int = 0
    total: int = 0
    most: int = 0
    stolen: int = 0

    def add(self, updates: int) -> None:
        """Count a push."""
        self.pushes, self.total, self.most = self.pushes + 1, self.total + updates, max(self.most, updates)

    def figures(self) -> dict[str, float]:
        """Return them by name of the metric."""
        return {
            "train.mean_staleness": self.total / max(self.pushes, 1),
            "train.max_staleness": self.most,
            "train.stolen_batches": self.stolen,
        }


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
            if parameters is None:
                await self._until(lambda: self._fit >= fit)
                return
            self._shard = Shard(parameters, self._train, tables=tables)
            self._shard.restore(state or {})
            self._waiting: dict[int, Push] = {}
            self._clocks = [0] * self._num_ranks
            self._tallies = [_Tally() for _ in range(self._num_ranks)]
            self._counted.append(Staleness())
            self._version = 0
            self._parked: set[int] = set()  # ranks that have pushed and have no reply yet
            self._read = [0] * self._num_ranks  # version that each rank computes with
            self._paused = False
            self._queue = None if done is None else BatchQueue(*done, num_ranks=self._num_ranks)
            self._fit = fit
            self._turn.notify_all()

    async def open_epoch(self, rank: int, epoch: int, *, size: tuple[int, int], count: int) -> list[DealtBatch]:
        """Return a rank's first batches of an epoch. size: number of shares, and batches of each."""
        async with self._turn:
            await self._until(lambda: not self._paused)
            if self._queue is None or self._queue.epoch != epoch:
                assert self._queue is None or self._queue.done.all(), "an epoch began before the last one was done"
                self._queue = BatchQueue(epoch, np.zeros(size, np.bool_), num_ranks=self._num_ranks)
                self._read = [self._version] * self._num_ranks  # all have met, with these weights
            assert self._queue.done.shape == size, "a checkpoint's epoch has other batches"
            return self._taken(rank, count)

    async def push(self, push: Push) -> Reply:
        """Take a rank's gradients and return weights when the mode lets it go on."""
        rank = push.rank
        async with self._turn:
            if self._mode == "synchronous":
                await self._together(push)
            else:
                self._at_once(push)
                self._parked.add(rank)
                await self._until(lambda: self._may_go_on(rank))
                self._parked.discard(rank)
            self._read[rank] = self._version
            taken = self._taken(rank, 1)
            return Reply(self._shard.weights(), self._tallies[rank].take(), self._version, taken)

    async def pause(self, rank: int) -> tuple[int, int, Array]:
        """Hold all ranks where they have no batch under way; return version, epoch and which of its batches are done.

        rank: the one that asks, which has none. The version is that which every server comes to.
        """
        async with self._turn:
            self._paused = True
            await self._until(lambda: not any(self._is_under_way(other) for other in self._others(rank)))
            assert self._queue is not None
            return self._version, self._queue.epoch, self._queue.done.copy()

    async def reach(self, version: int) -> None:
        """Return when the weights are of a version, in a pause."""
        async with self._turn:
            await self._until(lambda: self._version >= version)
            assert self._version == version, "a batch was under way"

    async def resume(self) -> None:
        """Let ranks go on after a pause."""
        async with self._turn:
            self._paused = False
            self._turn.notify_all()

    async def pull(self, wanted: Sequence[IntArray]) -> list[FloatArray]:
        """Return these rows of each table as they are."""
        return self._shard.rows(wanted)

    async def fetch(self) -> tuple[FloatArray, list[FloatArray], int]:
        """Return the dense weights and the whole tables as they are, and their version."""
        return self._shard.weights(), self._shard.whole_tables(), self._version

    async def state(self) -> State:
        """Return the optimiser's state."""
        return self._shard.state()

    async def clocks(self) -> list[int]:
        """Return how many steps each rank has pushed in this fit."""
        return list(self._clocks)

    async def figures(self) -> dict[str, float]:
        """Return what was stale or stolen in the first fit, by name of the metric."""
        return self._counted[0].figures()

    async def close(self) -> None:
        """Let go of whoever waits."""
        async with self._turn:
            self._closed = True
            self._turn.notify_all()

    async def _together(self, push: Push) -> None:
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

    def _at_once(self, push: Push) -> None:
        for tally in self._tallies:
            tally.add(push)
        self._counted[-1].add(self._version - push.version)
        self._shard.step([push])
        self._version += 1
        self._clocks[push.rank] = push.step + 1
        if push.batch is not None and self._queue is not None:  # the first server has it
            self._queue.finish(push.rank, push.batch)
        self._turn.notify_all()

    def _may_go_on(self, rank: int) -> bool:
        """Return whether a rank that has pushed may begin another batch."""
        if self._paused:
            return False
        if self._mode != "bounded":
            return True
        if not self._stealing:
            return self._clocks[rank] - min(self._clocks) <= self._staleness
        if self._queue is None:  # the first server has it
            return True
        late = [each for each in self._others(rank) if self._is_under_way(each) or not self._queue.has_begun(each)]
        read = [self._read[each] for each in late]
        return self._version - min(read, default=self._version) <= self._staleness * self._num_ranks

    def _others(self, rank: int) -> list[int]:
        return [other for other in range(self._num_ranks) if other != rank]

    def _is_under_way(self, rank: int) -> bool:
        """Return whether a rank has taken a batch, and computes."""
        return self._queue is not None and self._queue.holds(rank) and rank not in self._parked

    def _taken(self, rank: int, count: int) -> list[DealtBatch]:
        if self._queue is None:
            return []
        before = self._queue.stolen
        taken = self._queue.take(rank, count)
        self._counted[-1].stolen += self._queue.stolen - before
        return taken

    async def _until(self, ready: Callable[[], bool]) -> None:
        await self._turn.wait_for(lambda: self._closed or ready())
        if self._closed:
            raise ServerClosedError("the parameter server was told to end", where="train.updater")


class Shard:
    """Some parameters and their optimiser. tables: how many of the parameters, the last ones, are looked up by rows."""

    def __init__(self, parameters: Sequence[FloatArray], train: TrainConfig, *, tables: int = 0) -> None:
        self._parameters = nn.ParameterList([torch.tensor(each) for each in parameters])
        self._updater = LocalUpdater(self._parameters, train)
        self._num_dense = len(parameters) - tables
        self._bounds = bounds_of([tuple(each.shape) for each in parameters[: self._num_dense]])
        self._tables = [RowTable(each.detach(), train) for each in self._looked_up]
        for each in self._looked_up:
            each.data = each.data[:0]

    @property
    def _looked_up(self) -> list[nn.Parameter]:
        """What stands for the tables in the optimiser: the rows of the last step."""
        return list(self._parameters)[self._num_dense :]

    def step(self, pushes: Sequence[Push]) -> None:
        """Step with the mean of the pushes' gradients, weighed and in their order."""
        if pushes[0].rate is not None:
            self._updater.set_rate(pushes[0].rate)
        total = sum(each.weight for each in pushes) or 1.0
        mean = np.zeros(self._bounds[-1], np.float32)
        for each in pushes:
            mean += each.gradients * np.float32(each.weight)
        mean /= np.float32(total)
        present = np.any([each.present for each in pushes], axis=0)
        # The gradient of the sum of parameters times constants is those constants, to the bit.
        parts = zip(self._parameters, self._bounds, self._bounds[1:], present, strict=False)
        products = [
            (parameter * torch.from_numpy(mean[start:stop]).view_as(parameter)).sum()
            for parameter, start, stop, there in parts
            if there
        ]
        lent = self._lent(pushes, total)
        products += [(self._looked_up[place] * gradients).sum() for place, (_, gradients) in lent.items()]
        if products:
            self._updater.step(torch.stack(products).sum())
        for place, (rows, _) in lent.items():
            self._tables[place].take_back(rows, self._looked_up[place], self._updater.optimizer)

    def _lent(self, pushes: Sequence[Push], total: float) -> dict[int, tuple[Tensor, Tensor]]:
        """Put the rows that the pushes touch into the optimiser; return them with their mean gradients by table."""
        lent = {}
        for place, table in enumerate(self._tables):
            there = [(each.tables[place], each.weight) for each in pushes]
            given = [(found, weight) for found, weight in there if found is not None]
            if not given:
                continue
            rows = np.unique(np.concatenate([found.rows for found, _ in given]))
            mean = np.zeros((len(rows), given[0][0].gradients.shape[1]), np.float32)
            for found, weight in given:
                mean[np.searchsorted(rows, found.rows)] += found.gradients * np.float32(weight)
            mean /= np.float32(total)
            table.lend(torch.from_numpy(rows), self._looked_up[place], self._updater.optimizer)
            lent[place] = torch.from_numpy(rows), torch.from_numpy(mean)
        return lent

    def weights(self) -> FloatArray:
        """Return all dense parameters, one after the other."""
        dense = list(self._parameters)[: self._num_dense]
        return np.concatenate([np.empty(0, np.float32), *(each.detach().numpy().ravel() for each in dense)])

    def rows(self, wanted: Sequence[IntArray]) -> list[FloatArray]:
        """Return distinct rows of each table."""
        return [table.rows(torch.tensor(rows)).numpy() for table, rows in zip(self._tables, wanted, strict=True)]

    def whole_tables(self) -> list[FloatArray]:
        """Return the tables."""
        return [table.whole().numpy() for table in self._tables]

    def state(self) -> State:
        """Return the optimiser's state by name: that of dense parameters, whether they are looked up by rows or not."""
        dense = {
            name: kept for name, kept in self._updater.state().items() if int(name.split("/")[0]) < self._num_dense
        }
        for place, table in enumerate(self._tables, self._num_dense):
            dense |= {f"{place}/{name}": kept for name, kept in table.state().items()}
        return {name: tensor.numpy() for name, tensor in dense.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Put back what `state` returned."""
        self._updater.restore({name: torch.tensor(array) for name, array in state.items()})
        for place, table in enumerate(self._tables):
            table.restore(self._updater.optimizer.state.pop(self._looked_up[place], {}))


def bounds_of(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return where each of some arrays begins, and the last ends, when they lie one after the other."""
    return list(accumulate((int(np.prod(shape)) for shape in shapes), initial=0))


def dealt(parameters: Sequence[Tensor], num_servers: int) -> list[list[int]]:
    """Return the numbers of the parameters of each server, about as many bytes each: the largest are dealt first."""
    held: list[list[int]] = [[] for _ in range(num_servers)]
    sizes = [0] * num_servers
    for number in sorted(range(len(parameters)), key=lambda number: (-parameters[number].numel(), number)):
        server = sizes.index(min(sizes))
        held[server].append(number)
        sizes[server] += parameters[number].numel()
    return [sorted(numbers) for numbers in held if numbers]


@dataclass
class Part:
    """What one server holds of a model: its parameters here, and where they lie in what is sent."""

    parameters: list[nn.Parameter]
    bounds: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.bounds = bounds_of([tuple(each.shape) for each in self.parameters])

    def gradients(self) -> tuple[FloatArray, Array]:
        """Return the gradients, one after the other, and which there are."""
        content = np.zeros(self.bounds[-1], np.float32)
        for parameter, start, stop in zip(self.parameters, self.bounds, self.bounds[1:], strict=False):
            if parameter.grad is not None:
                content[start:stop] = parameter.grad.detach().cpu().numpy().ravel()
        return content, np.array([parameter.grad is not None for parameter in self.parameters])

    def take(self, weights: FloatArray) -> None:
        """Put weights into the parameters."""
        with torch.no_grad():
            for parameter, start, stop in zip(self.parameters, self.bounds, self.bounds[1:], strict=False):
                parameter.copy_(torch.from_numpy(weights[start:stop]).view_as(parameter))
