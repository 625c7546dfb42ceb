"""Batches of pairs ready when the trainer asks: rows of their ends, negatives, and blocks without what tells of them.

A batch is made of one shard: its pairs' ends and their negatives, each node once, are the rows whose embeddings one
forward pass gives; pairs are then scored as pairs of these rows. Where edges have times a row is a node at a time, that
of its pair. What a batch holds is a function of (seed, epoch) and of the pairs planned for it.

Shapes: B pairs, K negatives of each (0 where edges have labels), R distinct rows, C outputs of the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import EdgeTask, InBatchNegatives, LinkTask, PairTask
from gnnflow.executions.minibatch import forward, sort_for_backward
from gnnflow.executions.moving import Mover, Sent
from gnnflow.executions.tensors import BatchTensors, batch_tensors, tensor
from gnnflow.graph.arrays import Array, FloatArray, IntArray, distinct
from gnnflow.graph.batch import MiniBatch
from gnnflow.graph.edges import Fanout, SamplingKind
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.exclusion import RowPairs, pairs_seen, without_pairs
from gnnflow.graphfeature.pairs import PairShard
from gnnflow.graphfeature.times import ALL_EARLIER, LateEdge, build_before, cuts, late_edge
from gnnflow.layers.model import Model
from gnnflow.sampling.pairs import EVALUATION, draw_negatives
from gnnflow.train.minibatch.batches import OPEN_SHARDS, PlannedBatch
from gnnflow.train.minibatch.loader import in_order
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.profile import Stopwatch
from gnnflow.train.state import Row

_Moving = tuple[BatchTensors, tuple[Tensor, Tensor], Tensor | None]
"""What of a batch is computed with: its blocks, the rows of its ends, and their edges' attributes."""

_CUT_AGAIN = "The shards were not cut for this split: run ingest and flat again."


@dataclass(frozen=True)
class PairBatch:
    """Tensors to compute the rows on, and the pairs to score: sources [B] with candidates [B, 1 + K], all rows.

    Column 0 of the candidates is the pair's own target, whose dense id is in targets [B]. labels: those of the edges,
    or of links 0, the column of the true target. attributes [B, A]: of edges with labels, for the decoder. ends: the
    rows of each score's source and target [B x (1 + K)], as tensors.
    """

    tensors: BatchTensors
    ends: tuple[Tensor, Tensor]
    sources: IntArray
    candidates: IntArray
    targets: IntArray
    labels: Array
    attributes: Tensor | None = None

    @property
    def moving(self) -> _Moving:
        """What is computed with."""
        return self.tensors, self.ends, self.attributes

    def arrived(self, moved: _Moving) -> PairBatch:
        """Return the batch with what is computed with where it is."""
        tensors, ends, attributes = moved
        return replace(self, tensors=tensors, ends=ends, attributes=attributes)

    def logits(self, model: Model) -> Tensor:
        """Return the score of each pair and of its negatives [B, 1 + K], or of edges with labels the outputs [B, C]."""
        rows = forward(model, self.tensors)
        source, target = (rows.index_select(0, each) for each in self.ends)
        return model.score(source, target, self.attributes).view(len(self.sources), -1)


_Sent = Sent[PairBatch, _Moving]


@dataclass(frozen=True)
class _Rows:
    """The distinct rows of a batch: target nodes of the shard [R], and the cut of each where edges have times [R].

    ends: sources and targets of the pairs, as rows. candidates [B, 1 + K]: rows.
    """

    nodes: IntArray
    cuts: IntArray | None
    ends: RowPairs
    candidates: IntArray


