"""What two ranks of one host tell each other through memory that both see, in place of gloo's loopback connections.

A rank copies its part into memory of its own that the other one maps, and tells so by a few bytes through a Unix
socket: nothing else has to run for a part to arrive, where gloo's threads wait for a core while the ranks compute. Of a
sum each adds the other's part to its own. A sum of two numbers does not depend on their order, so both have the same
bits, and those that gloo finds.

The socket's name is in no file system and the memory has none, so nothing is left behind by a rank that is killed; the
other one sees the socket close. Two processes that cannot connect (other hosts, other network namespaces) are told so
when they meet, and go on with gloo.
"""

from __future__ import annotations

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
from typing import Any

import torch
from torch import Tensor

_NOTE = struct.Struct("=QQQ")
"""The number of an operation, the memory that holds its part, and below which number the sender has read all."""

_READ = 2**64 - 1  # in place of a number: there is no part, and only something was read
_LARGE = 1 << 20
"""Bytes of memory from which on a rank hears at once that it has been read: the next part then takes no more memory."""

_ABSENT = b"absent"


def meet(store: Any, place: int, *, patience: float) -> SharedPair | None:
    """Return number `place` (0 or 1) of a pair, or None to both where they share no memory.

    store: what the two alone write to; patience: seconds that a note may wait for room in the socket.
    """
    if sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        if place == 0:
            name = b"\0gnnflow-" + secrets.token_hex(16).encode()
            sock.bind(name)
            sock.listen(1)
            store.set("listens", name)
            return None if store.get("answer") == _ABSENT else SharedPair(sock.accept()[0], place, patience)
        try:
            sock.connect(store.get("listens"))
        except OSError:  # nobody listens there: the name is of another host
            store.set("answer", _ABSENT)
            return None
        store.set("answer", b"here")
        return SharedPair(sock.dup(), place, patience)


@dataclass
class _Memory:
    """Memory, and the number of the operation whose part it holds."""

    content: mmap.mmap
    number: int = -1

    def part(self, like: Tensor) -> Tensor:
        """Return what it holds, as a tensor of this type and shape."""
        return torch.frombuffer(self.content, dtype=like.dtype, count=like.numel()).view(like.shape)


@dataclass(eq=False)
class SharedPair:
    """One of two ranks. Both begin the same operations in the same order; what is begun may be waited for in any.

    Memory is written to again when the other rank has read it, so there is at most twice as much as operations have
    been under way.
    """

    connection: socket.socket
    place: int
    patience: float
    _own: list[_Memory] = field(default_factory=list)
    _theirs: list[_Memory] = field(default_factory=list)
    _arrived: dict[int, _Memory] = field(default_factory=dict)
    _unread: set[int] = field(default_factory=set)
    _begun: int = 0
    _read_there: int = 0

    def __post_init__(self) -> None:
        weakref.finalize(self, self.connection.close)

    def allreduce(self, tensors: Sequence[Tensor]) -> Part:
        """Begin to add the other rank's tensor to this one; groups of torch's own have the same function."""
        (tensor,) = tensors
        return self._begin(tensor, tensor, adds=True)

    def broadcast(self, tensors: Sequence[Tensor], options: Any) -> Part:
        """Begin to replace a tensor by that of rank `options.rootRank`."""
        sends = self.place == options.rootRank
        (tensor,) = tensors
        return self._begin(tensor, None) if sends else self._begin(None, tensor)

    def swap(self, sent: Tensor, found: Tensor) -> Part:
        """Begin to send a tensor and to receive the other rank's into `found`; either may be empty, on both ranks."""
        return self._begin(sent if sent.numel() else None, found if found.numel() else None)

    def _begin(self, sent: Tensor | None, found: Tensor | None, *, adds: bool = False) -> Part:
        number = self._begun
        self._begun += 1
        if found is not None:
            self._unread.add(number)
        if sent is not None:
            self._send(number, sent)
        return Part(self, number, found, adds)

    def _send(self, number: int, tensor: Tensor) -> None:
        if tensor.nbytes >= _LARGE:
            self._hear_what_came()
        place, descriptors = self._free(tensor.nbytes), []
        if place is None:
            place, size = len(self._own), _rounded(tensor.nbytes)
            descriptors = [os.memfd_create("gnnflow")]
            os.truncate(descriptors[0], size)
            self._own.append(_Memory(mmap.mmap(descriptors[0], size)))
        held = self._own[place]
        held.number = number
        held.part(tensor).copy_(tensor)
        self._tell(number, place, descriptors)
        for each in descriptors:
            os.close(each)

    def _tell(self, number: int, place: int, descriptors: Sequence[int] = ()) -> None:
        self.connection.settimeout(self.patience)
        note = _NOTE.pack(number, place, min(self._unread, default=self._begun))
        with suppress(ConnectionError):  # who waits for the other rank hears that it is gone
            socket.send_fds(self.connection, [note], descriptors)

    def _free(self, num_bytes: int) -> int | None:
        """Return the place of the smallest memory that the other rank has read and that is not much too large."""
        most = 2 * _rounded(num_bytes)
        fits = (
            (len(each.content), place)
            for place, each in enumerate(self._own)
            if each.number < self._read_there and num_bytes <= len(each.content) <= most
        )
        return min(fits, default=(0, None))[1]

    def take(self, number: int, seconds: float) -> _Memory:
        """Return the other rank's part of an operation. Raises TimeoutError where it does not come in time."""
        self.connection.settimeout(seconds)
        while number not in self._arrived:
            if not self._hear():
                raise ConnectionError("Connection closed by the other rank")
        return self._arrived[number]

    def let_go(self, number: int) -> None:
        """Note that the other rank's part of an operation has been read."""
        held = self._arrived.pop(number)
        self._unread.remove(number)
        if len(held.content) >= _LARGE:
            self._tell(_READ, 0)

    def _hear(self) -> bool:
        """Act on the next note, and return whether there was one: there is none where the other rank is gone."""
        note, descriptors, _, _ = socket.recv_fds(self.connection, _NOTE.size, 1)
        if not note:
            return False
        for each in descriptors:
            self._theirs.append(_Memory(mmap.mmap(each, 0)))
            os.close(each)
        came, place, self._read_there = _NOTE.unpack(note)
        if came != _READ:
            self._arrived[came] = self._theirs[place]
        return True

    def _hear_what_came(self) -> None:
        self.connection.settimeout(0)
        with suppress(BlockingIOError, ConnectionError):
            while self._hear():
                pass


@dataclass(frozen=True)
class Part:
    """This rank's end of an operation under way, waited for as those of torch's groups are.

    found: what the other rank's part is put into, or added to; None where none comes.
    """

    pair: SharedPair
    number: int
    found: Tensor | None
    adds: bool

    def wait(self, limit: timedelta) -> None:
        """Have `found` be the result. Raises TimeoutError where the other rank's part does not come in time."""
        if self.found is None:
            return
        theirs = self.pair.take(self.number, limit.total_seconds()).part(self.found)
        if self.adds:
            self.found.add_(theirs)
        else:
            self.found.copy_(theirs)
        self.pair.let_go(self.number)


def _rounded(num_bytes: int) -> int:
    """Return the size of memory for so many bytes: an eighth more at most, so that similar ones use the same."""
    step = max(mmap.PAGESIZE, 1 << max(0, num_bytes.bit_length() - 4))
    return -(-num_bytes // step) * step
