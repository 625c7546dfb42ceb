"""Batches ready when the trainer asks: one thread decodes and vectorises ahead while another computes.

Two stages, as in AGL section 3.3: the reader decodes shards and builds the pruned blocks of the next
`prefetch` batches, the trainer runs the model. Threads, not processes, because Dask workers may not have
children. One reader thread keeps the order of the batches and needs no lock. An error in it is raised where
the trainer asks for that batch, with the reader's own traceback.

Measured on two cores shared with other work (8,192 targets, two layers, fan-outs 15 and 10, one compute
thread): building batches takes 14 to 24 % of an epoch's processor time, which bounds what overlap can save, and
prefetching adds none. From local files an epoch took as long with it as without, 0.18 s. Where each of 8 shards
took 0.1 s to arrive, as from object storage, an epoch fell from 1.00 s to 0.88 s with prefetch 2 and 0.83 s with
8, of which 0.8 s is waiting: what it hides is the computing behind the waiting.

Batches that are held already (see `memory.py`) are handed over without the thread, which would cost more than
it saves.

On a card (`executions/moving.py`) the reader also starts the copies of a batch as soon as it is built, so those of the
next `prefetch` batches run beside the compute. What is held stays in the memory of the machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from gnnflow.executions.globalbatch import RankBatch
from gnnflow.executions.minibatch import forward, sort_for_backward
from gnnflow.executions.moving import Moved
from gnnflow.executions.tensors import BatchTensors
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.facts import ShardEntry
from gnnflow.layers import FeatureTensors, Model, TypedFeatureTensors
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.train.heads import PairHead, features_of
from gnnflow.train.minibatch.batches import PlannedBatch
from gnnflow.train.minibatch.preparing import Preparing
from gnnflow.train.state import Row

Ready = TypeVar("Ready")
Planned = TypeVar("Planned")


@dataclass(frozen=True)
class Batch:
    """B targets, nodes or pairs, ready to compute on: the blocks of their rows, and what a head indexes of these.

    labels: of the targets, as MiniBatch has them. targets [B]: dense ids of the nodes, or of those that the pairs lead
    to. head: None where the rows are the targets'. rows: computes them from the tensors.
    """

    tensors: BatchTensors | RankBatch
    labels: Array
    targets: IntArray
    head: PairHead | None = None
    rows: Callable[[Model, Any], Tensor] = forward

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the targets [B, C], of links the scores of each and of its negatives [B, 1 + K]."""
        rows = self.rows(model, self.tensors)
        return rows if self.head is None else self.head.scores(model, rows)


class Builder(ABC, Generic[Planned]):
    """Makes batches as a strategy plans them."""

    @abstractmethod
    def key(self, planned: Planned, *, epoch: int) -> str:
        """Return the key of a batch that comes again, which may be kept; empty for another."""

    @abstractmethod
    def __call__(self, planned: Planned, *, epoch: int) -> Batch:
        """Return a batch of an epoch, or of EVALUATION where it is scored and not trained on."""

    def features(self, planned: Planned) -> FeatureTensors | TypedFeatureTensors:
        """Return the features of all rows of a batch whose tensors have none, its targets first."""
        raise NotImplementedError


class SplitBuilder(Builder[PlannedBatch]):
    """Makes batches of the targets of splits, as `plan_epoch` and `plan_evaluation` deal them."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many outputs a target has."""

    @abstractmethod
    def labels(self, entry: ShardEntry) -> Array:
        """Return the labels of an entry's targets that this rank reads."""

    def check_candidates(self, planned: PlannedBatch) -> None:
        """Raise TrainingError where a held-out pair of a batch has no candidate left to be ranked against."""


class BatchLoader(Generic[Planned]):
    """Makes planned batches ready ahead. Close it, or use it in a `with` block, to end its thread.

    model: one like that which is trained; only what no weight has a part in is asked of it.
    """

    def __init__(self, build: Builder[Planned], *, model: Model, preparing: Preparing) -> None:
        self.build = build
        self._model = model
        self._prefetch = preparing.prefetch
        self._watch = preparing.watch
        self._mover = preparing.mover
        self._memory = preparing.memory
        self.rank = preparing.rank
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gnnflow-reader")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the reader thread."""
        self.close()

    @property
    def device(self) -> torch.device:
        """Where its batches are computed on."""
        return self._mover.device

    def close(self) -> None:
        """End the reader thread; batches not yet begun are dropped."""
        self._reader.shutdown(wait=True, cancel_futures=True)

    def spent(self) -> Row:
        """Return the seconds of each part of the work so far: `READER_PARTS`."""
        return self._watch.seconds()

    def features(self, planned: Planned, batch: Batch) -> FeatureTensors:
        """Return the features of all rows that a batch was made of, its targets first; reads them again if need be.

        On a graph with types those of the rows of the targets' type.
        """
        # By the reader's thread, which shards and scratch space belong to.
        features = batch.tensors.features
        if features is None:
            features = self._reader.submit(self.build.features, planned).result()
        return features_of(features, batch.head)

    def batches(self, planned: Iterable[Planned], *, epoch: int = EVALUATION) -> Iterator[Batch]:
        """Yield the batches of a plan in order, prepared up to `prefetch` ahead.

        Iterate one plan at a time: shards and scratch space are shared.
        """
        begun = (self._begin(each, epoch) for each in planned)
        with closing(in_order(begun, ahead=self._prefetch)) as sent:
            yield from map(self._mover.arrived, sent)

    def _begin(self, planned: Planned, epoch: int) -> Moved[Batch] | Future[Moved[Batch]]:
        held = self._memory.batch(self.build.key(planned, epoch=epoch))
        if held is not None:
            return self._sent(held, epoch)

        def build() -> Moved[Batch]:
            return self._sent(self._built(planned, epoch), epoch)

        return self._reader.submit(build) if self._prefetch else build()

    def _sent(self, batch: Batch, epoch: int) -> Moved[Batch]:
        # On a card the orders of the backward pass are sorted there, which is quicker than to copy them.
        sorts = epoch != EVALUATION and self._mover.leaves_the_cpu
        return self._mover.begin(batch, then=self._sort if sorts else None)

    def _built(self, planned: Planned, epoch: int) -> Batch:
        self._watch.start()
        batch = self._mover.pinned(self.build(planned, epoch=epoch))
        if epoch != EVALUATION and not self._mover.leaves_the_cpu:
            # The backward pass sorts the edges by source; sorting here, in the reader, keeps that from the trainer.
            self._sort(batch)
        self._memory.keep(self.build.key(planned, epoch=epoch), batch)
        self._watch.lap("build")
        return batch

    def _sort(self, batch: Batch) -> None:
        if isinstance(batch.tensors, BatchTensors):
            sort_for_backward(self._model, batch.tensors)


def in_order(begun: Iterable[Ready | Future[Ready]], *, ahead: int) -> Generator[Ready, None, None]:
    """Yield what was begun, in order, with up to `ahead` more under way; those not reached are cancelled."""
    waiting: deque[Ready | Future[Ready]] = deque()
    try:
        for batch in begun:
            waiting.append(batch)
            if len(waiting) > ahead:
                yield _ready(waiting.popleft())
        while waiting:
            yield _ready(waiting.popleft())
    finally:
        running = [each for each in waiting if isinstance(each, Future) and not each.cancel()]
        wait(running)


def _ready(batch: Ready | Future[Ready]) -> Ready:
    return batch.result() if isinstance(batch, Future) else batch
