"""The ranks of one training run, joined: collective operations that end when a rank is lost, late or told to stop.

torch.distributed carries them (gloo, and NCCL where each rank computes on another card), without its
process-wide default group, over the address that Dask reaches the worker by; two ranks of one host sum what is small
in memory that both see (`shared_memory.py`). A store on rank 0's host, on any free port of that address, is where the
ranks find each other; nothing else listens there.
"""

from __future__ import annotations

import json
import socket
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
from gnnflow.train.ranks.operations import JOINING, Pending, Place, Position, RankLostError
from gnnflow.train.ranks.patience import Patience
from gnnflow.train.ranks.shared_memory import SharedPair, meet
from gnnflow.train.ranks.waiting import Notes, call_apart, missing_ranks, reaching, wait_for_port

dist: Any = _untyped  # classes of its C++ part, which no stub declares as they are
_GREETING = "group"
_TRY = timedelta(seconds=10)
"""How long torch tries to connect to a store, once somebody listens there."""
_GLOO_WAITS = 5
"""gloo waits for a connection as many times its limit as this (measured, torch 2.13)."""


class RankLateError(ClusterError):
    """A rank did not arrive in time."""


@dataclass
class RankGroup:
    """One rank's connection to the others. All call the same operations, and wait for them, in the same order.

    connections: how many more were opened after this one, by all ranks together.
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
        """Learn the device of every rank. Tensors on cards go from card to card where each rank has its own.

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
        """Return whether a tensor like this one goes from card to card."""
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
        meeting = _Meeting(self.store, self.place, self.position)
        return meeting.memory(f"{name}/{first}/{last}", int(self.rank == last))

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


def find_store(host: str, port: int, *, start_seconds: float, position: Position) -> Any:
    """Return a connection to rank 0's store.

    Raises RankLostError where it does not answer, RankStoppedError where the training is no longer wanted.
    """
    wait, patience = timedelta(seconds=start_seconds), Patience(start_seconds)
    connect = partial(dist.TCPStore, host, port, None, is_master=False, timeout=_TRY, wait_for_workers=False)
    while True:
        try:
            wait_for_port(host, port, position, patience=patience)  # torch would go on where nobody listens any more
            store = call_apart(connect, position)
        except (RuntimeError, OSError, ValueError) as error:
            if isinstance(error, ConnectionRefusedError) or patience.is_over():
                raise RankLostError(
                    f"rank 0's store at {host}:{port} does not answer ({error})", where="train.workers"
                ) from error
        else:
            store.set_timeout(wait)
            return store


def join_group(store: Any, place: Place, *, host: str, position: Position) -> RankGroup:
    """Return the group when every rank has come.

    Raises RankLateError that names those that have not in time, RankLostError where one is gone, and RankStoppedError
    where the training is no longer wanted.
    """
    position.at(JOINING)
    position.wait(over=False)
    with reaching(place):
        missing = missing_ranks(store, place.rank, place.size, position, seconds=place.start_seconds)
    if missing:
        raise late(missing, place.start_seconds)
    group = dist.PrefixStore(_GREETING, store)
    meeting = _Meeting(group, place, position)
    join = partial(meeting.join, host=host)
    backend = join("all", place.rank, place.size)
    doubling = join_partners(place.rank, place.size, partial(meeting.join_pair, join))
    position.wait(over=True)
    joined = RankGroup(place, position, group, backend, doubling, join=join)
    joined.all_reduce(torch.zeros(1)).wait()  # connections are made now, not in the first step
    return joined


def late(ranks: Sequence[int], seconds: float, why: str = "") -> RankLateError:
    """Return the error about ranks that did not arrive."""
    named = ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
    return RankLateError(
        f"{named} did not arrive within {seconds:g} s{why}",
        where="train.start_seconds",
        fix="See what that worker does, or raise the limit where workers take longer to begin.",
    )


@dataclass(frozen=True)
class _Meeting:
    """Connects ranks that meet in rank 0's store, each connection by the name that its ranks ask for.

    Each method raises RankLostError where a rank does not come, RankStoppedError where the training is no longer
    wanted.
    """

    store: Any
    place: Place
    position: Position

    def join(self, name: str, rank: int, size: int, *, host: str) -> Any:
        """Return gloo's connection to the ranks that join this name, as number `rank` of `size`."""
        store, seconds = dist.PrefixStore(name, self.store), self.place.step_seconds
        gloo = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - torch's own names for them
        gloo._timeout = max(_TRY, timedelta(seconds=self.place.start_seconds / _GLOO_WAITS))  # noqa: SLF001
        with reaching(self.place):
            gloo._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]  # noqa: SLF001
            # gloo's connecting cannot be stopped: so only to ranks that are there
            if missing := missing_ranks(store, rank, size, self.position, seconds=seconds):
                raise TimeoutError(f"{missing} of the {size} ranks that join {name} did not arrive")
            joined = call_apart(partial(dist.ProcessGroupGloo, store, rank, size, gloo), self.position)
        joined._set_default_timeout(_limit(self.place))  # noqa: SLF001
        return joined

    def memory(self, name: str, rank: int) -> SharedPair | None:
        """Return memory that two ranks both see, as number `rank` of them; None to both where there is none."""
        seconds = self.place.step_seconds
        with reaching(self.place):
            notes = Notes(dist.PrefixStore(f"memory/{name}", self.store), self.position, seconds)
            return meet(notes, rank, patience=seconds)

    def join_pair(self, join: Join, name: str, rank: int, size: int) -> Any:
        """Return the connection of two ranks: memory that both see where they are on one host, else gloo's."""
        return self.memory(name, rank) or join(name, rank, size)


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
