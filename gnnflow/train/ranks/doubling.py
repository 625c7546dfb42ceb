"""Sums over all ranks in as many rounds as the logarithm of their number: for messages that latency holds up.

gloo's all-reduce is a ring: 2 (n - 1) hops, each with an n-th of the message. Recursive doubling takes log2(n) rounds
(Thakur, Rabenseifner and Gropp, 2005): in round k a rank and the one whose number differs in bit k alone make their
sums one, so after all rounds everybody has the sum of all. Ranks beyond the largest power of two first add theirs to a
partner's, and are told at the end.

A round is an all-reduce between two ranks: through memory that both see (`shared_memory.py`), or in a group of gloo's
that the two have joined, where half of the message is summed on each and told the other. Both have the same bits, and
by induction all ranks do; who adds what to what depends on the number of ranks alone. Plain sends and receives of
gloo's would save a hop per round, but waiting for one with a limit closes all connections when the limit is reached,
and a rank must look every now and then whether it is still wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch import distributed as _untyped

dist: Any = _untyped  # classes of its C++ part, which no stub declares as they are

HOP_BYTES = 1 << 16
"""What a link carries in the time of a hop: 50 us at 10 Gbit/s, and about as much between processes of one host."""

Join = Callable[[str, int, int], Any]


@dataclass(frozen=True)
class Doubling:
    """One rank's partners. folded: the partner that one rank of the two stands for in the rounds, None without."""

    rounds: tuple[Any, ...]
    folded: Any | None
    stands_in: bool

    def sums(self, tensor: Tensor) -> Iterator[Any]:
        """Yield the operations that make a tensor its sum over all ranks; each begins when the last one has ended."""
        if self.folded is not None:
            yield self.folded.allreduce([tensor])
        for pair in self.rounds if self.stands_in else ():
            yield pair.allreduce([tensor])
        if self.folded is not None:
            options = dist.BroadcastOptions()
            options.rootRank = 0
            yield self.folded.broadcast([tensor], options)


def join_partners(rank: int, size: int, join: Join) -> Doubling | None:
    """Join each partner, or return None where the ring takes fewer hops.

    join(name, place, places) returns this rank's connection to the ranks that join the same name; every rank calls it
    for its partners in the same order.
    """
    if not is_cheaper(0, size):
        return None
    power = 1 << (size.bit_length() - 1)
    stands_in, partner = rank < power, rank ^ power
    folded = join(f"folded/{rank % power}", int(not stands_in), 2) if partner < size else None
    rounds = [1 << bit for bit in range(power.bit_length() - 1)] if stands_in else []
    pairs = [join(f"{step}/{rank & ~step}", int(bool(rank & step)), 2) for step in rounds]
    return Doubling(tuple(pairs), folded, stands_in)


def is_cheaper(num_bytes: int, size: int) -> bool:
    """Return whether doubling takes no longer than the ring, for a message of so many bytes.

    A round is two hops, each with half of the message; the ring has 2 (n - 1) hops, each with an n-th of it. Of
    two ranks the ring is a round.
    """
    if size == 1:
        return False
    ring = 2 * (size - 1) * (HOP_BYTES + num_bytes / size)
    return doubling_hops(size) * HOP_BYTES + doubling_bytes(size) * num_bytes <= ring


def doubling_hops(size: int) -> int:
    """Return how many hops follow each other: two per round, and three more where the ranks are no power of two."""
    rounds = size.bit_length() - 1
    return 2 * rounds + (3 if size > 1 << rounds else 0)


def doubling_bytes(size: int) -> int:
    """Return how often a rank sends the message, one time after the other."""
    rounds = size.bit_length() - 1
    return rounds + (2 if size > 1 << rounds else 0)
