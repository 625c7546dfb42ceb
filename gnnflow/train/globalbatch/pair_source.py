"""The whole graph as a source of training on pairs: a fold of them per step, on all ranks together.

Rows of the pairs' ends are computed at their owners, and sent to the rank that scores the pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import EdgeTask, GlobalBatchConfig, LinkTask
from gnnflow.executions.globalbatch import Gathered, RankBatch, forward, gathered, with_mirrors
from gnnflow.executions.row_exchange import Exchange
from gnnflow.executions.tensors import tensor
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.splits import SPLITS
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model
from gnnflow.neighbors.pairs import read_pairs
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.train.globalbatch.graph import partitions_of
from gnnflow.train.globalbatch.pairs import OwnPairs, hidden_pairs, own_pairs
from gnnflow.train.globalbatch.source import GlobalBatchSource, open_source
from gnnflow.train.heads import features_of_rows
from gnnflow.train.job import TrainJob
from gnnflow.train.outputs import Outputs
from gnnflow.train.reproducible import seed_step
from gnnflow.train.state import Row

_KEPT = "valid"
"""The split whose batch is used in every epoch, beside those of the folds."""


@dataclass(frozen=True)
class PairRows:
    """What one rank computes to score B of its pairs, and where their ends lie among the rows it has then.

    places [B]: which of the rank's pairs. sources [B]: rows of their sources. pool: number of their pool.
    """

    batch: RankBatch
    gathered: Gathered
    places: IntArray
    sources: IntArray
    pool: int


@dataclass(frozen=True)
class GlobalPairStep:
    """One fold of an epoch on this rank, and what its random draws are a function of."""

    source: GlobalPairSource
    rows: PairRows
    fold: int
    epoch: int

    @property
    def targets(self) -> IntArray:
        """Dense ids of the nodes that the fold's pairs lead to [B]."""
        return self.source.pairs.stored.targets[self.rows.places]

    @property
    def labels(self) -> Array:
        """Labels of the fold's pairs."""
        return self.source.pairs.labels(self.rows.places)

    @property
    def features(self) -> FeatureTensors:
        """Features of the nodes that the pairs lead to, then of all of this rank's rows, with types of their type."""
        return features_of_rows(self.rows.batch.features, self.rows.gathered.rows_of(self.targets))

    def seed(self) -> None:
        """Seed torch's generator, which dropout reads: with the rank, so with the nodes that it owns."""
        whole = self.source.whole
        seed_step(whole.seed, epoch=self.epoch, step=self.fold, rank=whole.exchange.rank, device=whole.device)

    def logits(self, model: Model) -> Tensor:
        """Return the scores of this rank's pairs. All ranks compute theirs together."""
        return self.source.logits(model, self.rows, epoch=self.epoch, recompute=self.source.whole.recompute)


