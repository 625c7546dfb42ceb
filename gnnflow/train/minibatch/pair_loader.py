"""Batches of pairs ready when the trainer asks: rows of their ends, negatives, and blocks without their edges.

A batch is made of one shard: its pairs' ends and their negatives, each node once, are the rows whose embeddings one
forward pass gives; pairs are then scored as pairs of these rows. What a batch holds is a function of (seed, epoch) and
of the pairs planned for it.

Shapes: B pairs, K negatives of each, R distinct rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from torch import Tensor

from gnnflow.config import InBatchNegatives, LinkTask
from gnnflow.executions.minibatch import forward, sort_for_backward
from gnnflow.executions.tensors import BatchTensors, batch_tensors, tensor
from gnnflow.graph.arrays import Array, IntArray, distinct
from gnnflow.graph.batch import Degrees, MiniBatch
from gnnflow.graph.edges import SamplingKind
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.exclusion import RowPairs, pairs_seen, without_pairs
from gnnflow.graphfeature.pairs import PairShard
from gnnflow.layers.model import Model
from gnnflow.sampling.pairs import EVALUATION, draw_negatives
from gnnflow.train.minibatch.batches import OPEN_SHARDS, PlannedBatch
from gnnflow.train.minibatch.loader import in_order
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.profile import Stopwatch


@dataclass(frozen=True)
class PairBatch:
    """Tensors to compute the rows on, and the pairs to score: sources [B] with candidates [B, 1 + K], all rows.

    Column 0 of the candidates is the pair's own target, whose dense id is in targets [B]. labels: 0, the column of the
    true target.
    """

    tensors: BatchTensors
    sources: IntArray
    candidates: IntArray
    targets: IntArray
    labels: Array

    def logits(self, model: Model) -> Tensor:
        """Return the score of each pair and of its negatives [B, 1 + K]."""
        rows = forward(model, self.tensors)
        columns = self.candidates.shape[1]
        sources = rows.index_select(0, tensor(np.repeat(self.sources, columns)))
        scores = model.score(sources, rows.index_select(0, tensor(self.candidates.ravel())))
        return scores.view(-1, columns)


@dataclass(frozen=True)
class PairLoader:
    """Makes batches of planned pairs. Close it to end its thread.

    model, fanouts, sampling, prefetch and edges: as `BatchLoader` has them.
    """

    read: Callable[[ShardEntry], PairShard]
    model: Model
    task: LinkTask
    fanouts: tuple[int, ...] | None
    sampling: SamplingKind
    seed: int
    prefetch: int
    memory: Memory[PairShard, PairBatch]
    reader: ThreadPoolExecutor
    edges: bool = True
    watch: Stopwatch = field(default_factory=Stopwatch)

    def close(self) -> None:
        """End the reader thread; batches not yet begun are dropped."""
        self.reader.shutdown(wait=True, cancel_futures=True)

    def batches(self, planned: Iterable[PlannedBatch], *, split: str, epoch: int = EVALUATION) -> Iterator[PairBatch]:
        """Yield the batches of a plan in order, prepared ahead.

        Their pairs' edges are left out of the blocks where the split is train. Elsewhere none may be there: raises
        TrainingError where one is, since its score would be of what it is to predict.
        """
        make = partial(self._make, split=split, epoch=epoch)
        return in_order(
            (self.reader.submit(make, batch) if self.prefetch else make(batch) for batch in planned),
            ahead=self.prefetch,
        )

    def labels(self, entries: Iterable[ShardEntry]) -> Iterator[Array]:
        """Yield the labels of each shard's pairs."""
        return (np.zeros(entry.num_pairs, np.int64) for entry in entries)

    def _make(self, planned: PlannedBatch, *, split: str, epoch: int) -> PairBatch:
        key = planned.key if epoch == EVALUATION else ""
        held = self.memory.batch(key)
        if held is not None:
            return held
        self.watch.start()
        pairs = self.memory.shard(planned.entry, self._open)
        sources, candidates = self._drawn(pairs, planned.positions, epoch=epoch)
        # the distinct target nodes of the shard that take part [R], and every end as a place among them
        rows = distinct(np.concatenate([sources, candidates.ravel()]))
        sources, candidates = np.searchsorted(rows, sources), np.searchsorted(rows, candidates)
        ends = RowPairs(sources, candidates[:, 0], len(rows))
        built = self._blocks(pairs, rows, ends, planned, split=split)
        batch = PairBatch(
            batch_tensors(built),
            sources,
            candidates,
            targets=built.targets[candidates[:, 0]],
            labels=np.zeros(len(sources), np.int64),
        )
        if epoch != EVALUATION:
            sort_for_backward(self.model, batch.tensors)
        self.memory.keep(key, batch)
        self.watch.lap("build")
        return batch

    def _open(self, entry: ShardEntry) -> PairShard:
        pairs = self.read(entry)
        self.watch.lap("decode")
        if self.edges:
            return pairs
        neighborhood = pairs.shard.neighborhood
        zeros = np.zeros(neighborhood.num_nodes, np.int64)
        bare = replace(neighborhood, degrees=Degrees(zeros, zeros, zeros.astype(np.float32)))
        return replace(pairs, shard=replace(pairs.shard, neighborhood=bare))

    def _drawn(self, pairs: PairShard, positions: IntArray, *, epoch: int) -> tuple[IntArray, IntArray]:
        """Return the sources [B] and candidates [B, 1 + K] of planned pairs, as numbers of the shard's targets."""
        sources, targets = pairs.sources[positions], pairs.targets[positions]
        negatives = self.task.negatives
        scoring = epoch == EVALUATION
        in_batch = isinstance(negatives, InBatchNegatives) and not scoring
        drawn = draw_negatives(
            pairs.keys[positions],
            sources,
            targets,
            candidates=targets if in_batch else pairs.pool,
            count=negatives.evaluation if scoring else negatives.per_edge,
            seed=self.seed,
            epoch=epoch,
        )
        return sources, np.concatenate([targets[:, None], drawn], axis=1)

    def _blocks(
        self, pairs: PairShard, rows: IntArray, ends: RowPairs, planned: PlannedBatch, *, split: str
    ) -> MiniBatch:
        shard = pairs.shard
        built = build_minibatch(
            shard.neighborhood,
            shard.rows[rows],
            fanouts=self.fanouts if self.edges else (0,) * self.model.num_layers,
            num_layers=self.model.num_layers,
            sampling=self.sampling if self.edges else "none",
        )
        if split == "train":
            return without_pairs(built, ends)
        seen = pairs_seen(built, ends)
        if len(seen):
            raise _leak(built, ends, int(seen[0]), split=split, shard=planned.entry.name)
        return built


def _leak(built: MiniBatch, ends: RowPairs, pair: int, *, split: str, shard: str) -> TrainingError:
    source, target = (int(built.targets[rows[pair]]) for rows in (ends.sources, ends.targets))
    return TrainingError(
        f"the {split} edge from node number {source} to {target} is among the edges that its score is computed from",
        where=f"shard {shard}",
        fix="The shards were not cut for this split: run ingest and flat again.",
    )


def open_loader(
    read: Callable[[ShardEntry], PairShard],
    *,
    model: Model,
    task: LinkTask,
    fanouts: tuple[int, ...] | None,
    sampling: SamplingKind,
    seed: int,
    prefetch: int,
    cache_bytes: int,
    edges: bool = True,
    watch: Stopwatch | None = None,
) -> PairLoader:
    """Return a loader that keeps decoded shards, and batches that are the same in every epoch, in cache_bytes."""
    return PairLoader(
        read,
        model,
        task,
        fanouts,
        sampling,
        seed,
        prefetch,
        Memory(cache_bytes, open_shards=OPEN_SHARDS),
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="gnnflow-reader"),
        edges=edges,
        watch=watch or Stopwatch(),
    )
