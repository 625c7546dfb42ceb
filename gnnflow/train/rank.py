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
    """What this process computes of each step, and how its weights stay those of the others."""

    @property
    def writes_checkpoints(self) -> bool:
        """Whether this rank writes the checkpoints that all of them go on from."""

    @property
    def card(self) -> int:
        """Which of a machine's cards this rank computes on, counted round them."""

    def of_all(self, row: Row) -> tuple[Row, ...]:
        """Return such figures of every rank, in rank order; row: those of this one."""

    def open(self, open_source: OpenSource, job: TrainJob, *, edges: bool) -> Source:
        """Return this rank's part of a job's steps, with outputs and labels of whole splits."""

    def updater(self, model: nn.Module, config: TrainConfig) -> Updater:
        """Return what steps the model's weights."""


class OnlyRank:
    """All of the training in one process."""

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
