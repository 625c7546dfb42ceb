"""Batches ready when the trainer asks: one thread decodes and vectorises ahead while another computes.

Two stages, as in AGL section 3.3: the reader decodes shards and builds the pruned blocks of the next
`prefetch` batches, the trainer runs the model. Threads, not processes, because Dask workers may not have
children. One reader thread keeps the order of the batches and needs no lock. An error in it is raised where
the trainer asks for that batch, with the reader's own traceback.

Measured on two cores shared with other work (8,192 targets, two layers, fan-outs 15 and 10, one compute
thread): building batches takes 14 to 24 % of an epoch's processor time, which bounds what overlap can save, and
prefetching adds none. From local files an epoch took as long with it as without, 0.18 s. Where each of 8 shards
took 0.1 s to arrive, as from object storage, an epoch fell from 1.00 s to 0.88 s with prefetch 2 and 0.83 s with
8, of which 0.8 s is waiting: what it hides is the computing behind the waiting.

Batches that are held already (see `memory.py`) are handed over without the thread, which would cost more than
it saves.

On a card (`executions/moving.py`) the reader also starts the copies of a batch as soon as it is built, so those of the
next `prefetch` batches run beside the compute. What is held stays in the memory of the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self, TypeVar
from weakref import ref

import torch

from gnnflow.executions.minibatch import aggregates_ahead, first_terms, prepared, sort_for_backward
from gnnflow.executions.moving import Sent
from gnnflow.executions.tensors import BatchTensors, batch_tensors
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.blocks import build_in_place, build_minibatch, new_scratch
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import Shard
from gnnflow.layers import FeatureTensors, Model, Terms, TypedFeatureTensors
from gnnflow.train.minibatch.batches import PlannedBatch
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.minibatch.preparing import EVERY_EDGE, Preparing, Sample
from gnnflow.train.state import Row

Built = TypeVar("Built")
Ready = TypeVar("Ready")


@dataclass(frozen=True)
class ReadyBatch:
    """Tensors to compute on, with labels (as MiniBatch has them) and dense ids [B] of the targets; made as planned."""

    tensors: BatchTensors
    labels: Array
    targets: IntArray
    planned: PlannedBatch


_Sent = Sent[ReadyBatch, BatchTensors]


@dataclass(frozen=True)
class _Open:
    """A decoded shard, and the first layer's terms of its nodes where batches are aggregated ahead."""

    shard: Shard
    terms: Terms | None


