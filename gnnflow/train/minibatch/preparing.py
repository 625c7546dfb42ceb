"""Settings of batch loaders: the limits for making batches ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.executions.moving import Mover
from gnnflow.train.minibatch.batches import OPEN_SHARDS
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.profile import Stopwatch

if TYPE_CHECKING:
    from gnnflow.train.job import TrainJob


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
