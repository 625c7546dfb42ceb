"""The ranks of one training run, joined: collective operations that end when a rank is lost, late or told to stop.

torch.distributed carries them (gloo, and NCCL where every rank computes on a card of its own), without its
process-wide default group, over the address that Dask reaches the worker by; two ranks of one host sum what is small
in memory that both see (`shared_memory.py`). A store on rank 0's host, on any free port of that address, is where the
ranks find each other; nothing else listens there.
"""

from __future__ import annotations

import json
import socket
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as _untyped

from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import ClusterError
from gnnflow.kernels.device import card_id
from gnnflow.train.ranks.doubling import Doubling, Join, is_cheaper, join_partners
from gnnflow.train.ranks.operations import JOINING, Pending, Place, Position, RankLostError, RankStoppedError
from gnnflow.train.ranks.shared_memory import SharedPair, meet

dist: Any = _untyped  # classes of its C++ part, which no stub declares as they are
_ASK_SECONDS = 0.02
_ARRIVED, _GREETING = "arrived", "group"


class RankLateError(ClusterError):
    """A rank did not arrive in time."""


@dataclass
class RankGroup:
    """One rank's connection to the others. All call the same operations, and wait for them, in the same order.

    connections: how many more were opened beside this one, by all ranks together.
    """

    place: Place
    position: Position
    store: Any
    backend: Any
    doubling: Doubling | None = None
    own_cards: bool = False
    join: Join | None = None
    connections: int = 0
    _between_cards: dict[str, Any] = field(default_factory=dict)
    _sum: Pending | None = None  # the last one that was begun in rounds

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""
        return self.place.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.place.size

    def meet_on(self, device: torch.device) -> None:
        """Hear where every rank computes. What lies on cards goes from card to card where each rank has its own.

        Where ranks share a card, or some compute on a CPU, it goes through copies in the memory of the machines.
        """
        told = [bytes(each).decode() for (each,) in self.gather([np.frombuffer(card_id(device).encode(), np.uint8)])]
        self.own_cards = all(told) and len(set(told)) == self.size

    def all_reduce(self, tensor: Tensor) -> Pending:
        """Begin to replace a tensor by its sum over all ranks, which has the same bits on each."""
        if self.size == 1:
            return self.pending(iter(()), tensor)
        copied_to = tensor if tensor.is_cuda else None
        if self.is_between_cards(tensor):
            return self.pending(iter([self.between_cards("sums").allreduce([tensor])]), tensor)
        held = tensor.cpu()  # itself, where it is there already
        if self.doubling is not None and is_cheaper(held.nbytes, self.size):
            begun = self.pending(self.doubling.sums(held), held, copied_to)
            begun.before = None if self._sum is None or self._sum.is_done else self._sum
            self._sum = begun
            return begun
        return self.pending(iter([self.backend.allreduce([held])]), held, copied_to)

    def is_between_cards(self, tensor: Tensor) -> bool:
        """Return whether such a tensor goes from card to card."""
        return tensor.is_cuda and self.own_cards

    def gather(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """Return every rank's arrays, in rank order."""
        own = _packed(arrays)
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(own)
        self.all_reduce(sizes).wait()
        found = []
        for rank, size in enumerate(sizes.tolist()):
            content = torch.empty(size, dtype=torch.uint8)
            if rank == self.rank:
                content.numpy()[:] = np.frombuffer(own, np.uint8)
            if size:
                options = dist.BroadcastOptions()
                options.rootRank = rank
                self.pending(iter([self.backend.broadcast([content], options)]), content).wait()
            found.append(_unpacked(content))
        return found

    def rows(self, own: Mapping[str, float]) -> tuple[dict[str, float], ...]:
        """Return the figures of every rank, in rank order."""
        text = np.frombuffer(json.dumps(own).encode(), np.uint8)
        return tuple(json.loads(bytes(each)) for (each,) in self.gather([text]))

    def agree(self, what: str, value: object) -> None:
        """Raise RankLostError where the ranks do not hold the same value."""
        text = json.dumps(value, sort_keys=True).encode()
        # a checksum of what each holds [n], in one sum: the texts, one message from each, are only for the error
        marks = torch.zeros(self.size, dtype=torch.int64)
        marks[self.rank] = zlib.crc32(text)
        if len(set(self.all_reduce(marks).wait().tolist())) == 1:
            return
        held = [bytes(each) for (each,) in self.gather([np.frombuffer(text, np.uint8)])]
        told = ", ".join(f"rank {rank}: {each.decode()}" for rank, each in enumerate(held))
        raise RankLostError(f"the ranks do not have the same {what} ({told})", where="train.workers")

    def pending(self, rounds: Iterator[Any], tensor: Tensor, copied_to: Tensor | None = None) -> Pending:
        """Return an operation that has just begun."""
        return Pending(self.place, self.position, rounds, tensor, copied_to)

    def memory_with(self, other: int, name: str) -> SharedPair | None:
        """Return memory that this rank and another both see; None to both where there is none. Both call this."""
        first, last = sorted((self.rank, other))
        return _meet(self.store, f"{name}/{first}/{last}", int(self.rank == last), patience=self.place.step_seconds)

    def between_cards(self, name: str) -> Any:
        """Return NCCL's connection of this name, made when it is first asked for; all ranks do."""
        if name not in self._between_cards:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _limit(self.place)  # noqa: SLF001 - torch's own names for them
            store = dist.PrefixStore(f"cards/{name}", self.store)
            self._between_cards[name] = dist.ProcessGroupNCCL(store, self.place.rank, self.place.size, options)
        return self._between_cards[name]

    def check(self) -> None:
        """Raise RankStoppedError where the training is no longer wanted."""
        self.position.check()


def open_store(host: str, *, start_seconds: float) -> Any:
    """Return a store that listens on this host, at a free port of that address alone."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family)
    port, wait = listening.getsockname()[1], timedelta(seconds=start_seconds)
    return dist.TCPStore(
        host, port, None, is_master=True, timeout=wait, wait_for_workers=False, master_listen_fd=listening.detach()
    )


def find_store(host: str, port: int, *, start_seconds: float) -> Any:
    """Return a connection to rank 0's store. Raises RankLostError where it does not answer."""
    try:
        wait = timedelta(seconds=start_seconds)
        return dist.TCPStore(host, port, None, is_master=False, timeout=wait, wait_for_workers=False)
    except (RuntimeError, ValueError) as error:
        raise RankLostError(
            f"rank 0's store at {host}:{port} does not answer ({error})", where="train.workers"
        ) from error


def join_group(store: Any, place: Place, *, host: str, position: Position) -> RankGroup:
    """Return the group when every rank has come. Raises RankLateError that names those that have not in time."""
    position.at(JOINING)
    store.set(f"{_ARRIVED}/{place.rank}", b"1")
    names = [f"{_ARRIVED}/{rank}" for rank in range(place.size)]
    deadline = time.monotonic() + place.start_seconds
    position.wait(over=False)
    while not store.check(names):  # asked again and again: a wait that times out writes to stderr
        if position.stop:
            raise RankStoppedError
        if time.monotonic() > deadline:
            raise late([rank for rank, name in enumerate(names) if not store.check([name])], place.start_seconds)
        time.sleep(_ASK_SECONDS)
    position.wait(over=True)
    group = dist.PrefixStore(_GREETING, store)
    try:
        join = partial(_between_hosts, group, place, host=host)
        backend = join("all", place.rank, place.size)
        doubling = join_partners(place.rank, place.size, partial(_join_pair, group, join, patience=place.step_seconds))
        joined = RankGroup(place, position, group, backend, doubling, join=join)
        joined.all_reduce(torch.zeros(1)).wait()  # connections are made now, not in the first step
    except (RuntimeError, OSError) as error:
        raise RankLostError(f"rank {place.rank} cannot reach the others ({error})", where="train.workers") from error
    return joined


def late(ranks: Sequence[int], seconds: float, why: str = "") -> RankLateError:
    """Return the error about ranks that did not arrive."""
    named = ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
    return RankLateError(
        f"{named} did not arrive within {seconds:g} s{why}",
        where="train.start_seconds",
        fix="See what that worker does, or raise the limit where workers take longer to begin.",
    )


def _between_hosts(store: Any, place: Place, name: str, rank: int, size: int, *, host: str) -> Any:
    """Return gloo's connection to the ranks that join this name, as number `rank` of `size`."""
    gloo = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - torch's own names for them
    gloo._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]  # noqa: SLF001
    gloo._timeout = _limit(place)  # noqa: SLF001
    return dist.ProcessGroupGloo(dist.PrefixStore(name, store), rank, size, gloo)


def _join_pair(store: Any, join: Join, name: str, rank: int, size: int, *, patience: float) -> Any:
    """Return the connection of two ranks: memory that both see where they are on one host, else gloo's."""
    return _meet(store, name, rank, patience=patience) or join(name, rank, size)


def _meet(store: Any, name: str, rank: int, *, patience: float) -> SharedPair | None:
    return meet(dist.PrefixStore(f"memory/{name}", store), rank, patience=patience)


def _limit(place: Place) -> timedelta:
    # Longer than our own limit, which says more: this one ends what nobody waits for any longer.
    return timedelta(seconds=place.step_seconds + 60)


def _packed(arrays: Sequence[Array]) -> bytes:
    content = BytesIO()
    for array in arrays:
        np.save(content, array)
    return content.getvalue()


def _unpacked(content: Tensor) -> list[Array]:
    held = BytesIO(content.numpy().tobytes())
    arrays = []
    while held.tell() < content.numel():
        arrays.append(np.load(held))
    return arrays
