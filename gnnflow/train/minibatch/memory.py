"""Caches decoded shards and finished batches in one byte budget, so that a trainer need not read them again.

Shards are kept in order of use and the least recently used leave first. Batches are different: every epoch
asks for the same ones in the same order, and evicting the least recently used would then evict each just
before it is needed. So a finished batch stays for good, and none is taken in once batches fill half of the
budget.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from gnnflow.graph.facts import ShardEntry

Shard = TypeVar("Shard")
Batch = TypeVar("Batch")


class Memory(Generic[Shard, Batch]):
    """Decoded shards and finished batches in `budget` bytes, but never fewer than `open_shards` shards.

    One thread reads and keeps; another may ask for held batches meanwhile. agreed: what the bytes of a batch count as,
    so that ranks that make batches together keep the same ones.
    """

    def __init__(self, budget: int, *, open_shards: int, agreed: Callable[[int], int] = int) -> None:
        self._agreed = agreed
        self._budget = budget
        self._open_shards = open_shards
        self._shards: OrderedDict[str, tuple[Shard, int]] = OrderedDict()
        self._batches: dict[str, Batch] = {}
        self._shard_bytes = 0
        self._batch_bytes = 0

    @property
    def num_bytes(self) -> int:
        """The number of bytes of arrays that are held."""
        return self._shard_bytes + self._batch_bytes

    def shard(self, entry: ShardEntry, read: Callable[[ShardEntry], Shard]) -> Shard:
        """Return a decoded shard, reading it where it is not held."""
        found = self._shards.get(entry.name)
        if found is None:
            # Room is made first, for about as much as is stored: else there would be one shard more meanwhile.
            self._shrink(entry.num_bytes, coming=1)
            shard = read(entry)
            found = (shard, array_bytes(shard))
            self._shards[entry.name] = found
            self._shard_bytes += found[1]
            self._shrink()
        self._shards.move_to_end(entry.name)
        return found[0]

    def batch(self, key: str) -> Batch | None:
        """Return a finished batch, or None where it is not held. Batches without a key are never held."""
        return self._batches.get(key)

    def keep(self, key: str, batch: Batch) -> None:
        """Keep a finished batch if it has a key and there is room for it."""
        if not key or key in self._batches:
            return
        size = self._agreed(array_bytes(batch))
        if self._batch_bytes + size <= self._budget // 2:
            self._batches[key] = batch
            self._batch_bytes += size
            self._shrink()

    def _shrink(self, more: int = 0, *, coming: int = 0) -> None:
        """Drop shards until there is room for `more` bytes of so many shards that are coming."""
        while self.num_bytes + more > self._budget and len(self._shards) + coming > self._open_shards:
            _, (_, size) = self._shards.popitem(last=False)
            self._shard_bytes -= size


def array_bytes(value: Any) -> int:
    """Return the bytes of all arrays and tensors below a dataclass, with what it has derived and kept so far.

    Memory that several of them share counts once.
    """
    sizes: dict[int, int] = {}
    for address, size in _arrays(value):
        sizes[address] = max(size, sizes.get(address, 0))
    return sum(sizes.values())


def _arrays(value: Any) -> Iterator[tuple[int, int]]:
    """Yield where each array begins and its bytes."""
    if isinstance(value, np.ndarray):
        yield value.ctypes.data, value.nbytes
    elif isinstance(value, Tensor):
        yield value.data_ptr(), value.nbytes
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _arrays(part)
    elif isinstance(value, Mapping):
        yield from _arrays(list(value.values()))
    elif dataclasses.is_dataclass(value):
        yield from _arrays(list(vars(value).values()))
