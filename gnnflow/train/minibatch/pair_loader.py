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
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import InBatchNegatives, LinkTask, PairTask
from gnnflow.executions.minibatch import forward, sort_for_backward
from gnnflow.executions.moving import Sent
from gnnflow.executions.tensors import BatchTensors, batch_tensors, tensor
from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.pairs import PairShard
from gnnflow.layers.model import Model
from gnnflow.neighbors.link_candidates import KnownLinks
from gnnflow.sampling.pairs import EVALUATION, AreEdges, draw_negatives
from gnnflow.train.minibatch.batches import PlannedBatch
from gnnflow.train.minibatch.loader import in_order
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.minibatch.pair_blocks import PairBlocks, rows_of
from gnnflow.train.minibatch.preparing import EVERY_EDGE, Preparing, Sample
from gnnflow.train.state import Row

_Moving = tuple[BatchTensors, tuple[Tensor, Tensor], Tensor | None]
"""What of a batch is computed with: its blocks, the rows of its ends, and their edges' attributes."""


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


class PairLoader:
    """Makes batches of planned pairs. Close it to end its thread.

    seed: of the negatives. known: edges that held-out pairs are not ranked against, where these are left out. model,
    edges, preparing: as `BatchLoader` has them.
    """

    def __init__(
        self,
        read: Callable[[ShardEntry], PairShard],
        *,
        model: Model,
        task: PairTask,
        seed: int,
        preparing: Preparing,
        sample: Sample = EVERY_EDGE,
        edges: bool = True,
        known: KnownLinks | None = None,
    ) -> None:
        self._known = known
        self._read = read
        self._model = model
        self._task = task
        self._seed = seed
        self._edges = edges
        self._blocks = PairBlocks(task, model.num_layers, sample if edges else Sample.no_edges(model.num_layers))
        self._prefetch = preparing.prefetch
        self._watch = preparing.watch
        self._mover = preparing.mover
        self._memory = Memory[PairShard, PairBatch](preparing.cache_bytes, open_shards=preparing.open_shards)
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gnnflow-reader")

    @property
    def no_logits(self) -> FloatArray:
        """The scores of no pairs, as wide as those of some."""
        decoder = self._model.inputs.decoder
        assert decoder is not None
        if isinstance(self._task, LinkTask):
            return np.empty((0, 1 + self._task.negatives.evaluation), np.float32)
        return np.empty((0, decoder.num_outputs), np.float32)

    @property
    def device(self) -> torch.device:
        """Where its batches are computed on."""
        return self._mover.device

    def spent(self) -> Row:
        """Return the seconds of each part of the work so far: `READER_PARTS`."""
        return self._watch.seconds()

    def check_candidates(self, planned: Iterable[PlannedBatch], *, split: str) -> None:
        """Raise TrainingError where edges are left out of the candidates of held-out pairs, and none is left for one.

        Opens their shards, where edges are left out.
        """
        for batch in planned if self._known is not None and split != "train" else ():
            self._watch.start()
            pairs = self._memory.shard(batch.entry, self._open)
            self._drawn(pairs, batch.positions, split=split, epoch=EVALUATION)

    def close(self) -> None:
        """End the reader thread; batches not yet begun are dropped."""
        self._reader.shutdown(wait=True, cancel_futures=True)

    def batches(self, planned: Iterable[PlannedBatch], *, split: str, epoch: int = EVALUATION) -> Iterator[PairBatch]:
        """Yield the batches of a plan in order, prepared ahead.

        Edges that a pair may not be scored from are left out of the blocks: later ones where edges have times, else the
        pairs' own where the split is train. Raises TrainingError where another one is found that would tell of a pair.
        """
        make = partial(self._sent, split=split, epoch=epoch)
        begun = (self._reader.submit(make, batch) if self._prefetch else make(batch) for batch in planned)
        with closing(in_order(begun, ahead=self._prefetch)) as sent:
            yield from map(self._arrived, sent)

    def labels(self, entries: Iterable[ShardEntry]) -> Iterator[Array]:
        """Yield the labels of each shard's pairs."""
        if isinstance(self._task, LinkTask):
            return (np.zeros(entry.num_pairs, np.int64) for entry in entries)
        return (_labels(self._memory.shard(entry, self._open)) for entry in entries)

    def _sent(self, planned: PlannedBatch, *, split: str, epoch: int) -> _Sent:
        ready = self._make(planned, split=split, epoch=epoch)
        sort = partial(_sort, self._model) if epoch != EVALUATION and self._mover.leaves_the_cpu else None
        return _Sent(ready, self._mover.begin(ready.moving, then=sort))

    def _arrived(self, sent: _Sent) -> PairBatch:
        return sent.ready.arrived(self._mover.arrived(sent.moved)) if self._mover.leaves_the_cpu else sent.ready

    def _make(self, planned: PlannedBatch, *, split: str, epoch: int) -> PairBatch:
        key = planned.key if epoch == EVALUATION else ""
        held = self._memory.batch(key)
        if held is not None:
            return held
        self._watch.start()
        pairs = self._memory.shard(planned.entry, self._open)
        sources, candidates = self._drawn(pairs, planned.positions, split=split, epoch=epoch)
        rows = rows_of(pairs, planned.positions if self._edges else None, sources, candidates)
        built = self._blocks.of(pairs, rows, positions=planned.positions, split=split, shard=planned.entry.name)
        is_link = isinstance(self._task, LinkTask)
        columns = rows.candidates.shape[1]
        ends = tensor(np.repeat(rows.ends.sources, columns)), tensor(rows.candidates.reshape(-1))
        attributes = self._attributes(pairs, planned.positions)
        tensors = batch_tensors(built, self._model.inputs.schema)
        tensors, ends, attributes = self._mover.pinned((tensors, ends, attributes))
        batch = PairBatch(
            tensors,
            ends,
            rows.ends.sources,
            rows.candidates,
            targets=built.targets[rows.ends.targets],
            labels=np.zeros(len(sources), np.int64) if is_link else _labels(pairs)[planned.positions],
            attributes=attributes,
        )
        if epoch != EVALUATION and not self._mover.leaves_the_cpu:
            sort_for_backward(self._model, batch.tensors)
        self._memory.keep(key, batch)
        self._watch.lap("build")
        return batch

    def _open(self, entry: ShardEntry) -> PairShard:
        pairs = self._read(entry)
        self._watch.lap("decode")
        if self._edges:
            return pairs
        neighborhood = pairs.shard.neighborhood
        bare = replace(neighborhood, degrees=neighborhood.degrees.zeros)
        return replace(pairs, shard=replace(pairs.shard, neighborhood=bare))

    def _attributes(self, pairs: PairShard, positions: IntArray) -> Tensor | None:
        decoder = self._model.inputs.decoder
        assert decoder is not None
        if not decoder.attribute_width:
            return None
        assert pairs.attributes is not None
        return tensor(pairs.attributes[positions])

    def _drawn(self, pairs: PairShard, positions: IntArray, *, split: str, epoch: int) -> tuple[IntArray, IntArray]:
        """Return the sources [B] and candidates [B, 1 + K] of planned pairs, as numbers of the shard's targets."""
        sources, targets = pairs.sources[positions], pairs.targets[positions]
        if not isinstance(self._task, LinkTask):
            return sources, targets[:, None]
        negatives = self._task.negatives
        scoring = epoch == EVALUATION
        in_batch = isinstance(negatives, InBatchNegatives) and not scoring
        drawn = draw_negatives(
            pairs.keys[positions],
            sources,
            targets,
            candidates=targets if in_batch else pairs.pool,
            count=negatives.evaluation if scoring else negatives.per_edge,
            seed=self._seed,
            epoch=epoch,
            are_edges=self._are_edges(pairs) if scoring and split != "train" else None,
        )
        return sources, np.concatenate([targets[:, None], drawn], axis=1)

    def _are_edges(self, pairs: PairShard) -> AreEdges | None:
        """Return what tells which numbers of a shard's targets are edges; None where no edge is left out."""
        known, nodes = self._known, pairs.shard.targets
        return None if known is None else lambda sources, targets: known.are(nodes[sources], nodes[targets])


def _labels(pairs: PairShard) -> Array:
    assert pairs.labels is not None, "edges have labels"
    return pairs.labels


def _sort(model: Model, moved: _Moving) -> None:
    sort_for_backward(model, moved[0])
