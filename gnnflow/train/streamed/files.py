"""Rows of nodes and pieces of edges in files of a local disk that have no name.

A file without a name is gone once nobody has it open: a process that ends, in whatever way, leaves nothing behind.
Files are read into memory of the process and not mapped: a mapped page would count as the process's own. Where there is
no folder, they lie in the memory of the machine, and what a card copies from and to is mapped and page-locked.

Shapes: n rows of an interval, K numbers per row.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import TrainingError
from gnnflow.kernels import empty_rows
from gnnflow.kernels.device import lock_pages, unlock_pages

NUMBER = 4  # bytes of a number
_AT_ONCE = 1 << 30  # bytes that one call of the system reads or writes at most
_BEHIND = 2  # of what is to be written: the terms of both ends, or a state and the rows made of it


class Disk(Protocol):
    """Reads and writes bytes of files: the system's calls, or a stand-in of tests and benchmarks."""

    def read(self, file: int, into: memoryview, at: int) -> None:
        """Fill memory from a place of a file."""

    def write(self, file: int, held: memoryview, at: int) -> None:
        """Write memory to a place of a file."""


class LocalDisk:
    """The system's calls."""

    def read(self, file: int, into: memoryview, at: int) -> None:
        """Fill memory from a place of a file."""
        done = 0
        while done < len(into):
            got = os.preadv(file, [into[done : done + _AT_ONCE]], at + done)
            if not got:
                raise OSError(f"a file of the scratch folder ends at byte {at + done}")
            done += got

    def write(self, file: int, held: memoryview, at: int) -> None:
        """Write memory to a place of a file."""
        done = 0
        while done < len(held):
            done += os.pwritev(file, [held[done : done + _AT_ONCE]], at + done)


