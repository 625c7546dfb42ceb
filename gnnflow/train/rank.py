"""A process's part in training: all of it, or one rank's among several.

The trainer asks it for the source of its steps and for the updater of its model, and knows nothing else about ranks.
"""

from __future__ import annotations

from typing import Protocol

from torch import nn

from gnnflow.config import TrainConfig
from gnnflow.train.job import TrainJob
from gnnflow.train.source import OpenSource, Source
from gnnflow.train.state import Row
from gnnflow.train.updater import LocalUpdater, Updater


class Rank(Protocol):
    """One process of a training: its part of each step, and how its weights stay equal to the others'."""

    @property
    def writes_checkpoints(self) -> bool:
        """True if this rank writes the checkpoints that all ranks resume from."""

    @property
    def card(self) -> int:
        """The number of the graphics card that this rank computes on, modulo the machine's cards."""

    def of_all(self, row: Row) -> tuple[Row, ...]:
        """Return the figures of every rank, in rank order. row: this rank's."""

    def open(self, open_source: OpenSource, job: TrainJob, *, edges: bool) -> Source:
        """Return this rank's part of a job's steps, with outputs and labels of whole splits."""

    def updater(self, model: nn.Module, config: TrainConfig) -> Updater:
        """Return the updater of the model's weights."""


class OnlyRank:
    """The only rank of a training: one process does it all."""

    writes_checkpoints = True
    card = 0

    def of_all(self, row: Row) -> tuple[Row, ...]:
        """Return the only figures there are."""
        return (row,)

    def open(self, open_source: OpenSource, job: TrainJob, *, edges: bool) -> Source:
        """Return the job's own source."""
        return open_source(job, edges=edges)

    def updater(self, model: nn.Module, config: TrainConfig) -> Updater:
        """Return an updater that exchanges nothing."""
        return LocalUpdater(model, config)
