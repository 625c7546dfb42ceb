"""Batches as a strategy plans them: built, kept where they come again, and sent to the device that computes.

Batches that are held (see `memory.py`) are handed over as they are. On a card (`executions/moving.py`) copies start as
soon as a batch is built, so they run while the card computes where it is built ahead (`train/ahead.py`). What is held
stays in the memory of the machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Generic, TypeVar

from torch import Tensor

from gnnflow.executions.globalbatch import RankBatch
from gnnflow.executions.minibatch import forward, sort_for_backward
from gnnflow.executions.moving import Moved
from gnnflow.executions.tensors import BatchTensors
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.facts import ShardEntry
from gnnflow.layers import FeatureTensors, Model, TypedFeatureTensors
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.train.ahead import read_ahead
from gnnflow.train.heads import PairHead, features_of
from gnnflow.train.minibatch.batches import PlannedBatch
from gnnflow.train.minibatch.preparing import Preparing

Planned = TypeVar("Planned")


@dataclass(frozen=True)
class Batch:
    """B targets, nodes or pairs, ready to compute on: the blocks of their rows, and what a head indexes of these.

    labels: of the targets, as MiniBatch has them. targets [B]: dense ids of the nodes, or of those that the pairs lead
    to. head: None where the rows are the targets'. rows: computes the rows from the tensors.
    """

    tensors: BatchTensors | RankBatch
    labels: Array
    targets: IntArray
    head: PairHead | None = None
    rows: Callable[[Model, Any], Tensor] = forward

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the targets [B, C]; of links, their scores and their negatives' [B, 1 + K]."""
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
        """Number of outputs of a target."""

    @abstractmethod
    def labels(self, entry: ShardEntry) -> Array:
        """Return the labels of an entry's targets that this rank reads."""

    def check_candidates(self, planned: PlannedBatch) -> None:
        """Raise TrainingError where a held-out pair of a batch has no candidate left to be ranked against."""


class BatchLoader(Generic[Planned]):
    """Makes planned batches. One plan is iterated at a time: shards and scratch space are shared.

    model: one like that which is trained; only what no weight has a part in is asked of it.
    """

    def __init__(self, build: Builder[Planned], *, model: Model, preparing: Preparing) -> None:
        self.build = build
        self.preparing = preparing
        self._model = model
        self._mover = preparing.mover
        self._memory = preparing.memory
        self._building = Lock()  # a failed batch's features are read while others are built ahead

    def features(self, planned: Planned, batch: Batch) -> FeatureTensors:
        """Return the features of all rows that a batch was made of, its targets first; reads them again if need be.

        On a graph with types only of the rows of the targets' type.
        """
        features = batch.tensors.features
        if features is None:
            with self._building:
                features = self.build.features(planned)
        return features_of(features, batch.head)

    def batches(self, planned: Iterable[Planned], *, epoch: int = EVALUATION) -> Iterator[Batch]:
        """Yield the batches of a plan in order, read ahead."""
        begin, is_held = partial(self.begin, epoch=epoch), partial(self.is_held, epoch=epoch)
        with closing(read_ahead(begin, planned, ahead=self.preparing.prefetch, is_held=is_held)) as sent:
            yield from map(self.arrived, sent)

    def is_held(self, planned: Planned, *, epoch: int) -> bool:
        """Return whether a batch is in memory."""
        return self._memory.batch(self.build.key(planned, epoch=epoch)) is not None

    def begin(self, planned: Planned, *, epoch: int) -> Moved[Batch]:
        """Return a batch on its way to the device."""
        batch = self._memory.batch(self.build.key(planned, epoch=epoch)) or self._built(planned, epoch)
        # On a card the orders of the backward pass are sorted there, which is quicker than to copy them.
        sorts = epoch != EVALUATION and self._mover.leaves_the_cpu
        return self._mover.begin(batch, then=self._sort if sorts else None)

    def arrived(self, moved: Moved[Batch]) -> Batch:
        """Return a batch for the thread that computes on it."""
        return self._mover.arrived(moved)

    def _built(self, planned: Planned, epoch: int) -> Batch:
        watch = self.preparing.watch
        with self._building:
            watch.start()
            batch = self._mover.pinned(self.build(planned, epoch=epoch))
            if epoch != EVALUATION and not self._mover.leaves_the_cpu:
                # The backward pass sorts the edges by source; sorting here, in the reader, keeps that from the trainer.
                self._sort(batch)
            self._memory.keep(self.build.key(planned, epoch=epoch), batch)
            watch.lap("build")
            return batch

    def _sort(self, batch: Batch) -> None:
        if isinstance(batch.tensors, BatchTensors):
            sort_for_backward(self._model, batch.tensors)
