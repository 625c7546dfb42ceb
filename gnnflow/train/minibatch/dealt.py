"""What sources of mini-batches have in common: shards of splits, dealt to ranks as the plans of epochs say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.facts import ShardEntry
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.batches import FIXED_VIEW, EpochPlan, PlannedBatch, of_view, plan_epoch, plan_evaluation
from gnnflow.train.reproducible import seed_step
from gnnflow.train.source import DealtBatch
from gnnflow.train.state import Row


class Loader(Protocol):
    """What prepares batches on a thread of its own."""

    @property
    def device(self) -> torch.device:
        """Where its batches are computed on."""

    def labels(self, entries: Iterable[ShardEntry]) -> Iterable[Array]:
        """Yield the labels of each shard."""

    def spent(self) -> Row:
        """Return the seconds of each part of the work so far."""

    def close(self) -> None:
        """End the thread; batches not yet begun are dropped."""


Chosen = TypeVar("Chosen", bound=Loader)


@dataclass(frozen=True)
class Draws:
    """The four numbers that a step's random draws are a function of, and where it is computed."""

    run_seed: int
    epoch: int
    step: int
    rank: int
    device: torch.device

    def seed(self) -> None:
        """Seed torch's generator, which dropout reads."""
        seed_step(self.run_seed, epoch=self.epoch, step=self.step, rank=self.rank, device=self.device)


class Prepared(Protocol):
    """A batch that is ready to compute on."""

    @property
    def targets(self) -> IntArray:
        """Dense ids of its targets [B]."""

    @property
    def labels(self) -> Array:
        """Their labels."""


Batch = TypeVar("Batch", bound=Prepared)


@dataclass(frozen=True)
class PreparedStep(Generic[Batch]):
    """A prepared batch, and what its random draws are a function of."""

    batch: Batch
    draws: Draws

    @property
    def targets(self) -> IntArray:
        """Dense ids of the batch's targets [B]."""
        return self.batch.targets

    @property
    def labels(self) -> Array:
        """Their labels."""
        return self.batch.labels

    def seed(self) -> None:
        """Seed torch's generator, which dropout reads."""
        self.draws.seed()


Planned = TypeVar("Planned")
Planned_co = TypeVar("Planned_co", covariant=True)
Ready = TypeVar("Ready")


class Plan(Protocol[Planned_co]):
    """A share's batches of an epoch."""

    def __getitem__(self, step: int, /) -> Planned_co:
        """Return those of a step."""


def prepared_in_turn(
    places: Iterable[DealtBatch],
    *,
    plan: Callable[[int], Plan[Planned]],
    prepare: Callable[[Iterator[Planned]], Iterator[Ready]],
) -> Iterator[tuple[DealtBatch, Ready]]:
    """Yield each place of an epoch's plan with its batch, prepared as far ahead as `prepare` does.

    plan: gives the batches of a share; each is asked for once.
    """
    begun: deque[DealtBatch] = deque()

    def planned() -> Iterator[Planned]:
        plans: dict[int, Plan[Planned]] = {}
        for place in places:
            begun.append(place)
            if place.share not in plans:
                plans[place.share] = plan(place.share)
            yield plans[place.share][place.step]

    for batch in prepare(planned()):
        yield begun.popleft(), batch


@dataclass(frozen=True, kw_only=True)
class DealtShards(Generic[Chosen]):
    """One rank's part of some shards. Closes its loader when the `with` block ends.

    draws_anew: each epoch trains on a view of its own.
    """

    entries: Sequence[ShardEntry]
    loader: Chosen
    seed: int
    batch_size: int
    eval_batch_size: int
    rank: int = 0
    world_size: int = 1
    draws_anew: bool = False

    @classmethod
    def of_job(cls, job: TrainJob, loader: Chosen, *, draws_anew: bool) -> Self:
        """Return a rank's part of a job's shards."""
        assert isinstance(job.train, MiniBatchConfig)
        return cls(
            entries=job.entries,
            loader=loader,
            seed=job.seed,
            batch_size=job.train.batch_size,
            eval_batch_size=job.train.scoring_size,
            rank=job.rank,
            world_size=job.num_ranks,
            draws_anew=draws_anew,
        )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the loader's thread."""
        self.loader.close()

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches that this rank is dealt, the same for every rank."""
        return len(self.plan(0))

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of each shard of the train split that this rank tells of."""
        return self.loader.labels(self.of("train")[self.rank :: self.world_size])

    def spent(self) -> Row:
        """Return the seconds of the loader's work so far, by part."""
        return self.loader.spent()

    def places(self, since: int) -> Iterator[DealtBatch]:
        """Return the places of this rank's batches in the plan of an epoch, from step `since` on."""
        return (DealtBatch(self.rank, step) for step in range(since, self.steps_per_epoch))

    def draws(self, epoch: int, place: DealtBatch) -> Draws:
        """Return what a batch draws from."""
        return Draws(self.seed, epoch, place.step, place.share, self.loader.device)

    def plan(self, epoch: int, share: int | None = None) -> EpochPlan:
        """Return the batches of an epoch that this rank is dealt, or another one."""
        return plan_epoch(
            self.of("train"),
            seed=self.seed,
            epoch=epoch,
            batch_size=self.batch_size,
            rank=self.rank if share is None else share,
            world_size=self.world_size,
        )

    def prepared(
        self,
        epoch: int,
        places: Iterable[DealtBatch],
        prepare: Callable[[Iterator[PlannedBatch]], Iterator[Ready]],
    ) -> Iterator[tuple[DealtBatch, Ready]]:
        """Yield places of an epoch's plan with their batches, of the epoch's own view where it has one."""

        def of_epoch(planned: Iterator[PlannedBatch]) -> Iterator[Ready]:
            own = (of_view(batch, FIXED_VIEW + 1 + epoch) for batch in planned)
            return prepare(own if self.draws_anew else planned)

        return prepared_in_turn(places, plan=partial(self.plan, epoch), prepare=of_epoch)

    def plan_scoring(self, split: str) -> Sequence[PlannedBatch]:
        """Return this rank's part of a split in stored order; the ranks' parts follow each other."""
        return plan_evaluation(
            self.of(split), batch_size=self.eval_batch_size, rank=self.rank, world_size=self.world_size
        )

    def no_labels(self, split: str) -> Array:
        """Return the labels of no target of a split, of their type and shape."""
        return next(iter(self.loader.labels(self.of(split)[:1])))[:0]

    def of(self, split: str) -> list[ShardEntry]:
        """Return the shards of a split."""
        return [entry for entry in self.entries if entry.split == split]
