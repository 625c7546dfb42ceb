"""The whole graph as a source of training: its targets, nodes or pairs, in few steps, on all ranks together.

Nodes are trained on in one step, pairs in one per fold. A node's outputs are computed at its owner; the rows of a
pair's ends too, and they are sent to the rank that scores the pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import GlobalBatchConfig, PairTask
from gnnflow.executions.globalbatch import (
    Gathered,
    PlacedEdges,
    PlacedLayer,
    RankBatch,
    active_rows,
    forward,
    gathered,
    placed_layers,
    rank_batch,
    with_mirrors,
)
from gnnflow.executions.moving import to_device
from gnnflow.executions.row_exchange import Exchange, OneRank
from gnnflow.executions.stages import UNTIMED, StageClock
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.batch import Block
from gnnflow.graph.splits import SPLITS
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.train.globalbatch.graph import OwnPart, blocks_of, bounds_of, partitions_of, read_part, read_placed
from gnnflow.train.globalbatch.pairs import OwnPairs, hidden_pairs, own_pairs, pair_head
from gnnflow.train.heads import features_of_rows
from gnnflow.train.job import TrainJob
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import Stopwatch, added
from gnnflow.train.reproducible import seed_step
from gnnflow.train.source import Steps
from gnnflow.train.state import Row

_KEPT = "valid"
"""Every epoch uses the batch of this split, as it uses the folds; others are made when asked for."""


@dataclass(frozen=True)
class GlobalBatch:
    """The tensors by which one rank computes B of its targets.

    places [B]: which of its targets, ascending. ends: the rows of pairs' ends, drawn from the pool of this number; None
    where targets are nodes.
    """

    tensors: RankBatch
    places: IntArray
    ends: Gathered | None = None
    pool: int = 0


@dataclass(frozen=True)
class GlobalStep:
    """One step of an epoch on this rank: its targets of a fold."""

    source: GlobalBatchSource
    batch: GlobalBatch
    epoch: int
    fold: int

    @property
    def targets(self) -> IntArray:
        """Dense ids of the step's targets [B]; of pairs, of the nodes that they lead to."""
        return self.source.ids(self.batch.places)

    @property
    def labels(self) -> Array:
        """Labels of the step's targets."""
        return self.source.labels(self.batch.places)

    @property
    def features(self) -> FeatureTensors:
        """Features of this rank's targets; of pairs, and with types, then of all rows of the targets' type."""
        held, ends = self.batch.tensors.features, self.batch.ends
        if ends is not None:
            return features_of_rows(held, ends.rows_of(self.targets))
        return held.rows(0, len(self.batch.places)) if isinstance(held, FeatureTensors) else held.of_targets

    def seed(self) -> None:
        """Seed torch's generator, which dropout reads: with the rank, so with the nodes that it owns."""
        source = self.source
        seed_step(source.seed, epoch=self.epoch, step=self.fold, rank=source.exchange.rank, device=source.device)

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of this rank's targets. All ranks compute theirs together."""
        return self.source.logits(model, self.batch, epoch=self.epoch)


