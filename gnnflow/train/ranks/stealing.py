"""An epoch's batches as one queue for all ranks: a rank that is ahead takes batches of the one that is behind.

Batches are dealt to shares as ever (`gnnflow.train.source.DealtBatch`), so what each of them is, and draws, does not
depend on who computes it. When all ranks have come for an epoch, each takes the batches of its own shares in order, and
when these are gone the last one of the share that has most left (work stealing: Blumofe and Leiserson, J. ACM 1999,
with the victim chosen by what is left). A batch is *done* when its gradients are in the weights: what is taken and not
done is trained on again by whoever begins from a checkpoint.

Shapes: S shares, B batches of each.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from gnnflow.graph.arrays import Array
from gnnflow.train.source import DealtBatch


class BatchQueue:
    """The batches of one epoch. done [S, B]: which of them are in the weights that training begins from."""

    def __init__(self, epoch: int, done: Array, *, num_ranks: int) -> None:
        self.epoch = epoch
        self.done = done.copy()
        self.stolen = 0
        self._num_ranks = num_ranks
        self._left = [deque(np.flatnonzero(~share).tolist()) for share in done]
        self._held: list[set[DealtBatch]] = [set() for _ in range(num_ranks)]
        self._begun = [False] * num_ranks

    def take(self, rank: int, count: int) -> list[DealtBatch]:
        """Return the next batches of a rank, fewer where fewer are left: it then gets no more in this epoch."""
        taken = [batch for _ in range(count) if (batch := self._next(rank)) is not None]
        self._held[rank].update(taken)
        return taken

    def finish(self, rank: int, batch: DealtBatch) -> None:
        """Note that a batch that the rank took is in the weights."""
        self._held[rank].remove(batch)
        self.done[batch] = True

    def holds(self, rank: int) -> bool:
        """Return whether a rank has batches that it took and did not finish."""
        return bool(self._held[rank])

    def begin(self, rank: int) -> None:
        """Note that a rank has come for its first batches."""
        self._begun[rank] = True

    @property
    def all_have_begun(self) -> bool:
        """Return whether every rank has come for its first batches."""
        return all(self._begun)

    def _next(self, rank: int) -> DealtBatch | None:
        for share in range(rank, len(self._left), self._num_ranks):
            if self._left[share]:
                return DealtBatch(share, self._left[share].popleft())
        others = [share for share, left in enumerate(self._left) if left]
        if not others:
            return None
        victim = max(others, key=lambda share: (len(self._left[share]), -share))
        self.stolen += 1
        return DealtBatch(victim, self._left[victim].pop())