@dataclass(frozen=True)
class PairLoader:
    """Makes batches of planned pairs. Close it to end its thread.

    model, fanouts, sampling, prefetch, edges and mover: as `BatchLoader` has them.
    """

    read: Callable[[ShardEntry], PairShard]
    model: Model
    task: PairTask
    fanouts: tuple[Fanout, ...] | None
    sampling: SamplingKind
    seed: int
    prefetch: int
    memory: Memory[PairShard, PairBatch]
    reader: ThreadPoolExecutor
    edges: bool = True
    mover: Mover = field(default_factory=Mover)
    watch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def no_logits(self) -> FloatArray:
        """The scores of no pairs, as wide as those of some."""
        decoder = self.model.inputs.decoder
        assert decoder is not None
        if isinstance(self.task, LinkTask):
            return np.empty((0, 1 + self.task.negatives.evaluation), np.float32)
        return np.empty((0, decoder.num_outputs), np.float32)

    @property
    def device(self) -> torch.device:
        """Where its batches are computed on."""
        return self.mover.device

    def spent(self) -> Row:
        """Return the seconds of each part of the work so far: `READER_PARTS`."""
        return self.watch.seconds()

    def close(self) -> None:
        """End the reader thread; batches not yet begun are dropped."""
        self.reader.shutdown(wait=True, cancel_futures=True)

    def batches(self, planned: Iterable[PlannedBatch], *, split: str, epoch: int = EVALUATION) -> Iterator[PairBatch]:
        """Yield the batches of a plan in order, prepared ahead.

        Edges that a pair may not be scored from are left out of the blocks: later ones where edges have times, else the
        pairs' own where the split is train. Raises TrainingError where another one is found that would tell of a pair.
        """
        make = partial(self._sent, split=split, epoch=epoch)
        begun = (self.reader.submit(make, batch) if self.prefetch else make(batch) for batch in planned)
        with closing(in_order(begun, ahead=self.prefetch)) as sent:
            yield from map(self._arrived, sent)

    def labels(self, entries: Iterable[ShardEntry]) -> Iterator[Array]:
        """Yield the labels of each shard's pairs."""
        if isinstance(self.task, LinkTask):
            return (np.zeros(entry.num_pairs, np.int64) for entry in entries)
        return (_labels(self.memory.shard(entry, self._open)) for entry in entries)

    def _sent(self, planned: PlannedBatch, *, split: str, epoch: int) -> _Sent:
        ready = self._make(planned, split=split, epoch=epoch)
        sort = partial(_sort, self.model) if epoch != EVALUATION and self.mover.leaves_the_cpu else None
        return _Sent(ready, self.mover.begin(ready.moving, then=sort))

    def _arrived(self, sent: _Sent) -> PairBatch:
        return sent.ready.arrived(self.mover.arrived(sent.moved)) if self.mover.leaves_the_cpu else sent.ready

    def _make(self, planned: PlannedBatch, *, split: str, epoch: int) -> PairBatch:
        key = planned.key if epoch == EVALUATION else ""
        held = self.memory.batch(key)
        if held is not None:
            return held
        self.watch.start()
        pairs = self.memory.shard(planned.entry, self._open)
        sources, candidates = self._drawn(pairs, planned.positions, epoch=epoch)
        rows = _rows_of(pairs, planned.positions if self.edges else None, sources, candidates)
        built = self._blocks(pairs, rows, planned, split=split)
        is_link = isinstance(self.task, LinkTask)
        columns = rows.candidates.shape[1]
        ends = tensor(np.repeat(rows.ends.sources, columns)), tensor(rows.candidates.reshape(-1))
        attributes = self._attributes(pairs, planned.positions)
        tensors = batch_tensors(built, self.model.inputs.schema)
        tensors, ends, attributes = self.mover.pinned((tensors, ends, attributes))
        batch = PairBatch(
            tensors,
            ends,
            rows.ends.sources,
            rows.candidates,
            targets=built.targets[rows.ends.targets],
            labels=np.zeros(len(sources), np.int64) if is_link else _labels(pairs)[planned.positions],
            attributes=attributes,
        )
        if epoch != EVALUATION and not self.mover.leaves_the_cpu:
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
        bare = replace(neighborhood, degrees=neighborhood.degrees.zeros)
        return replace(pairs, shard=replace(pairs.shard, neighborhood=bare))

    def _attributes(self, pairs: PairShard, positions: IntArray) -> Tensor | None:
        decoder = self.model.inputs.decoder
        assert decoder is not None
        if not decoder.attribute_width:
            return None
        assert pairs.attributes is not None
        return tensor(pairs.attributes[positions])

    def _drawn(self, pairs: PairShard, positions: IntArray, *, epoch: int) -> tuple[IntArray, IntArray]:
        """Return the sources [B] and candidates [B, 1 + K] of planned pairs, as numbers of the shard's targets."""
        sources, targets = pairs.sources[positions], pairs.targets[positions]
        if not isinstance(self.task, LinkTask):
            return sources, targets[:, None]
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

    def _blocks(self, pairs: PairShard, rows: _Rows, planned: PlannedBatch, *, split: str) -> MiniBatch:
        if rows.cuts is not None:
            self._check_held_out(pairs, planned, split=split)
            if rows.cuts.min() < ALL_EARLIER:
                return self._timed(pairs, rows, rows.cuts, planned, split=split)
        shard = pairs.shard
        built = build_minibatch(
            shard.neighborhood,
            shard.rows[rows.nodes],
            fanouts=self.fanouts if self.edges else (0,) * self.model.num_layers,
            num_layers=self.model.num_layers,
            sampling=self.sampling if self.edges else "none",
        )
        if rows.cuts is not None or (isinstance(self.task, EdgeTask) and self.task.messages):
            return built
        if split == "train":
            return without_pairs(built, rows.ends)
        seen = pairs_seen(built, rows.ends)
        if len(seen):
            raise _leak(built, rows.ends, int(seen[0]), split=split, shard=planned.entry.name)
        return built

    def _check_held_out(self, pairs: PairShard, planned: PlannedBatch, *, split: str) -> None:
        """Raise TrainingError where an edge that carries messages is as late as a held-out one of a split by time."""
        held_out_carry = isinstance(self.task, EdgeTask) and self.task.messages
        if split == "train" or held_out_carry or self.task.split.kind != "time":
            return
        assert pairs.times is not None
        first, latest = int(pairs.times[planned.positions].min()), pairs.latest
        if latest is not None and latest.time >= first:
            raise _late(latest, f"that {split} edges of time {first} are scored from", shard=planned.entry.name)

    def _timed(
        self, pairs: PairShard, rows: _Rows, before: IntArray, planned: PlannedBatch, *, split: str
    ) -> MiniBatch:
        timed = build_before(
            pairs.shard.neighborhood,
            pairs.shard.rows[rows.nodes],
            before,
            fanouts=self.fanouts,
            num_layers=self.model.num_layers,
            sampling=self.sampling,
        )
        late = late_edge(timed)
        if late is not None:
            raise _late(late, f"that an earlier edge of the {split} split is scored from", shard=planned.entry.name)
        return timed.batch


