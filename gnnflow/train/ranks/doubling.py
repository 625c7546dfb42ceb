"""Sums over all ranks in as many rounds as the logarithm of their number: for messages that latency holds up.

gloo's all-reduce is a ring: 2 (n - 1) hops, each with an n-th of the message. Recursive doubling takes log2(n) rounds
(Thakur, Rabenseifner and Gropp, 2005): in round k a rank and the one whose number differs in bit k alone make their
sums one, so after all rounds everybody has the sum of all. Ranks beyond the largest power of two first add theirs to a
partner's, and are told at the end.

A round is a sum of two ranks: through memory that both see (`shared_memory.py`), or in a group of gloo's that the two
have joined. There a small message takes one hop: each tells the other its own and both add the two. A larger one takes
two, an all-reduce, which sums half of it on each and tells the other. Both have the same bits, and by induction all
ranks do; who adds what to what depends on the number of ranks alone. Waiting for a plain send or receive of gloo's
with a limit would close all connections when the limit is reached, and a rank must look every now and then whether it
is still wanted: so it is gloo's all-gather (256 bytes: 61 us in place of 76 between processes of one host, 40 KB 80
for 89, 256 KB 220 for 168).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as _untyped

from gnnflow.train.ranks.shared_memory import SharedPair

dist: Any = _untyped  # classes of its C++ part, which no stub declares as they are

HOP_BYTES = 1 << 16
"""What a link carries in the time of a hop: 50 us at 10 Gbit/s, and about as much between processes of one host."""

Join = Callable[[str, int, int], Any]


@dataclass(frozen=True)
class Doubling:
    """One rank's partners, each round's over another connection.

    folded: the partner that one rank of the two stands for in the rounds, None without; told: the same one, where the
    other is told the sum.
    """

    rounds: tuple[Any, ...]
    folded: Any | None
    told: Any | None
    stands_in: bool

    def sums(self, tensor: Tensor) -> Iterator[Any]:
        """Yield the operations that make a tensor its sum over all ranks; each begins when the last one has ended."""
        if self.folded is not None:
            yield from _sum_of_two(self.folded, tensor)
        for pair in self.rounds if self.stands_in else ():
            yield from _sum_of_two(pair, tensor)
        if self.told is not None:
            options = dist.BroadcastOptions()
            options.rootRank = 0
            yield self.told.broadcast([tensor], options)


def _sum_of_two(pair: Any, tensor: Tensor) -> Iterator[Any]:
    """Yield what makes a tensor the sum of two ranks'."""
    if isinstance(pair, SharedPair) or hops_of_two(tensor.nbytes) > 1:
        yield pair.allreduce([tensor])
        return
    both = tensor.new_empty(2, *tensor.shape)
    yield pair.allgather([list(both)], [tensor])
    torch.add(both[0], both[1], out=tensor)


def join_partners(rank: int, size: int, join: Join) -> Doubling | None:
    """Join each partner, or return None where the ring takes fewer hops.

    join(name, place, places) returns this rank's connection to the ranks that join the same name; every rank calls it
    for its partners in the same order.
    """
    if not is_cheaper(0, size):
        return None
    power = 1 << (size.bit_length() - 1)
    stands_in, partner = rank < power, rank ^ power
    folded, told = (
        join(f"{name}/{rank % power}", int(not stands_in), 2) if partner < size else None for name in ("folded", "told")
    )
    rounds = [1 << bit for bit in range(power.bit_length() - 1)] if stands_in else []
    pairs = [join(f"{step}/{rank & ~step}", int(bool(rank & step)), 2) for step in rounds]
    return Doubling(tuple(pairs), folded, told, stands_in)


def is_cheaper(num_bytes: int, size: int) -> bool:
    """Return whether doubling takes no longer than the ring, for a message of so many bytes.

    A round carries the message once; the ring has 2 (n - 1) hops, each with an n-th of it. Of two ranks the ring is a
    round.
    """
    if size in {1, 3}:  # of three ranks the ring has one hop more, and no partner that waits for its turn
        return False
    ring = 2 * (size - 1) * (HOP_BYTES + num_bytes / size)
    return doubling_hops(size, num_bytes) * HOP_BYTES + doubling_rounds(size) * num_bytes <= ring


def hops_of_two(num_bytes: int) -> int:
    """Return how many hops a sum of two ranks takes."""
    return 1 if num_bytes <= HOP_BYTES else 2


def doubling_hops(size: int, num_bytes: int) -> int:
    """Return how many hops follow each other.

    A sum of two per round; where the ranks are no power of two one more sum, and a hop that tells it.
    """
    rounds, each = size.bit_length() - 1, hops_of_two(num_bytes)
    return each * rounds + (each + 1 if size > 1 << rounds else 0)


def doubling_rounds(size: int) -> int:
    """Return how many sums of two, or messages to one, follow each other; each carries the whole message."""
    rounds = size.bit_length() - 1
    return rounds + (2 if size > 1 << rounds else 0)