class BatchLoader:
    """Turns planned batches into mini-batches. Close it, or use it in a `with` block, to end its thread.

    model: one like that which is trained; only what no weight has a part in is asked of it. `edges=False` gives the
    graph without its edges: no neighbours and degrees of zero. `read` may tell `preparing.watch` of its "read".
    """

    def __init__(
        self,
        read: Callable[[ShardEntry], Shard],
        *,
        model: Model,
        preparing: Preparing,
        sample: Sample = EVERY_EDGE,
        edges: bool = True,
    ) -> None:
        self._read = read
        self._model = model
        self._sample = sample if edges else Sample.no_edges(model.num_layers)
        self._edges = edges
        self._prefetch = preparing.prefetch
        self._watch = preparing.watch
        self._mover = preparing.mover
        self._scratch = new_scratch(0)
        self._memory = Memory[_Open, ReadyBatch](preparing.cache_bytes, open_shards=preparing.open_shards)
        self._last: ref[_Open] | None = None
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gnnflow-reader")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the reader thread."""
        self.close()

    @property
    def device(self) -> torch.device:
        """Where its batches are computed on."""
        return self._mover.device

    def close(self) -> None:
        """End the reader thread; batches not yet begun are dropped."""
        self._reader.shutdown(wait=True, cancel_futures=True)

    def batches(self, planned: Iterable[PlannedBatch], *, for_training: bool = False) -> Iterator[ReadyBatch]:
        """Yield the mini-batches of a plan in order, prepared up to `prefetch` ahead.

        Iterate one plan at a time: shards and scratch space are shared.
        """
        begun = (self._begin(batch, for_training=for_training) for batch in planned)
        with closing(in_order(begun, ahead=self._prefetch)) as sent:
            yield from map(self._arrived, sent)

    def spent(self) -> Row:
        """Return the seconds of each part of the work so far: `READER_PARTS`."""
        return self._watch.seconds()

    def labels(self, entries: Iterable[ShardEntry]) -> Iterator[Array]:
        """Yield the labels of each shard."""
        return (_labels(self._shard(entry).shard) for entry in entries)

    def features(self, batch: ReadyBatch) -> FeatureTensors:
        """Return the features of all rows that a batch was made of, its targets first; reads them again if need be.

        On a graph with types those of the rows of the targets' type.
        """

        def read_again() -> FeatureTensors | TypedFeatureTensors | None:
            opened = self._shard(batch.planned.entry)
            return self._gathered(opened, opened.shard.rows[batch.planned.positions]).features

        # By the reader's thread, which shards and scratch space belong to.
        features = batch.tensors.features or self._reader.submit(read_again).result()
        assert features is not None
        return features.of_targets

    def _begin(self, batch: PlannedBatch, *, for_training: bool) -> _Sent | Future[_Sent]:
        held = self._memory.batch(self._key(batch, for_training=for_training))
        if held is not None:
            return self._sent(held, for_training=for_training)

        def build() -> _Sent:
            return self._sent(self._build(batch, for_training=for_training), for_training=for_training)

        return self._reader.submit(build) if self._prefetch else build()

    def _sent(self, ready: ReadyBatch, *, for_training: bool) -> _Sent:
        # On a card the orders of the backward pass are sorted there, which is quicker than to copy them.
        sort = partial(sort_for_backward, self._model) if for_training and self._mover.leaves_the_cpu else None
        return _Sent(ready, self._mover.begin(ready.tensors, then=sort))

    def _arrived(self, sent: _Sent) -> ReadyBatch:
        if not self._mover.leaves_the_cpu:
            return sent.ready
        return replace(sent.ready, tensors=self._mover.arrived(sent.moved))

    def _key(self, batch: PlannedBatch, *, for_training: bool) -> str:
        # Dropout keeps training from batches that are aggregated ahead, and not evaluation.
        ahead = aggregates_ahead(self._model, training=for_training)
        return f"{batch.key}:ahead" if batch.key and ahead else batch.key

    def _shard(self, entry: ShardEntry) -> _Open:
        return self._memory.shard(entry, self._open)

    def _open(self, entry: ShardEntry) -> _Open:
        self._watch.start()
        shard = self._read(entry)
        self._watch.lap("decode")
        if not self._edges:
            degrees = shard.neighborhood.degrees.zeros
            shard = replace(shard, neighborhood=replace(shard.neighborhood, degrees=degrees))
        opened = _Open(shard, self._terms(shard.neighborhood))
        self._last = ref(opened)
        return opened

    def _terms(self, neighborhood: Neighborhood) -> Terms | None:
        """Return the first layer's terms of all nodes where batches are aggregated ahead."""
        if not aggregates_ahead(self._model, training=False):
            return None
        # Shards of a graph in memory are all of the same nodes.
        last = None if self._last is None else self._last()
        known = None if last is None else last.shard.neighborhood
        if last is not None and known is not None and known.features is neighborhood.features and self._edges:
            return last.terms
        terms = first_terms(self._model, neighborhood.features, neighborhood.degrees)
        self._watch.lap("sums")
        return terms

    def _build(self, batch: PlannedBatch, *, for_training: bool) -> ReadyBatch:
        self._watch.start()
        opened = self._shard(batch.entry)
        if len(self._scratch) < opened.shard.neighborhood.num_nodes:
            self._scratch = new_scratch(opened.shard.neighborhood.num_nodes)
        shard, positions = opened.shard, batch.positions
        tensors = self._tensors(opened, shard.rows[positions], for_training=for_training)
        tensors = self._mover.pinned(tensors)
        ready = ReadyBatch(tensors, _labels(shard)[positions], shard.targets[positions], batch)
        if for_training and not self._mover.leaves_the_cpu:
            # The backward pass sorts the edges by source; sorting here, in the reader, keeps that from the trainer.
            sort_for_backward(self._model, ready.tensors)
        self._memory.keep(self._key(batch, for_training=for_training), ready)
        self._watch.lap("build")
        return ready

    def _tensors(self, opened: _Open, rows: IntArray, *, for_training: bool) -> BatchTensors:
        """Return the blocks of the targets at some rows of a shard."""
        if opened.terms is None or not aggregates_ahead(self._model, training=for_training):
            return self._gathered(opened, rows)
        placed = self._built(build_in_place, opened, rows)
        self._watch.lap("build")
        found = prepared(self._model, opened.terms, placed, features=opened.shard.neighborhood.features)
        self._watch.lap("sums")
        return found

    def _gathered(self, opened: _Open, rows: IntArray) -> BatchTensors:
        """Return the blocks of these targets with the features of all rows, the targets first."""
        return batch_tensors(self._built(build_minibatch, opened, rows), self._model.inputs.schema)

    def _built(self, build: Callable[..., Built], opened: _Open, rows: IntArray) -> Built:
        """Return what one of the builders of blocks makes of these targets."""
        return build(
            opened.shard.neighborhood,
            rows,
            fanouts=self._sample.fanouts,
            num_layers=self._model.num_layers,
            sampling=self._sample.sampling,
            scratch=self._scratch,
        )


def in_order(begun: Iterable[Ready | Future[Ready]], *, ahead: int) -> Generator[Ready, None, None]:
    """Yield what was begun, in order, with up to `ahead` more under way; those not reached are cancelled."""
    waiting: deque[Ready | Future[Ready]] = deque()
    try:
        for batch in begun:
            waiting.append(batch)
            if len(waiting) > ahead:
                yield _ready(waiting.popleft())
        while waiting:
            yield _ready(waiting.popleft())
    finally:
        running = [each for each in waiting if isinstance(each, Future) and not each.cancel()]
        wait(running)


def _ready(batch: Ready | Future[Ready]) -> Ready:
    return batch.result() if isinstance(batch, Future) else batch


def _labels(shard: Shard) -> Array:
    if shard.labels is None:
        raise TrainingError(
            "the graph has no labels", where="graph.label", fix="Name the label column of the node table."
        )
    return shard.labels
