"""Queues an epoch's batches for all ranks: a rank that is ahead takes batches of one that is behind.

Batches are dealt to shares as ever (`gnnflow.train.source.DealtBatch`), so what each of them is, and draws, does not
depend on who computes it. When all ranks have come for an epoch, each takes the batches of its shares in order, and
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
        self._num_ranks = num_ranks
        self._left = [deque(np.flatnonzero(~share).tolist()) for share in done]
        self._held: list[set[DealtBatch]] = [set() for _ in range(num_ranks)]
        self._come: dict[int, int] = {}
        self._first: dict[int, list[DealtBatch]] = {}

    def come(self, rank: int, count: int) -> bool:
        """Note that a rank has come for its first batches; where it is the last of all, deal them and return True.

        They are dealt one to each in turn, first to ranks whose own shares have some left, which so begin with these.
        """
        if rank in self._come:
            return False
        self._come[rank] = count
        if len(self._come) < self._num_ranks:
            return False
        self._first = {each: [] for each in range(self._num_ranks)}
        for turn in range(max(self._come.values())):
            for each in sorted(self._first, key=self._has_own, reverse=True):
                if turn < self._come[each]:
                    self._first[each] += self.take(each)
        return True

    def first(self, rank: int) -> list[DealtBatch] | None:
        """Return a rank's first batches; None before all ranks have come."""
        return self._first.get(rank)

    def take(self, rank: int) -> list[DealtBatch]:
        """Return a rank's next batch, or nothing where none is left: it then gets no more in this epoch."""
        batch = self._next(rank)
        if batch is None:
            return []
        self._held[rank].add(batch)
        return [batch]

    def finish(self, rank: int, batch: DealtBatch) -> bool:
        """Note that a batch that the rank took is in the weights; return whether it is of another rank's share."""
        self._held[rank].remove(batch)
        self.done[batch] = True
        return batch.share % self._num_ranks != rank

    def holds(self, rank: int) -> bool:
        """Return whether a rank has batches that it took and did not finish."""
        return bool(self._held[rank])

    def _has_own(self, rank: int) -> bool:
        return any(self._left[rank :: self._num_ranks])

    def _next(self, rank: int) -> DealtBatch | None:
        for share in range(rank, len(self._left), self._num_ranks):
            if self._left[share]:
                return DealtBatch(share, self._left[share].popleft())
        others = [share for share, left in enumerate(self._left) if left]
        if not others:
            return None
        victim = max(others, key=lambda share: (len(self._left[share]), -share))
        return DealtBatch(victim, self._left[victim].pop())
