"""Batches as a source of training steps: dealt to ranks as the plans of epochs say, on shards or clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import MiniBatchConfig
from gnnflow.executions.moving import Moved
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.facts import ShardEntry
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.batches import PlannedBatch, plan_evaluation
from gnnflow.train.minibatch.loader import Batch, BatchLoader, SplitBuilder
from gnnflow.train.outputs import Outputs
from gnnflow.train.reproducible import seed_step
from gnnflow.train.source import Steps
from gnnflow.train.state import Row


class Plan(Protocol):
    """A share's batches of an epoch."""

    def __len__(self) -> int:
        """Return the number of steps."""

    def __getitem__(self, step: int, /) -> Any:
        """Return the batch of a step, as its loader builds it."""


@dataclass(frozen=True)
class BatchStep:
    """A batch on its way to the device, and the four numbers that its random draws are a function of."""

    moved: Moved[Batch]
    loader: BatchLoader[Any]
    planned: Any
    seeded: int
    epoch: int
    share: int
    number: int

    @cached_property
    def batch(self) -> Batch:
        """The batch, ready to compute on."""
        return self.loader.arrived(self.moved)

    @property
    def targets(self) -> IntArray:
        """Dense ids of the batch's targets [B]; of pairs, of the nodes that they lead to."""
        return self.batch.targets

    @property
    def labels(self) -> Array:
        """Their labels."""
        return self.batch.labels

    @property
    def features(self) -> FeatureTensors:
        """Features of the batch's targets, then of its other rows; of pairs, of all rows."""
        return self.loader.features(self.planned, self.batch)

    def seed(self) -> None:
        """Seed torch's generator, which dropout reads."""
        device = self.loader.preparing.mover.device
        seed_step(self.seeded, epoch=self.epoch, step=self.number, rank=self.share, device=device)

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the batch's targets."""
        return self.batch.logits(model)


@dataclass(frozen=True, kw_only=True)
class MiniBatchSource(Steps):
    """One rank's part of some shards or clusters: its batches, its part of each split's scoring and of the labels.

    plan: gives the batches of an epoch that a share is dealt, which `loader` makes. entries: the shards that are
    scored; build: what the loader of scoring builds with.
    """

    plan: Callable[[int, int], Plan]
    loader: BatchLoader[Any]
    entries: Sequence[ShardEntry]
    splits: tuple[str, ...]
    build: SplitBuilder
    scoring: BatchLoader[PlannedBatch]
    seed: int
    eval_batch_size: int
    rank: int = 0
    world_size: int = 1

    @classmethod
    def of(
        cls,
        job: TrainJob,
        train: MiniBatchConfig,
        *,
        plan: Callable[[int, int], Plan],
        loader: BatchLoader[Any],
        build: SplitBuilder,
        edges: bool,
        **more: Any,
    ) -> Self:
        """Return the source of a job whose loader trains and scores. more: fields of a subclass.

        edges: False in the graph without its edges, where held-out links have the same candidates. Raises TrainingError
        where a held-out link of this rank has no candidate left.
        """
        source = cls(
            plan=plan,
            loader=loader,
            entries=job.graph.entries,
            splits=job.splits,
            build=build,
            scoring=loader,
            seed=job.seed,
            eval_batch_size=train.scoring_size,
            rank=job.share.rank,
            world_size=job.share.num_ranks,
            **more,
        )
        if edges:
            source.check_candidates()
        return source

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches that this rank is dealt, the same for every rank."""
        return len(self.plan(0, self.rank))

    @property
    def ahead(self) -> int:
        """Number of batches that a thread makes ready."""
        return self.loader.preparing.prefetch

    def step(self, epoch: int, number: int, *, share: int | None = None) -> BatchStep:
        """Return a step of this rank's share or of another one."""
        share = self.rank if share is None else share
        planned = self.plan(epoch, share)[number]
        moved = self.loader.begin(planned, epoch=epoch)
        return BatchStep(moved, self.loader, planned, self.seed, epoch, share, number)

    def is_held(self, epoch: int, number: int, *, share: int | None = None) -> bool:
        """Return whether a step's batch is in memory."""
        return self.loader.is_held(self.plan(epoch, self.rank if share is None else share)[number], epoch=epoch)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of this rank's part of a split in stored order; the batch size does not change them.

        The ranks' parts follow each other. A rank without any has outputs for no target. Leaves training mode.
        """
        planned = self._scored(split)
        model.eval()
        logits, targets = [np.empty((0, self.build.width), np.float32)], [np.empty(0, np.int64)]
        labels = [] if planned else [self.build.labels(self._of(split)[0])[:0]]
        with torch.no_grad():
            for batch in self.scoring.batches(planned):
                logits.append(batch.logits(model).cpu().numpy())
                labels.append(batch.labels)
                targets.append(batch.targets)
        return Outputs(np.concatenate(logits), np.concatenate(labels), np.concatenate(targets))

    def check_candidates(self) -> None:
        """Raise TrainingError where a held-out link of this rank's part has no candidate left to be ranked against."""
        for planned in chain.from_iterable(map(self._scored, self.splits)):
            self.build.check_candidates(planned)

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of each shard of the train split that this rank tells of."""
        return map(self.build.labels, self._of("train")[self.rank :: self.world_size])

    def spent(self) -> Row:
        """Return the seconds of making batches so far, by part."""
        return self.loader.preparing.watch.seconds()

    def _scored(self, split: str) -> Sequence[PlannedBatch]:
        """Return the batches in which this rank scores its part of a split."""
        return plan_evaluation(
            self._of(split), batch_size=self.eval_batch_size, rank=self.rank, world_size=self.world_size
        )

    def _of(self, split: str) -> list[ShardEntry]:
        """Return the shards of a split."""
        return [entry for entry in self.entries if entry.split == split]