@dataclass(frozen=True)
class GlobalBatchSource(Steps):
    """One rank's part of the graph, its part of each step and of each split's scoring.

    placed: the edges that it computes, where the store has them elsewhere than at their targets. pairs: None where
    targets are nodes.
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
    pairs: OwnPairs | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)
    stages: StageClock = field(default_factory=StageClock)
    _batches: dict[int | str, GlobalBatch] = field(default_factory=dict)

    def close(self) -> None:
        """Free the batches."""
        self._batches.clear()

    @property
    def steps_per_epoch(self) -> int:
        """Number of folds."""
        return 1 if self.pairs is None else self.pairs.num_folds

    def step(self, epoch: int, number: int, *, share: int | None = None) -> GlobalStep:
        """Return this rank's part of a step. All ranks make theirs together."""
        return GlobalStep(self, self.batch(number), epoch, number)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of this rank's targets of a split, in stored order. All ranks compute theirs together.

        Pairs of the train split are scored as they are trained on: without the edges of their fold. Leaves training
        mode.
        """
        model.eval()
        parts = [self.batch(key) for key in (range(self.steps_per_epoch) if split == "train" else [split])]
        with torch.no_grad():
            logits = [self.logits(model, batch, epoch=EVALUATION).float().cpu().numpy() for batch in parts]
        places = np.concatenate([batch.places for batch in parts])
        order = np.argsort(places)
        places = places[order]
        return Outputs(np.concatenate(logits)[order], self.labels(places), self.ids(places))

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of this rank's part of the train split."""
        yield self.labels((self.pairs.stored if self.pairs else self.part).of("train"))

    def spent(self) -> Row:
        """Return the seconds that making batches ready and the layers' stages have taken so far."""
        return added(self.watch.seconds(), self.stages.seconds())

    def ids(self, places: IntArray) -> IntArray:
        """Return the dense ids of some of the rank's targets; of pairs, of the nodes that they lead to."""
        return self.part.rows[places] + self.part.first if self.pairs is None else self.pairs.stored.targets[places]

    def labels(self, places: IntArray) -> Array:
        """Return the labels of some of the rank's targets."""
        labels: Array = (self.part if self.pairs is None else self.pairs.stored).labels[places]
        return labels

    def logits(self, model: Model, batch: GlobalBatch, *, epoch: int) -> Tensor:
        """Return the outputs of targets [B, C]; of links, their scores and their negatives' [B, 1 + K].

        Called on all ranks together.
        """
        stages = UNTIMED if epoch == EVALUATION else self.stages
        rows = forward(model, batch.tensors, self.exchange, recompute=self.recompute, stages=stages)
        if self.pairs is None or batch.ends is None:
            return rows
        candidates = self.pairs.candidates(batch.places, pool=batch.pool, epoch=epoch)
        head = pair_head(self.pairs.stored, batch.places, candidates, batch.ends, model=self.model)
        return to_device(self.device, head).scores(model, with_mirrors(rows, batch.ends, self.exchange))

    def batch(self, key: int | str) -> GlobalBatch:
        """Return the batch of a fold, or of a split that is scored. All ranks make theirs together."""
        if key in self._batches:
            return self._batches[key]
        self.watch.start()
        if self.pairs is None:
            places = self.part.of("train" if isinstance(key, int) else key)
            made = GlobalBatch(self._tensors(self.part.rows[places], self.blocks, self.placed), places)
        else:
            made = self._batch_of_pairs(self.pairs, key)
        if isinstance(key, int) or key == _KEPT:
            self._batches[key] = made
        self.watch.lap("build")
        return made

    def _batch_of_pairs(self, pairs: OwnPairs, key: int | str) -> GlobalBatch:
        if isinstance(key, int):
            places, pool = pairs.of_fold(key), key
        else:
            places, pool = pairs.stored.of(key), pairs.num_folds + SPLITS.index(key)
        blocks, placed = self.blocks, self.placed
        if not pairs.rule.task.messages:
            sources, targets = pairs.stored.sources[places], pairs.stored.targets[places]
            hidden = hidden_pairs(sources, targets, bounds=self.bounds, exchange=self.exchange)
            if isinstance(key, str):
                hidden.check_absent(blocks, split=key)
            else:
                blocks = hidden.left_out_of(blocks)
                placed = placed and hidden.of_all(self.exchange).left_out_of_placed(placed)
        ends = gathered(pairs.ends(places, pool=pool), bounds=self.bounds, exchange=self.exchange)
        return GlobalBatch(self._tensors(ends.targets, blocks, placed), places, ends, pool)

    def _tensors(self, rows: IntArray, blocks: Sequence[Block], edges: PlacedEdges | None) -> RankBatch:
        """Return the tensors by which this rank computes its nodes at some places, ascending.

        edges: the blocks' edges as they are placed; None where that is at their targets.
        """
        active = active_rows(blocks, rows, bounds=self.bounds, exchange=self.exchange)
        features, nodes = self.part.features.take(active.rows), self.part.nodes.take(active.rows)
        placed: Sequence[PlacedLayer] = ()
        if edges is not None:
            placed = placed_layers(active, edges, bounds=self.bounds, exchange=self.exchange)
        made = rank_batch(self.model, active, features=features, nodes=nodes, exchange=self.exchange, placed=placed)
        return to_device(self.device, made)


def open_source(job: TrainJob, *, edges: bool = True, exchange: Exchange | None = None) -> GlobalBatchSource:
    """Return this rank's part of a job. exchange: with the other ranks; None where there is one.

    Raises TrainingError where the graph has fewer partitions than there are ranks, or a held-out link has no candidate
    left.
    """
    neighbors, train, exchange = job.neighbors, job.train, exchange or OneRank()
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
    pairs = own_pairs(job, partitions, exchange) if isinstance(job.task, PairTask) else None
    if pairs is not None and edges:  # without them the candidates are the same
        pairs.check_candidates()
    return GlobalBatchSource(
        part=part,
        blocks=blocks_of(part, neighbors, num_layers=job.model.config.layers),
        bounds=bounds_of(exchange.size, book),
        model=job.model.build().eval(),
        exchange=exchange,
        splits=job.splits,
        seed=job.seed,
        recompute=train.recompute,
        device=torch.device(job.share.device),
        placed=placed,
        pairs=pairs,
        watch=watch,
    )
