"""One rank among several, as the loop of training sees it: by all-reduce, or through parameter servers.

`gnnflow.train.rank` says what a rank is, and has the one that is alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from gnnflow.config import TrainConfig
from gnnflow.config.train_section import BatchKeys, pipeline_of
from gnnflow.train.job import TrainJob
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.pushing import ServedUpdater
from gnnflow.train.ranks.source import SharedSource, open_shares
from gnnflow.train.source import DealtBatch, OpenSource, Step
from gnnflow.train.state import Row
from gnnflow.train.updater import LocalUpdater, Updater


@dataclass
class _Joined:
    """Base of ranks that have joined a group. card: the number of the graphics card that it computes on."""

    group: RankGroup
    card: int

    @property
    def writes_checkpoints(self) -> bool:
        """Rank 0 does."""
        return self.group.rank == 0

    def of_all(self, row: Row) -> tuple[Row, ...]:
        """Return the figures of every rank."""
        return self.group.rows(row)


@dataclass
class AllReduceRank(_Joined):
    """One rank whose gradients are averaged with the other ranks' gradients."""

    _sources: list[SharedSource] = field(default_factory=list)

    def open(self, open_source: OpenSource, job: TrainJob, *, edges: bool) -> SharedSource:
        """Return this rank's shares."""
        self._sources.append(open_shares(open_source, job, edges=edges, group=self.group))
        return self._sources[-1]

    def updater(self, model: nn.Module, config: TrainConfig) -> Updater:
        """Return the configured optimiser after an all-reduce, during which the source opened last goes on."""
        exchange = AllReduce(model, self.group, is_joint=pipeline_of(config).is_joint)
        return LocalUpdater(model, config, exchange=exchange, meanwhile=self._sources[-1].make_ready)

    def figures(self) -> dict[str, float]:
        """Return nothing: every step sends the whole gradient."""
        return {}


@dataclass
class ServedRank(_Joined):
    """One rank among several that share their weights through servers: Dask actors of `Server`."""

    servers: Sequence[Any]
    _updaters: list[ServedUpdater] = field(default_factory=list)

    def open(self, open_source: OpenSource, job: TrainJob, *, edges: bool) -> SharedSource:
        """Return this rank's shares, which meet the others' at the end of an epoch."""
        updater = job.train.updater
        stealing = updater.kind == "parameter_server" and updater.stealing
        return open_shares(
            open_source,
            job,
            edges=edges,
            group=self.group,
            look_up=self._look_up,
            settle=self._settle,
            take=partial(self._take, job) if stealing else None,
        )

    def updater(self, model: nn.Module, config: TrainConfig) -> ServedUpdater:
        """Return an updater that steps a model through the servers; each model trains until the next one is given."""
        self._updaters.append(ServedUpdater(model, self.group, self.servers, fit=len(self._updaters)))
        return self._updaters[-1]

    def figures(self) -> dict[str, float]:
        """Return the bytes that this rank moved per step of the training proper, and what was stale or stolen."""
        return self._updaters[0].figures()

    def _look_up(self, shares: Sequence[Step]) -> None:
        self._updaters[-1].look_up(shares)

    def _settle(self) -> None:
        self._updaters[-1].settle()

    def _take(self, job: TrainJob, epoch: int, steps: int) -> Iterator[DealtBatch]:
        assert isinstance(job.train, BatchKeys)
        return self._updaters[-1].take(epoch, size=(job.train.workers, steps), ahead=job.train.prefetch)
