"""What becomes of freed memory while a model is trained.

The C library gives large pieces back to the system when they are freed, and every step of training asks for them anew:
the system then clears each page at its first touch, which takes longer than what is computed in it. Copying 46 MB took
13 ms, and 2 ms in memory that was kept (docs/decisions/0008-native-core.md).

Kept pieces do not always serve again: glibc looks for an aligned piece in one that is larger by its alignment, so a
hole that a tensor left does not take the next tensor of its size. The results of the core, of which a layer over a
whole graph has several as large as its rows, therefore come from pieces of their own (`empty_rows`).
"""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from gnnflow.native import malloc

_KEPT = {malloc.TRIM_THRESHOLD: -1, malloc.MMAP_MAX: 0}  # never trimmed, never mapped apart
_RETURNED = {
    malloc.ARENA_MAX: 1,
    malloc.MMAP_MAX: 65536,
    malloc.MMAP_THRESHOLD: 4 * 1024**2,
    malloc.TRIM_THRESHOLD: 32 * 1024**2,
}
_DEFAULTS = {malloc.TRIM_THRESHOLD: 128 * 1024, malloc.MMAP_THRESHOLD: 32 * 1024**2, malloc.MMAP_MAX: 65536}

_STATM = Path("/proc/self/statm")
_FULL = 0.75  # of a budget

_LEAST = 16 * 1024**2  # bytes of a tensor that has a piece of its own
_LEAST_OF_BUDGET = 256 * 1024  # the same under a budget, where tensors have the rows of an interval
_WASTE = 1.25  # how much larger than a tensor its piece may be
_IDLE = 64  # how many others may be asked for before a piece is given up: more than a step of a few layers does


class _Pieces:
    """Pieces of memory that tensors had and that the next ones get, while `users` is above zero.

    least: bytes of a tensor that has one. most: bytes of all together, those of living tensors included, above which
    no free one is kept; None for any. full: bytes of the process above which it is tidied; None for any.
    """

    def __init__(self) -> None:
        self.users, self.least = 0, _LEAST
        self.most: int | None = None
        self.full: int | None = None
        self._bytes = 0  # of all pieces, free or not
        self._taken = 0  # how many pieces were asked for
        self._free: list[tuple[int, mmap.mmap]] = []  # with how many had been when it was given back
        self._lock = threading.RLock()  # a tensor may end, and give its piece back, in the midst of any of these

    def take(self, size: int) -> mmap.mmap:
        """Return a piece of at least this size. Before one is made, those that none asked for lately are given up."""
        with self._lock:
            self._taken += 1
            fitting = [each for each in self._free if size <= len(each[1]) <= size * _WASTE]
            if fitting:
                best = min(fitting, key=lambda each: len(each[1]))
                self._free.remove(best)
                return best[1]
            whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            self._give_up(whole)
            self._bytes += whole
        piece = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            piece.madvise(mmap.MADV_HUGEPAGE)
        return piece

    def _give_up(self, coming: int) -> None:
        """Drop free pieces that none asked for lately, and as many others as a coming one leaves no room for."""
        free, self._free = self._free, []  # what ends in the midst of this is given to the new list
        kept = [each for each in free if self._taken - each[0] < _IDLE]
        dropped = sum(len(each[1]) for each in free) - sum(len(each[1]) for each in kept)
        while kept and self.most is not None and self._bytes + coming - dropped > self.most:
            dropped += len(kept.pop(0)[1])
        self._free[:0] = kept
        self._bytes -= dropped

    def give(self, piece: mmap.mmap) -> None:
        """Take back a piece whose tensor is gone."""
        with self._lock:
            if self.users:
                self._free.append((self._taken, piece))
            else:
                self._bytes -= len(piece)

    def drop(self) -> None:
        """Drop all free pieces."""
        with self._lock:
            self._bytes -= sum(len(each[1]) for each in self._free)
            self._free.clear()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep pieces for the length of a block."""
        with self._lock:
            self.users += 1
        try:
            yield
        finally:
            with self._lock:
                self.users -= 1
                if not self.users:
                    self.drop()
                    self.least, self.most, self.full = _LEAST, None, None


_PIECES = _Pieces()


def is_kept(numbers: int) -> bool:
    """Return whether `empty_rows` has a piece of its own for so many numbers now."""
    return bool(_PIECES.users) and 4 * numbers >= _PIECES.least


def empty_rows(*shape: int, device: torch.device | None = None) -> Tensor:
    """Return an uninitialised float32 tensor; a large one in memory that another had before, where such is kept.

    device: None for the CPU.
    """
    if device is not None and device.type != "cpu":
        return torch.empty(shape, device=device)
    size = 4 * math.prod(shape)
    if not is_kept(size // 4):
        return torch.empty(shape)
    piece = _PIECES.take(size)
    lent = (ctypes.c_char * size).from_buffer(piece)
    weakref.finalize(lent, _PIECES.give, piece).atexit = False
    # no view of another tensor: autograd lets those of its functions not be written to
    rows = torch.frombuffer(lent, dtype=torch.float32).view(shape)
    whole: Tensor = torch.empty(0).set_(rows.untyped_storage(), 0, shape, rows.stride())
    return whole


def return_memory(*, most: int, budget: int | None) -> None:
    """Give freed memory back to the system until `kept_memory` ends: for work within it that keeps a budget.

    Kept memory does not always serve again, so that a process may hold twice of what it uses at once. That of
    `empty_rows` is kept where it and what is in use are no more than `most` bytes. budget: what this process may take
    from here on, by which `give_back_if_full` goes; None for anything.
    """
    _PIECES.least, _PIECES.most = _LEAST_OF_BUDGET, most
    _PIECES.full = None if budget is None else _own_bytes() + int(_FULL * budget)
    malloc.set_options(_RETURNED)


def give_back_if_full() -> None:
    """Give back what lies between others in use, where the process is about to fill its budget.

    To be called between pieces of work that free much of what they take: that takes 20 us, and a millisecond or two
    where something is given back, which the next piece then has to ask for.
    """
    if _PIECES.full is not None and _own_bytes() > _PIECES.full:
        malloc.trim()


def _own_bytes() -> int:
    """Return the bytes that this process holds and shares with no file; 0 where the system does not say."""
    try:
        _, resident, shared, *_ = _STATM.read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * mmap.PAGESIZE


def give_back(*, pieces: bool = True) -> None:
    """Give the system what of freed memory lies between others in use, and the pieces that no tensor has."""
    if pieces:
        _PIECES.drop()
    malloc.trim()


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory for reuse for the length of a block, and give it back behind it.

    The process then holds its peak throughout. With another C library than glibc nothing changes.
    """
    if not malloc.set_options(_KEPT):
        yield
        return
    try:
        with _PIECES.used():
            yield
    finally:
        malloc.set_options(_DEFAULTS)
        give_back()
