"""The whole graph as a source of training: one step per epoch, on all ranks together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from gnnflow.config import GlobalBatchConfig
from gnnflow.executions.globalbatch import (
    PlacedEdges,
    PlacedLayer,
    RankBatch,
    active_rows,
    forward,
    placed_layers,
    rank_batch,
)
from gnnflow.executions.moving import beside
from gnnflow.executions.row_exchange import Exchange, OneRank
from gnnflow.executions.stages import StageClock
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.batch import Block
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model, build_model
from gnnflow.train.globalbatch.graph import OwnPart, blocks_of, bounds_of, partitions_of, read_part, read_placed
from gnnflow.train.job import TrainJob
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import Stopwatch, added
from gnnflow.train.reproducible import seed_step
from gnnflow.train.state import Row

_KEPT = ("train", "valid")
"""Splits whose batches are used in every epoch; those of others are made where they are asked for."""


@dataclass(frozen=True)
class GlobalStep:
    """An epoch's one step on this rank, and the four numbers that its random draws are a function of."""

    source: GlobalBatchSource
    batch: RankBatch
    targets: IntArray
    labels: Array
    epoch: int

    @property
    def features(self) -> FeatureTensors:
        """Features of this rank's targets; on a graph with types of all rows of their type."""
        held = self.batch.features
        return held.rows(0, len(self.targets)) if isinstance(held, FeatureTensors) else held.of_targets

    def seed(self) -> None:
        """Seed torch's generator, which dropout reads: with the rank, so with the nodes that it owns."""
        source = self.source
        seed_step(source.seed, epoch=self.epoch, step=0, rank=source.exchange.rank, device=source.device)

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of this rank's targets. All ranks compute theirs together."""
        source = self.source
        return forward(model, self.batch, source.exchange, recompute=source.recompute, stages=source.stages)


@dataclass(frozen=True)
class GlobalBatchSource:
    """One rank's part of the graph, its part of the step and of each split's scoring.

    placed: the edges that it computes, where the store has them elsewhere than at their targets.
    """

    part: OwnPart
    blocks: Sequence[Block]
    bounds: IntArray
    model: Model
    exchange: Exchange
    splits: tuple[str, ...]
    seed: int
    recompute: bool
    device: torch.device
    placed: PlacedEdges | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)
    stages: StageClock = field(default_factory=StageClock)
    _batches: dict[str, RankBatch] = field(default_factory=dict)

    steps_per_epoch = 1

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the batches go."""
        self._batches.clear()

    def steps(self, epoch: int, *, since: int) -> Iterator[GlobalStep]:
        """Yield the epoch's step, unless it is taken."""
        for _ in range(since, self.steps_per_epoch):
            rows = self.part.of("train")
            yield GlobalStep(self, self._batch("train"), self._ids(rows), self.part.labels[rows], epoch)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of this rank's targets of a split, in dense id order. All ranks compute theirs together.

        Leaves training mode.
        """
        model.eval()
        rows = self.part.of(split)
        with torch.no_grad():
            logits = forward(model, self._batch(split), self.exchange).float().cpu().numpy()
        return Outputs(logits, self.part.labels[rows], self._ids(rows))

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of this rank's part of the train split."""
        yield self.part.labels[self.part.of("train")]

    def spent(self) -> Row:
        """Return the seconds that making batches ready has taken so far, and those of the layers' stages."""
        return added(self.watch.seconds(), self.stages.seconds())

    def _ids(self, rows: IntArray) -> IntArray:
        return self.part.rows[rows] + self.part.first

    def _batch(self, split: str) -> RankBatch:
        """Return what this rank computes for the targets of a split."""
        if split in self._batches:
            return self._batches[split]
        self.watch.start()
        batch = self.made(self.part.rows[self.part.of(split)], self.blocks, self.placed)
        if split in _KEPT:
            self._batches[split] = batch
        self.watch.lap("build")
        return batch

    def made(self, targets: IntArray, blocks: Sequence[Block], edges: PlacedEdges | None) -> RankBatch:
        """Return what this rank computes for its targets, by their places, ascending, over the in-edges of blocks.

        edges: the same edges where they are placed; None where that is at their targets.
        """
        active = active_rows(blocks, targets, bounds=self.bounds, exchange=self.exchange)
        features, nodes = self.part.features.take(active.rows), self.part.nodes.take(active.rows)
        placed: Sequence[PlacedLayer] = ()
        if edges is not None:
            placed = placed_layers(active, edges, bounds=self.bounds, exchange=self.exchange)
        made = rank_batch(self.model, active, features=features, nodes=nodes, exchange=self.exchange, placed=placed)
        return beside(self.device, made)


def open_source(job: TrainJob, *, edges: bool = True, exchange: Exchange | None = None) -> GlobalBatchSource:
    """Return this rank's part of a job. exchange: with the other ranks; None where there is one.

    Raises TrainingError where the graph has fewer partitions than there are ranks.
    """
    neighbors, train, exchange = job.neighbors, job.train, exchange or OneRank()
    assert neighbors is not None
    assert isinstance(train, GlobalBatchConfig)
    book, watch = neighbors.store.book, Stopwatch()
    partitions = partitions_of(exchange.rank, exchange.size, book)
    watch.start()
    part = read_part(neighbors, partitions)
    placed = None
    if edges and exchange.size > 1:
        placed = read_placed(neighbors.store, partitions)
    watch.lap("read")
    part = part if edges else part.without_edges
    return GlobalBatchSource(
        part=part,
        blocks=blocks_of(part, neighbors, job.fanouts, num_layers=job.model.layers),
        bounds=bounds_of(exchange.size, book),
        model=build_model(job.model, job.inputs).eval(),
        exchange=exchange,
        splits=job.splits,
        seed=job.seed,
        recompute=train.recompute,
        device=torch.device(job.device),
        placed=placed,
        watch=watch,
    )
