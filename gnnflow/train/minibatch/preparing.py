"""Settings of batch loaders: the in-edges that blocks keep, and the limits for making batches ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.executions.moving import Mover
from gnnflow.graph.edges import Fanout, SamplingKind
from gnnflow.train.minibatch.batches import OPEN_SHARDS
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.profile import Stopwatch

if TYPE_CHECKING:
    from gnnflow.train.job import TrainJob


@dataclass(frozen=True)
class Sample:
    """The stored in-edges that blocks keep.

    fanouts: one per hop, targets first; None keeps all. sampling: how a fan-out's edges were chosen. has_edges: False
    for the graph without its edges, which has no neighbours and degrees of zero.
    """

    fanouts: tuple[Fanout, ...] | None = None
    sampling: SamplingKind = "uniform"
    has_edges: bool = True

    def up_to(self, num_layers: int) -> Sample:
        """Return the sample of a model with so many layers, which uses the first fan-outs."""
        return replace(self, fanouts=self.fanouts and self.fanouts[:num_layers])

    @staticmethod
    def no_edges(num_layers: int) -> Sample:
        """Keep no edge. Nothing is scaled then, since nothing was left out of a sample."""
        return Sample((0,) * num_layers, "none", has_edges=False)


EVERY_EDGE = Sample()


@dataclass(frozen=True)
class Preparing:
    """Settings and limits for making batches ready.

    cache_bytes: of decoded shards and finished batches that are kept. prefetch: how many batches are prepared ahead.
    open_shards: how many decoded shards are held whatever the cache's size. mover: to the device that computes. watch:
    measures the work. agreed: returns the largest of the bytes that a batch takes on the ranks that make it together.
    """

    cache_bytes: int
    prefetch: int
    open_shards: int = OPEN_SHARDS
    mover: Mover = field(default_factory=Mover)
    watch: Stopwatch = field(default_factory=Stopwatch)
    agreed: Callable[[int], int] = int

    @cached_property
    def memory(self) -> Memory[Any, Any]:
        """Decoded shards and finished batches, which builder and loader keep in one budget."""
        return Memory(self.cache_bytes, open_shards=self.open_shards, agreed=self.agreed)

    @property
    def was_read(self) -> Callable[[], None]:
        """Call it where a file was read, to tell that time from what decoding it takes."""
        return partial(self.watch.lap, "read")

    @staticmethod
    def of(job: TrainJob, *, draws_anew: bool) -> Preparing:
        """Return the settings of a job's batches. draws_anew: each epoch has a new view."""
        assert isinstance(job.train, MiniBatchConfig)
        # A view is not read again, so the last epoch's view leaves before the next is drawn.
        open_shards = 2 if draws_anew else OPEN_SHARDS
        return Preparing(job.train.cache, job.train.prefetch, open_shards, Mover(torch.device(job.share.device)))