@dataclass
class Scratch:
    """Files without names in a folder (None: in the machine's memory), and a thread that writes to them."""

    folder: str | None
    disk: Disk = field(default_factory=LocalDisk)
    _free: dict[tuple[int, range, tuple[int, ...]], list[NodeFile]] = field(default_factory=dict)
    _open: list[ScratchFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin without a file."""
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="gnnflow-behind")
        self._pending: deque[tuple[NodeFile, Future[None]]] = deque()
        self._lock = threading.Lock()

    def file(self) -> ScratchFile:
        """Return a new, empty file."""
        made = ScratchFile(self)
        self._open.append(made)
        return made

    def rows(
        self, sizes: Sequence[int], width: int, own: range | None = None, *, active: Sequence[int] | None = None
    ) -> NodeFile:
        """Return room for so many numbers per node of each own interval: one that was given back, or a new one.

        own: the intervals that are written; None where all are. active: how many rows of each are; None for all.
        """
        own, sizes = range(len(sizes)) if own is None else own, tuple(sizes)
        free = self._free.setdefault((width, own, sizes), [])
        found = free.pop() if free else NodeFile(self, sizes, width, own)
        found.active = tuple(sizes if active is None else active)
        return found

    def give(self, rows: NodeFile) -> None:
        """Take room back, for another to be given."""
        self._free.setdefault((rows.width, rows.own, rows.sizes), []).append(rows)

    def write_later(self, rows: NodeFile, work: Callable[[], None]) -> None:
        """Queue rows for the thread to write. Waits until at most one other is to be written, and raises its error."""
        with self._lock:
            before = [*self._pending][: max(0, len(self._pending) - _BEHIND + 1)]
        for _, written in before:
            written.result()
        with self._lock:  # they are pending until they are written: another thread may settle them meanwhile
            self._pending = deque(each for each in self._pending if each not in before)
            self._pending.append((rows, self._writer.submit(work)))

    def settle(self, rows: NodeFile) -> None:
        """Wait until all queued numbers of the rows are written. Raises the error that writing raised."""
        with self._lock:
            asked = [written for of, written in self._pending if of is rows]
        for each in asked:
            each.result()

    def close(self) -> None:
        """End the thread and close all files, which are gone then."""
        self._writer.shutdown(wait=True)
        for each in self._open:
            each.close()
        self._open.clear()
        self._free.clear()

    def refused(self, error: OSError) -> TrainingError:
        """Return the error of a folder that cannot be written to."""
        place = "the machine's memory" if self.folder is None else self.folder
        return TrainingError(
            f"{error.strerror or error} in {place}, where the files of train.memory lie",
            where="train.scratch",
            fix="Free space there, or set train.scratch to a folder of a larger local disk.",
        )


class ScratchFile:
    """A file without a name. Raises TrainingError where the folder cannot be written to, or the disk is full.

    A card copies from and to page-locked memory: `lent` gives a run of bytes to read, `room` a run to fill,
    which `put` then writes. In the machine's memory both are the file itself, once it is locked.
    """

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._locked: Tensor | None = None
        try:
            if scratch.folder is None:
                self._file = os.fdopen(os.memfd_create("gnnflow"), "r+b", buffering=0)
            else:
                self._file = tempfile.TemporaryFile(dir=scratch.folder, buffering=0)  # noqa: SIM115 - closed with the others
        except OSError as error:
            raise scratch.refused(error) from error
        self.size = 0

    def reserve(self, size: int) -> None:
        """Reserve bytes on the disk now, so that it cannot be full in the middle of a step."""
        try:
            if size:
                os.posix_fallocate(self._file.fileno(), 0, size)
        except OSError as error:
            raise self._scratch.refused(error) from error
        self.size = size
        self.lock()

    def lock(self) -> None:
        """Lock all of it in memory, where it lies there and has its size."""
        if self._scratch.folder is None and self.size:
            self._locked = torch.frombuffer(mmap.mmap(self._file.fileno(), self.size), dtype=torch.uint8)
            lock_pages(self._locked)

    def append(self, held: memoryview) -> int:
        """Append to the file, and return where the new part begins."""
        at = self.size
        self.write(held, at)
        self.size += len(held)
        return at

    def write(self, held: memoryview, at: int) -> None:
        """Write memory to a place of the file."""
        try:
            self._scratch.disk.write(self._file.fileno(), held, at)
        except OSError as error:
            raise self._scratch.refused(error) from error

    def read(self, into: memoryview, at: int) -> None:
        """Fill memory from a place of the file."""
        self._scratch.disk.read(self._file.fileno(), into, at)

    def drop_cache(self) -> None:
        """Drop the system's cache of the file, so that the next read comes from the disk."""
        os.fsync(self._file.fileno())
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def lent(self, at: int, size: int) -> Tensor:
        """Return some of its bytes in page-locked memory, to be read."""
        held = self.room(at, size)
        if self._locked is None:
            self.read(bytes_of(held), at)
        return held

    def room(self, at: int, size: int) -> Tensor:
        """Return page-locked memory for some of its bytes, to be filled and given to `put`."""
        if self._locked is not None:
            return self._locked[at : at + size]
        return torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())

    def put(self, held: Tensor, at: int) -> None:
        """Write what `room` gave and somebody filled."""
        if self._locked is None:
            self.write(bytes_of(held), at)

    def close(self) -> None:
        """Close it, and so delete it."""
        if self._locked is not None:
            unlock_pages(self._locked)
            self._locked = None
        self._file.close()


