"""Reuse of freed memory while a model is trained.

The C library returns large pieces to the system when they are freed, and every step of training asks for them again:
the system then clears each page at its first touch, which takes longer than the computation in it. Copying 46 MB took
13 ms, and 2 ms in memory that was kept (docs/decisions/0008-native-core.md).

The C library cannot always reuse the memory that it keeps: glibc looks for an aligned piece in one that is larger by
its alignment, so the hole of a freed tensor does not fit the next tensor of the same size. A layer over a whole graph
has several results as large as its rows. They get separate pieces, which are reused by size (`empty_rows`).
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

_LEAST = 16 * 1024**2  # bytes of the smallest tensor that gets a separate piece
_LEAST_OF_BUDGET = 256 * 1024  # the same under a budget, where tensors have the rows of an interval
_WASTE = 1.25  # the largest ratio of a piece to its tensor
_IDLE = 64  # requests after which an unused piece is freed: more than a step of a few layers makes


class _Pieces:
    """Pieces of memory that freed tensors leave to the next ones, while `users` is above zero.

    least: bytes of the smallest tensor that gets a piece. most: bytes of all pieces, used ones included, above which no
    free piece is kept; None for no limit. full: bytes of the process above which free memory is returned; None for no
    limit.
    """

    def __init__(self) -> None:
        self.users, self.least = 0, _LEAST
        self.most: int | None = None
        self.full: int | None = None
        self._bytes = 0  # of all pieces, free or not
        self._taken = 0  # number of requests
        self._free: list[tuple[int, mmap.mmap]] = []  # each with the number of requests when it was freed
        self._lock = threading.RLock()  # a tensor may be freed, and call `give`, within any of these methods

    def take(self, size: int) -> mmap.mmap:
        """Return a piece of at least this size; frees pieces that were long unused before it makes one."""
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
        """Drop free pieces that were long unused, and others until the coming piece fits in `most`."""
        free, self._free = self._free, []  # pieces freed meanwhile go to the new list
        kept = [each for each in free if self._taken - each[0] < _IDLE]
        dropped = sum(len(each[1]) for each in free) - sum(len(each[1]) for each in kept)
        while kept and self.most is not None and self._bytes + coming - dropped > self.most:
            dropped += len(kept.pop(0)[1])
        self._free[:0] = kept
        self._bytes -= dropped

    def give(self, piece: mmap.mmap) -> None:
        """Take back the piece of a freed tensor."""
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
        """Keep pieces within a block."""
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
    """Return whether `empty_rows` takes a kept piece for this number of elements now."""
    return bool(_PIECES.users) and 4 * numbers >= _PIECES.least


def empty_rows(*shape: int, device: torch.device | None = None) -> Tensor:
    """Return an uninitialised float32 tensor; a large one reuses the memory of a freed one, where that is kept.

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
    # not a view: autograd forbids writing to views that its functions return
    rows = torch.frombuffer(lent, dtype=torch.float32).view(shape)
    whole: Tensor = torch.empty(0).set_(rows.untyped_storage(), 0, shape, rows.stride())
    return whole


def return_memory(*, most: int, budget: int | None) -> None:
    """Return freed memory to the system until `kept_memory` ends: for work within it that keeps a budget.

    Kept memory is not always reused, so a process may hold twice as much as it uses at once. Pieces of `empty_rows` are
    kept while all of them, used or free, take at most `most` bytes. budget: bytes that this process may take from now
    on, the limit for `give_back_if_full`; None for no limit.
    """
    _PIECES.least, _PIECES.most = _LEAST_OF_BUDGET, most
    _PIECES.full = None if budget is None else _own_bytes() + int(_FULL * budget)
    malloc.set_options(_RETURNED)


def give_back_if_full() -> None:
    """Return free memory to the system if the process is about to fill its budget.

    To be called between pieces of work that free much memory. It takes 20 us, and a millisecond or two where memory is
    returned, which the next piece of work has to ask for again.
    """
    if _PIECES.full is not None and _own_bytes() > _PIECES.full:
        malloc.trim()


def _own_bytes() -> int:
    """Return the bytes that this process holds and shares with no file; 0 if the system does not tell."""
    try:
        _, resident, shared, *_ = _STATM.read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * mmap.PAGESIZE


def give_back(*, pieces: bool = True) -> None:
    """Return free memory to the system, the pieces of freed tensors included."""
    if pieces:
        _PIECES.drop()
    malloc.trim()


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory for reuse within a block, and return it afterwards.

    The process holds its peak throughout. Does nothing with a C library other than glibc.
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
