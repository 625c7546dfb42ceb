"""Mini-batches as a source of training steps: shards of splits, dealt to ranks as the plans of epochs say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, tee
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.splits import SPLITS
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model
from gnnflow.train.minibatch.batches import FIXED_VIEW, EpochPlan, PlannedBatch, plan_epoch, plan_evaluation
from gnnflow.train.minibatch.loader import Batch, BatchLoader, SplitBuilder
from gnnflow.train.outputs import Outputs
from gnnflow.train.reproducible import seed_step
from gnnflow.train.source import DealtBatch
from gnnflow.train.state import Row


class Plan(Protocol):
    """A share's batches of an epoch."""

    def __getitem__(self, step: int, /) -> Any:
        """Return that of a step, as its loader builds it."""


@dataclass(frozen=True)
class BatchStep:
    """A batch that is ready, and the four numbers that its random draws are a function of. plan: of its share."""

    batch: Batch
    loader: BatchLoader[Any]
    plan: Plan
    seeded: int
    epoch: int
    place: DealtBatch

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
        return self.loader.features(self.plan[self.place.step], self.batch)

    def seed(self) -> None:
        """Seed torch's generator, which dropout reads."""
        share, step = self.place
        rank = share + self.loader.rank
        seed_step(self.seeded, epoch=self.epoch, step=step, rank=rank, device=self.loader.device)

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the batch's targets."""
        return self.batch.logits(model)


def steps_at(
    places: Iterable[DealtBatch], *, plan: Callable[[int], Plan], loader: BatchLoader[Any], seed: int, epoch: int
) -> Iterator[BatchStep]:
    """Yield the steps at some places of an epoch, made ready as far ahead as the loader does.

    plan: gives the plan of a share; each is asked for once.
    """
    plan = cache(plan)
    asked, taken = tee(places)
    ready = loader.batches((plan(place.share)[place.step] for place in asked), epoch=epoch)
    pairs = zip(ready, taken, strict=True)
    return (BatchStep(batch, loader, plan(place.share), seed, epoch, place) for batch, place in pairs)


@dataclass(frozen=True, kw_only=True)
class MiniBatchSource:
    """One rank's part of some shards: its batches, its part of each split's scoring and of the labels.

    Closes its loader when the `with` block ends. build: what its loader builds with. draws_anew: each epoch trains on a
    view of its own.
    """

    entries: Sequence[ShardEntry]
    build: SplitBuilder
    loader: BatchLoader[PlannedBatch]
    seed: int
    batch_size: int
    eval_batch_size: int
    rank: int = 0
    world_size: int = 1
    draws_anew: bool = False

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the loader's thread."""
        self.loader.close()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets."""
        found = {entry.split for entry in self.entries if entry.num_samples}
        return tuple(split for split in SPLITS if split in found)

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches that this rank is dealt, the same for every rank."""
        return len(self.plan(0))

    def steps(self, epoch: int, *, since: int) -> Iterator[BatchStep]:
        """Yield the steps of an epoch from step `since` on."""
        return self.chosen(epoch, (DealtBatch(self.rank, step) for step in range(since, self.steps_per_epoch)))

    def chosen(self, epoch: int, places: Iterable[DealtBatch]) -> Iterator[BatchStep]:
        """Yield the steps at these places, whichever share they were dealt to."""
        return steps_at(places, plan=partial(self.plan, epoch), loader=self.loader, seed=self.seed, epoch=epoch)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of this rank's part of a split in stored order; the batch size does not change them.

        The ranks' parts follow each other. A rank without any has outputs for no target. Leaves training mode.
        """
        planned = self._scored(split)
        model.eval()
        logits, targets = [np.empty((0, self.build.width), np.float32)], [np.empty(0, np.int64)]
        labels = [] if planned else [self.build.labels(self._of(split)[0])[:0]]
        with torch.no_grad():
            for batch in self.loader.batches(planned):
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
        """Return the seconds of the loader's work so far, by part."""
        return self.loader.spent()

    def plan(self, epoch: int, share: int | None = None) -> EpochPlan:
        """Return the batches of an epoch that this rank is dealt, or another one."""
        return plan_epoch(
            self._of("train"),
            seed=self.seed,
            epoch=epoch,
            batch_size=self.batch_size,
            rank=self.rank if share is None else share,
            world_size=self.world_size,
            view=FIXED_VIEW + 1 + epoch if self.draws_anew else FIXED_VIEW,
        )

    def _scored(self, split: str) -> Sequence[PlannedBatch]:
        """Return the batches in which this rank scores its part of a split."""
        return plan_evaluation(
            self._of(split), batch_size=self.eval_batch_size, rank=self.rank, world_size=self.world_size
        )

    def _of(self, split: str) -> list[ShardEntry]:
        """Return the shards of a split."""
        return [entry for entry in self.entries if entry.split == split]