class NodeFile:
    """K numbers for each node, by interval: `gnnflow.executions.streamed.graph.Rows`. own: the intervals that it has.

    active: how many rows of each interval are read and written, of those it has room for: the first ones.
    """

    def __init__(self, scratch: Scratch, sizes: tuple[int, ...], width: int, own: range | None = None) -> None:
        self._scratch, self._file, self.width = scratch, scratch.file(), width
        self.own = range(len(sizes)) if own is None else own
        self.sizes = self.active = sizes
        self._firsts = [0, *accumulate(sizes)]
        self._file.reserve((self._firsts[self.own.stop] - self._firsts[self.own.start]) * width * NUMBER)

    def _at(self, interval: int, within: int = 0) -> int:
        """Return where the numbers of an interval's nodes begin, from its node number `within` on."""
        return (self._firsts[interval] + within - self._firsts[self.own.start]) * self.width * NUMBER

    def fill(self, interval: int, within: int, rows: Array) -> None:
        """Write the numbers of some nodes of an interval at once; each node's lie side by side [n, K]."""
        self._file.write(bytes_of(np.ascontiguousarray(rows, np.float32)), self._at(interval, within))

    def read(self, interval: int, columns: int | None = None, *, num_rows: int | None = None) -> Tensor:
        """Return an interval's numbers [n K], or the first so many columns of them.

        num_rows: of the first rows; None: of all that are active.
        """
        self._scratch.settle(self)
        number = self.active[interval] if num_rows is None else num_rows
        run = empty_rows(number * (self.width if columns is None else columns))
        self._file.read(bytes_of(run), self._at(interval))
        return run

    def write(self, interval: int, parts: Sequence[Tensor]) -> None:
        """Queue an interval's numbers to be written by the thread."""
        self._scratch.write_later(self, partial(self._write, interval, [*parts]))

    def lent(self, interval: int) -> Tensor:
        """Return an interval's numbers [n K] in page-locked memory, to be read."""
        self._scratch.settle(self)
        return self._file.lent(*self._run(interval)).view(torch.float32)

    def fill_by(self, interval: int, begin: Callable[[Tensor], Callable[[], None]]) -> None:
        """Queue an interval's numbers [n K] to be copied into page-locked memory and written.

        begin: starts the copies into what it is given, and returns what waits for them, which the thread calls.
        """
        at, size = self._run(interval)
        held = self._file.room(at, size)
        arrived = begin(held.view(torch.float32))

        def work() -> None:
            arrived()
            self._file.put(held, at)

        self._scratch.write_later(self, work)

    def _run(self, interval: int) -> tuple[int, int]:
        return self._at(interval), self.active[interval] * self.width * NUMBER

    def _write(self, interval: int, parts: list[Tensor]) -> None:
        """Write parts and empty their list: a thread holds on to it until it comes to run again."""
        at = self._at(interval)
        while parts:
            held = bytes_of(parts.pop(0).contiguous())
            self._file.write(held, at)
            at += len(held)

    def release(self) -> None:
        """Give the room back."""
        self._scratch.give(self)


def bytes_of(held: Tensor | Array) -> memoryview:
    """Return the bytes of a contiguous tensor or array."""
    array: Array = held.numpy() if isinstance(held, Tensor) else held
    return array.reshape(-1).view(np.uint8).data


def check_disk(disk_bytes: int, folder: str | None, *, ranks: int = 1) -> None:
    """Raise TrainingError where a folder, or the machine's memory for None, has less space than a plan asks for.

    ranks: that write to the folder's disk, or to that memory.
    """
    needed = disk_bytes * ranks
    if folder is None:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
        said = f"training under train.memory keeps {mib(needed)} in the memory of the machine"
        fix = "Set train.scratch to a folder of a local disk with the space."
    else:
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise TrainingError(
                f"{error.strerror} ({folder})", where="train.scratch", fix="Name a folder of a local disk."
            ) from error
        who = "training" if ranks == 1 else f"training on {ranks} ranks"
        said = f"{who} under train.memory writes {mib(needed)} to {folder}"
        fix = "Free space there, or set train.scratch to a folder of a larger local disk."
    if free < needed:
        raise TrainingError(f"{said}, which has {free // 1024**2}MiB free", where="train.scratch", fix=fix)


def mib(size: int) -> str:
    """Return bytes as text, in MiB, rounded up."""
    return f"{math.ceil(size / 1024**2)}MiB"