def _labels(pairs: PairShard) -> Array:
    assert pairs.labels is not None, "edges have labels"
    return pairs.labels


def _rows_of(pairs: PairShard, positions: IntArray | None, sources: IntArray, candidates: IntArray) -> _Rows:
    """Return the distinct rows of pairs and candidates, and these as rows: of times, one for each time of a node.

    positions: of the pairs in the shard, whose times are read there; None where times do not matter.
    """
    size = len(pairs.shard.targets)
    first, moments = np.zeros(len(sources), np.int64), None
    if pairs.times is not None and positions is not None:
        moments, group = np.unique(cuts(pairs.moments, pairs.times[positions]), return_inverse=True)
        first = group * size
    # each (time, target node) as one integer
    sources, candidates = first + sources, first[:, None] + candidates
    keys = distinct(np.concatenate([sources, candidates.ravel()]))
    sources, candidates = np.searchsorted(keys, sources), np.searchsorted(keys, candidates)
    return _Rows(
        keys % max(size, 1),
        None if moments is None else moments[keys // size],
        RowPairs(sources, candidates[:, 0], len(keys)),
        candidates,
    )


def _sort(model: Model, moved: _Moving) -> None:
    sort_for_backward(model, moved[0])


def _leak(built: MiniBatch, ends: RowPairs, pair: int, *, split: str, shard: str) -> TrainingError:
    source, target = (int(built.targets[rows[pair]]) for rows in (ends.sources, ends.targets))
    return TrainingError(
        f"the {split} edge from node number {source} to {target} is among the edges that its score is computed from",
        where=f"shard {shard}",
        fix=_CUT_AGAIN,
    )


def _late(edge: LateEdge, whose: str, *, shard: str) -> TrainingError:
    return TrainingError(
        f"the edge of time {edge.time} from node number {edge.source} to {edge.target} is among those {whose}",
        where=f"shard {shard}",
        fix=_CUT_AGAIN,
    )


def open_loader(
    read: Callable[[ShardEntry], PairShard],
    *,
    model: Model,
    task: PairTask,
    fanouts: tuple[Fanout, ...] | None,
    sampling: SamplingKind,
    seed: int,
    prefetch: int,
    cache_bytes: int,
    edges: bool = True,
    watch: Stopwatch | None = None,
    mover: Mover | None = None,
    open_shards: int = OPEN_SHARDS,
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
        Memory(cache_bytes, open_shards=open_shards),
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="gnnflow-reader"),
        edges=edges,
        watch=watch or Stopwatch(),
        mover=mover or Mover(),
    )
