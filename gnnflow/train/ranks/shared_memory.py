"""Exchanges data between two ranks of one host through shared memory, instead of gloo's loopback connections.

A rank copies its part into its memory, which the other one maps, and tells so by a few bytes through a Unix socket:
nothing else has to run for a part to arrive, where gloo's threads wait for a core while the ranks compute. Rows that
are sent are gathered straight into that memory, and a large part may be read where it lies, for as long as there is a
tensor of it. Of a sum each adds the other's part to its own. A sum of two numbers does not depend on their order, so
both have the same bits, and those that gloo finds.

The socket's name is in no file system and the memory has none, so nothing is left behind by a rank that is killed; the
other one sees the socket close. Two processes that cannot connect (other hosts, other network namespaces) are told so
when they meet, and go on with gloo.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
import socket
import struct
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import prod
from typing import Any

import torch
from torch import Tensor

_NOTE = struct.Struct("=QQQ")
"""The number of an operation, the memory that holds its part, and below which number the sender has read all."""

_READ = 2**64 - 1  # in place of a number: there is no part, and this memory was read
_FREE = -1  # in place of a number: it holds no part that is still to be read
_LARGE = 1 << 20
"""Bytes of memory from which on a part may be lent, and a note of its own tells at once that it was read.

The next part then takes no more memory. Of smaller ones the next note tells.
"""

_ABSENT = b"absent"


def meet(store: Any, rank: int, *, patience: float) -> SharedPair | None:
    """Return one rank (0 or 1) of a pair, or None to both where they share no memory.

    store: what the two alone write to; patience: seconds that a note may wait for room in the socket.
    """
    if sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        if rank == 0:
            name = b"\0gnnflow-" + secrets.token_hex(16).encode()
            sock.bind(name)
            sock.listen(1)
            store.set("listens", name)
            return None if store.get("answer") == _ABSENT else SharedPair(sock.accept()[0], rank, patience)
        try:
            sock.connect(store.get("listens"))
        except OSError:  # nobody listens there: the name is of another host
            store.set("answer", _ABSENT)
            return None
        store.set("answer", b"here")
        return SharedPair(sock.dup(), rank, patience)


@dataclass
class _Memory:
    """One piece of memory, its number among its owner's pieces, and the operation whose part it holds."""

    content: mmap.mmap
    slot: int
    number: int = _FREE

    @property
    def is_large(self) -> bool:
        """True if a separate note tells that it was read."""
        return len(self.content) >= _LARGE

    def part(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return its content as a tensor of this type and shape."""
        return torch.frombuffer(self.content, dtype=dtype, count=prod(shape)).view(shape)


@dataclass(frozen=True)
class Outgoing:
    """The data to send: a tensor, or its rows at some places [S]."""

    rows: Tensor
    places: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is sent."""
        return tuple(self.rows.shape) if self.places is None else (len(self.places), *self.rows.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of what is sent."""
        return prod(self.shape) * self.rows.element_size()

    def run(self, first: int, last: int) -> Outgoing:
        """Return a run of it."""
        if self.places is None:
            return Outgoing(self.rows[first:last])
        return Outgoing(self.rows, self.places[first:last])

    def write(self, into: Tensor) -> None:
        """Copy it."""
        if self.places is None:
            into.copy_(self.rows)
        else:
            torch.index_select(self.rows, 0, self.places, out=into)


@dataclass(eq=False)
class SharedPair:
    """One of two ranks. Both begin the same operations in the same order; what is begun may be waited for in any.

    Memory is written to again when the other rank has read it, so there is at most twice as much as operations have
    been under way.
    """

    connection: socket.socket
    rank: int
    patience: float
    _own: list[_Memory] = field(default_factory=list)
    _theirs: list[_Memory] = field(default_factory=list)
    _arrived: dict[int, _Memory] = field(default_factory=dict)
    _unread: set[int] = field(default_factory=set)
    _owed: list[int] = field(default_factory=list)  # slots of large memory that was read, which is still to be told
    _begun: int = 0
    _read_there: int = 0

    def __post_init__(self) -> None:
        self.connection.settimeout(0)  # notes of memory that was read never wait
        weakref.finalize(self, self.connection.close)

    def allreduce(self, tensors: Sequence[Tensor]) -> PairWork:
        """Begin to add the other rank's tensor to this one; groups of torch's own have the same function."""
        (tensor,) = tensors
        return self._begin(Outgoing(tensor), tensor, adds=True)

    def broadcast(self, tensors: Sequence[Tensor], options: Any) -> PairWork:
        """Begin to replace a tensor by the tensor of rank `options.rootRank`."""
        sends = self.rank == options.rootRank
        (tensor,) = tensors
        return self._begin(Outgoing(tensor), None) if sends else self._begin(None, tensor)

    def swap(self, sent: Outgoing, found: Tensor) -> PairWork:
        """Begin to send something and to receive the other rank's into `found`; either may be empty, on both ranks.

        found: on device meta where the part is to be lent.
        """
        return self._begin(sent if sent.nbytes else None, found if found.numel() else None)

    def _begin(self, sent: Outgoing | None, found: Tensor | None, *, adds: bool = False) -> PairWork:
        number = self._begun
        self._begun += 1
        if found is not None:
            self._unread.add(number)
        if sent is not None:
            self._send(number, sent)
        return PairWork(self, number, found, adds)

    def _send(self, number: int, sent: Outgoing) -> None:
        if sent.nbytes >= _LARGE:
            self._read_notes()
        held, descriptors = self._free(sent.nbytes), []
        if held is None:
            size = _rounded(sent.nbytes)
            descriptors = [os.memfd_create("gnnflow")]
            os.truncate(descriptors[0], size)
            held = _Memory(mmap.mmap(descriptors[0], size), len(self._own))
            self._own.append(held)
        held.number = number
        sent.write(held.part(sent.shape, sent.rows.dtype))
        self._tell(number, held.slot, descriptors)
        for each in descriptors:
            os.close(each)

    def _tell(self, number: int, slot: int, descriptors: Sequence[int] = ()) -> None:
        self.connection.settimeout(self.patience)
        with suppress(ConnectionError):  # who waits for the other rank hears that it is gone
            while self._owed:
                self.connection.send(self._note(_READ, self._owed.pop()))
            socket.send_fds(self.connection, [self._note(number, slot)], descriptors)

    def _note(self, number: int, slot: int) -> bytes:
        return _NOTE.pack(number, slot, min(self._unread, default=self._begun))

    def _free(self, num_bytes: int) -> _Memory | None:
        """Return the smallest memory that the other rank has read and that is not much too large."""
        most = 2 * _rounded(num_bytes)
        fits = (each for each in self._own if self._was_read(each) and num_bytes <= len(each.content) <= most)
        return min(fits, key=lambda each: len(each.content), default=None)

    def _was_read(self, held: _Memory) -> bool:
        return held.number == _FREE if held.is_large else held.number < self._read_there

    def take(self, number: int, seconds: float) -> _Memory:
        """Return the other rank's part of an operation. Raises TimeoutError where it does not come in time."""
        self.connection.settimeout(seconds)
        while number not in self._arrived:
            if not self._read_note():
                raise ConnectionError("Connection closed by the other rank")
        return self._arrived[number]

    def finish_reading(self, number: int) -> None:
        """Note that the other rank's part of an operation has been read."""
        held = self._arrived.pop(number)
        self._unread.remove(number)
        if held.is_large:
            self._tell_read(held.slot)

    def lent(self, number: int, like: Tensor) -> Tensor:
        """Return the other rank's part of an operation, of this type and shape, where it lies; a small one as a copy.

        It has been read when the tensor and all that share its memory are gone.
        """
        held = self._arrived[number]
        if not held.is_large:
            copied = held.part(like.shape, like.dtype).clone()
            self.finish_reading(number)
            return copied
        del self._arrived[number]
        self._unread.remove(number)
        memory = (ctypes.c_char * like.nbytes).from_buffer(held.content)
        weakref.finalize(memory, self._tell_read, held.slot).atexit = False
        return torch.frombuffer(memory, dtype=like.dtype).view(like.shape)

    def _tell_read(self, slot: int) -> None:
        """Tell that large memory was read: at once, or with the next note where that would wait.

        A tensor may be freed at any moment, so this neither waits nor changes the timeout of the socket.
        """
        try:
            os.write(self.connection.fileno(), self._note(_READ, slot))
        except BlockingIOError:
            self._owed.append(slot)
        except ConnectionError:  # who waits for the other rank hears that it is gone
            pass

    def _read_note(self) -> bool:
        """Act on the next note, and return whether there was one: there is none where the other rank is gone."""
        try:
            note, descriptors, _, _ = socket.recv_fds(self.connection, _NOTE.size, 1)
        except ConnectionResetError:
            # the other rank left without hearing that its memory was read; Linux says so once, and before what it sent
            note, descriptors, _, _ = socket.recv_fds(self.connection, _NOTE.size, 1)
        if not note:
            return False
        for each in descriptors:
            self._theirs.append(_Memory(mmap.mmap(each, 0), len(self._theirs)))
            os.close(each)
        came, slot, self._read_there = _NOTE.unpack(note)
        if came == _READ:
            self._own[slot].number = _FREE
        else:
            self._arrived[came] = self._theirs[slot]
        return True

    def _read_notes(self) -> None:
        self.connection.settimeout(0)
        with suppress(BlockingIOError, ConnectionError):
            while self._read_note():
                pass


@dataclass
class PairWork:
    """This rank's end of an operation under way; waiting for it works as in torch's groups.

    found: what the other rank's part is put into, or added to; on device meta what it is like, until it is lent; None
    where none comes.
    """

    pair: SharedPair
    number: int
    found: Tensor | None
    adds: bool

    def wait(self, limit: timedelta) -> None:
        """Wait until `found` holds the result. Raises TimeoutError if the other rank's part does not come in time."""
        if self.found is None:
            return
        held = self.pair.take(self.number, limit.total_seconds())
        if self.found.is_meta:
            self.found = self.pair.lent(self.number, self.found)
            return
        theirs = held.part(self.found.shape, self.found.dtype)
        if self.adds:
            self.found.add_(theirs)
        else:
            self.found.copy_(theirs)
        self.pair.finish_reading(self.number)


def _rounded(num_bytes: int) -> int:
    """Return the size of memory for so many bytes: an eighth more at most, so that similar ones use the same."""
    step = max(mmap.PAGESIZE, 1 << max(0, num_bytes.bit_length() - 4))
    return -(-num_bytes // step) * step
