"""One rank's part of a strategy's steps and outputs.

The steps of an epoch are planned for `train.workers` shares. Where there are as many ranks, each has one; where there
are fewer (`train.elastic`), a rank computes its shares of a step together, so that steps, cursor and learning rate stay
what they were and the result is the same to rounding. Of a joint strategy (`Pipeline.is_joint`) each rank has one part,
and fewer ranks have larger ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from gnnflow.config.train_section import BatchKeys, pipeline_of
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model
from gnnflow.train.ahead import read_ahead
from gnnflow.train.job import TrainJob
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import added
from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.source import DealtBatch, OpenJointSource, OpenSource, Source, Step, Steps
from gnnflow.train.state import Row

Take = Callable[[int, int], Iterator[DealtBatch]]


@dataclass(frozen=True)
class JointStep:
    """Several shares of one step, computed one after the other on one rank."""

    shares: Sequence[Step]

    @property
    def labels(self) -> Array:
        """Labels of all shares' targets."""
        return np.concatenate([share.labels for share in self.shares])

    @property
    def targets(self) -> IntArray:
        """Dense ids of all shares' targets."""
        return np.concatenate([share.targets for share in self.shares])

    @property
    def features(self) -> FeatureTensors:
        """Features of the rows that the shares compute on: the targets of all, then the others share by share."""
        each = [(share.features, len(share.targets)) for share in self.shares]
        own = [features.rows(0, count) for features, count in each]
        return FeatureTensors.joined([*own, *(features.rows(count, len(features)) for features, count in each)])

    def seed(self) -> None:
        """Each share is seeded when its outputs are computed."""

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of all shares' targets; each share draws as it would alone on a rank."""
        rows = []
        for share in self.shares:
            share.seed()
            rows.append(share.logits(model))
        return torch.cat(rows)


def _nothing() -> None:
    pass


def _no_look_up(shares: Sequence[Step]) -> None:
    pass


@dataclass(frozen=True)
class SharedSource(Steps):
    """The shares of one rank. What is said of a whole split is joined from all ranks, on every rank.

    look_up: called with the rank's shares of a step before it is computed; settle: when the last step of an epoch is
    taken, before anything is scored. take: gives the rank's batches of an epoch of so many steps, from a queue that all
    ranks share; None where a rank computes its own shares alone.
    """

    shares: Sequence[Source]
    group: RankGroup
    look_up: Callable[[Sequence[Step]], None] = _no_look_up
    settle: Callable[[], None] = _nothing
    take: Take | None = None
    _coming: list[Iterator[Step]] = field(default_factory=list)
    _ready: deque[Step] = field(default_factory=deque)
    _closing: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        """Return itself."""
        for share in self.shares:
            self._closing.enter_context(share)
        return self

    def close(self) -> None:
        """Close the shares."""
        self._closing.close()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets."""
        return self.shares[0].splits

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps, the same on every rank."""
        return self.shares[0].steps_per_epoch

    @property
    def ahead(self) -> int:
        """Number of steps that a thread makes ready."""
        return self.shares[0].ahead

    def step(self, epoch: int, number: int, *, share: int | None = None) -> Step:
        """Return the rank's part of a step, or another share's: the source of any share makes the batches of all."""
        if share is not None:
            return self.shares[0].step(epoch, number, share=share)
        parts = tuple(each.step(epoch, number) for each in self.shares)
        return parts[0] if len(parts) == 1 else JointStep(parts)

    def is_held(self, epoch: int, number: int, *, share: int | None = None) -> bool:
        """Return whether the rank's part of a step is in memory."""
        shares = self.shares if share is None else self.shares[:1]
        return all(each.is_held(epoch, number, share=share) for each in shares)

    def steps(self, epoch: int, *, since: int) -> Generator[Step, None, None]:
        """Yield the rank's part of each step from `since` on."""
        position = self.group.position
        position.at("reading the first batch", epoch=epoch, step=since)
        self.group.agree("place in training", [epoch, since])
        with closing(self._read(epoch, since)) as coming:
            self._coming[:] = [coming]
            self._ready.clear()
            for number in count(since):
                self.make_ready()
                if not self._ready:
                    break
                position.at("a step", epoch=epoch, step=number)
                step = self._ready.popleft()
                self.look_up(step.shares if isinstance(step, JointStep) else (step,))
                yield step
                self.group.check()
        self.settle()

    def _read(self, epoch: int, since: int) -> Generator[Step, None, None]:
        if self.take is None:
            return Steps.steps(self, epoch, since=since)
        return read_ahead(
            lambda place: self.step(epoch, place.step, share=place.share),
            self.take(epoch, self.steps_per_epoch),
            ahead=self.ahead,
            is_held=lambda place: self.is_held(epoch, place.step, share=place.share),
        )

    def make_ready(self) -> None:
        """Make the next step ready now: called while this rank would only wait for the others."""
        if not self._ready:
            self._ready.extend(islice(chain(*self._coming), 1))

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of a split's targets in stored order, which the ranks have computed in parts."""
        self.group.position.at(f"scoring the {split} split")
        parts = [share.outputs(model, split) for share in self.shares]
        joined = self._joined([[each.logits, each.labels, each.targets] for each in parts])
        return Outputs(*joined)

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of the whole train split, of which each rank reads its part."""
        parts = [list(share.train_labels()) for share in self.shares]
        return (part for rank in self.group.gather([each for labels in parts for each in labels]) for part in rank)

    def spent(self) -> Row:
        """Return the seconds of all of the rank's readers."""
        return added(*(share.spent() for share in self.shares))

    def _joined(self, parts: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the arrays of all shares, joined in the order of the shares."""
        width, size = len(parts[0]), self.group.size
        held = self.group.gather([array for part in parts for array in part])
        # share number `share` is the (share // size)-th of rank share % size
        ordered = [
            held[share % size][width * (share // size) : width * (share // size + 1)]
            for share in range(sum(len(each) for each in held) // width)
        ]
        return [np.concatenate(column) for column in zip(*ordered, strict=True)]


def open_shares(
    open_source: OpenSource,
    job: TrainJob,
    *,
    edges: bool,
    group: RankGroup,
    look_up: Callable[[Sequence[Step]], None] = _no_look_up,
    settle: Callable[[], None] = _nothing,
    take: Take | None = None,
) -> SharedSource:
    """Return this rank's shares of a job; of a joint strategy its part of the graph, however many ranks there are."""
    if pipeline_of(job.train).is_joint:
        joint = cast("OpenJointSource", open_source)
        part = joint(job.of_rank(group.rank, group.size), edges=edges, exchange=open_rows(group))
        return SharedSource([part], group)
    numbers = range(group.rank, job.train.workers, group.size)
    assert isinstance(job.train, BatchKeys), "ranks that compute their own share train on batches"
    train = job.train.model_copy(update={"cache": job.train.cache // len(numbers)})
    shares = [replace(job.of_rank(number, job.train.workers), train=train) for number in numbers]
    return SharedSource([open_source(share, edges=edges) for share in shares], group, look_up, settle, take)
