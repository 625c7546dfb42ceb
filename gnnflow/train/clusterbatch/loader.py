"""Batches of clusters ready when the trainer asks: one thread cuts them from the graph in memory ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from gnnflow.executions.minibatch import sort_for_backward
from gnnflow.executions.moving import Mover, Sent
from gnnflow.executions.tensors import BatchTensors
from gnnflow.train.minibatch.loader import in_order
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.profile import Stopwatch

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.layers.model import Model


class Movable(Protocol):
    """A batch of which some parts are computed with."""

    @property
    def tensors(self) -> BatchTensors:
        """Its blocks and features."""

    @property
    def moving(self) -> Any:
        """What of it is computed with."""

    def arrived(self, moved: Any) -> Self:
        """Return the batch with these parts where they are computed with."""


Built = TypeVar("Built", bound=Movable)


@dataclass(frozen=True)
class ClusterTensors:
    """Tensors to compute on, with labels (as MiniBatch has them) and dense ids [B] of the targets, the first rows."""

    tensors: BatchTensors
    labels: Array
    targets: IntArray

    @property
    def moving(self) -> BatchTensors:
        """What is computed with."""
        return self.tensors

    def arrived(self, moved: BatchTensors) -> ClusterTensors:
        """Return the batch with tensors where they are computed with."""
        return replace(self, tensors=moved)


@dataclass(frozen=True)
class ClusterLoader(Generic[Built]):
    """Makes batches of clusters. Close it to end its thread.

    build: makes the batch of some clusters in an epoch. model: one like that which is trained. keeps: whether batches
    are the same in every epoch; memory then keeps those that come again.
    """

    build: Callable[[IntArray, int], Built]
    model: Model
    prefetch: int
    memory: Memory[Built, Built]
    reader: ThreadPoolExecutor
    keeps: bool = True
    mover: Mover = field(default_factory=Mover)
    watch: Stopwatch = field(default_factory=Stopwatch)

    def close(self) -> None:
        """End the reader thread; batches not yet begun are dropped."""
        self.reader.shutdown(wait=True, cancel_futures=True)

    def batches(self, groups: Iterable[IntArray], *, epoch: int) -> Iterator[Built]:
        """Yield the batch of each group of clusters, in order, prepared up to `prefetch` ahead."""
        begun = (self._begin(group, epoch) for group in groups)
        with closing(in_order(begun, ahead=self.prefetch)) as sent:
            yield from map(self._arrived, sent)

    def _begin(self, clusters: IntArray, epoch: int) -> Sent[Built, Any] | Future[Sent[Built, Any]]:
        held = self.memory.batch(self._key(clusters))
        if held is not None:
            return self._sent(held)

        def build() -> Sent[Built, Any]:
            return self._sent(self._build(clusters, epoch))

        return self.reader.submit(build) if self.prefetch else build()

    def _sent(self, ready: Built) -> Sent[Built, Any]:
        sort = partial(_sort, self.model, ready) if self.mover.leaves_the_cpu else None
        return Sent(ready, self.mover.begin(ready.moving, then=sort))

    def _arrived(self, sent: Sent[Built, Any]) -> Built:
        return sent.ready.arrived(self.mover.arrived(sent.moved)) if self.mover.leaves_the_cpu else sent.ready

    def _build(self, clusters: IntArray, epoch: int) -> Built:
        self.watch.start()
        built = self.build(clusters, epoch)
        ready = built.arrived(self.mover.pinned(built.moving))
        if not self.mover.leaves_the_cpu:
            sort_for_backward(self.model, ready.tensors)
        self.memory.keep(self._key(clusters), ready)
        self.watch.lap("build")
        return ready

    def _key(self, clusters: IntArray) -> str:
        """Return the key of a batch that every epoch has; empty for one that hardly comes again."""
        return str(clusters[0]) if self.keeps and len(clusters) == 1 else ""


def _sort(model: Model, ready: Movable, moved: Any) -> None:
    sort_for_backward(model, ready.arrived(moved).tensors)