@dataclass(frozen=True)
class GlobalPairSource:
    """One rank's part of the graph and its pairs. whole: makes batches of its nodes."""

    whole: GlobalBatchSource
    pairs: OwnPairs
    edges: bool
    _made: dict[int | str, PairRows] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the batches go."""
        self._made.clear()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have pairs."""
        return self.whole.splits

    @property
    def steps_per_epoch(self) -> int:
        """Number of folds."""
        return self.pairs.num_folds

    def steps(self, epoch: int, *, since: int) -> Iterator[GlobalPairStep]:
        """Yield the epoch's steps from fold `since` on."""
        for fold in range(since, self.steps_per_epoch):
            yield GlobalPairStep(self, self._of_fold(fold), fold, epoch)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the scores of this rank's pairs of a split in stored order. All ranks compute theirs together.

        Pairs of the train split are scored as they are trained on: without the edges of their fold. Leaves training
        mode.
        """
        model.eval()
        parts = [self._of_split(split)]
        if split == "train":
            parts = [self._of_fold(fold) for fold in range(self.steps_per_epoch)]
        with torch.no_grad():
            logits = [self.logits(model, rows, epoch=EVALUATION).float().cpu().numpy() for rows in parts]
        places = np.concatenate([rows.places for rows in parts])
        order = np.argsort(places)
        places = places[order]
        return Outputs(np.concatenate(logits)[order], self.pairs.labels(places), self.pairs.stored.targets[places])

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of this rank's part of the train split."""
        yield self.pairs.labels(self.pairs.stored.of("train"))

    def spent(self) -> Row:
        """Return the seconds that making batches ready has taken so far."""
        return self.whole.spent()

    def logits(self, model: Model, rows: PairRows, *, epoch: int, recompute: bool = False) -> Tensor:
        """Return the score of each pair and of its negatives [B, 1 + K], or of edges with labels the outputs [B, C].

        Called on all ranks together.
        """
        whole = self.whole
        held = with_mirrors(
            forward(model, rows.batch, whole.exchange, recompute=recompute), rows.gathered, whole.exchange
        )
        candidates = rows.gathered.rows_of(self.pairs.candidates(rows.places, pool=rows.pool, epoch=epoch))
        columns = candidates.shape[1]
        sources = tensor(np.repeat(rows.sources, columns)).to(held.device)
        targets = tensor(candidates.reshape(-1)).to(held.device)
        scores = model.score(held.index_select(0, sources), held.index_select(0, targets), self._attributes(rows))
        return scores.reshape(len(rows.places), columns * scores.shape[1])

    def _attributes(self, rows: PairRows) -> Tensor | None:
        decoder, attributes = self.whole.model.inputs.decoder, self.pairs.stored.attributes
        assert decoder is not None
        if not decoder.attribute_width:
            return None
        assert attributes is not None
        return tensor(attributes[rows.places]).to(self.whole.device)

    def _of_fold(self, fold: int) -> PairRows:
        if fold not in self._made:
            self._made[fold] = self._rows(self.pairs.of_fold(fold), pool=fold, split="train")
        return self._made[fold]

    def _of_split(self, split: str) -> PairRows:
        if split in self._made:
            return self._made[split]
        pool = self.pairs.num_folds + SPLITS.index(split)
        made = self._rows(self.pairs.stored.of(split), pool=pool, split=split)
        if split == _KEPT:
            self._made[split] = made
        return made

    def _rows(self, places: IntArray, *, pool: int, split: str) -> PairRows:
        """Return what this rank computes to score some of its pairs. All ranks make theirs together."""
        whole, pairs = self.whole, self.pairs
        whole.watch.start()
        sources, targets = pairs.stored.sources[places], pairs.stored.targets[places]
        blocks, placed = whole.blocks, whole.placed
        carry = isinstance(pairs.task, EdgeTask) and pairs.task.messages
        if self.edges and not carry:
            hidden = hidden_pairs(sources, targets, bounds=whole.bounds, exchange=whole.exchange)
            if split == "train":
                blocks = hidden.left_out_of(blocks)
                if placed is not None:
                    placed = hidden.of_all(whole.exchange).left_out_of_placed(placed)
            else:
                hidden.check_absent(blocks, split=split)
        found = gathered(pairs.ends(places, pool=pool), bounds=whole.bounds, exchange=whole.exchange)
        batch = whole.made(found.targets, blocks, placed)
        whole.watch.lap("build")
        return PairRows(batch, found, places, found.rows_of(sources), pool)


def open_pair_source(job: TrainJob, *, edges: bool = True, exchange: Exchange | None = None) -> GlobalPairSource:
    """Return this rank's part of a job whose targets are pairs, as `open_source` does."""
    whole = open_source(job, edges=edges, exchange=exchange)
    assert job.neighbors is not None
    assert isinstance(job.train, GlobalBatchConfig)
    assert isinstance(job.task, LinkTask | EdgeTask)
    store, carry = job.neighbors.store, isinstance(job.task, EdgeTask) and job.task.messages
    own = partitions_of(whole.exchange.rank, whole.exchange.size, store.book)
    pairs = own_pairs(
        read_pairs(store, own),
        store,
        own,
        task=job.task,
        seed=job.seed,
        num_folds=1 if carry else job.train.folds,
        exchange=whole.exchange,
        known=job.known,
    )
    if edges:  # without them the candidates are the same
        pairs.check_candidates()
    return GlobalPairSource(whole, pairs, edges)
