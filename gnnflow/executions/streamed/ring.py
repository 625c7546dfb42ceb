"""Source intervals go from rank to rank, so that each is read from a disk once (NGra, Ma et al. 2018).

Ranks own intervals: as many each, of consecutive numbers. A rank computes the target intervals that it owns and reads
the edges into them; what it needs of source intervals goes round:

    number m     the m-th interval of every rank sets out at once, m after m
    turn         a rank sends what it has to the next one, and computes on it meanwhile
    backward     it adds its part of these rows' gradient to what the rank before has sent of it, and sends on the sum,
                 which comes home from the last rank

In the forward pass all intervals go round once for each group of a rank's target intervals, whose states stay. Where
links are slower than disks, ranks keep what goes by in the first round (`Ring.copies`) and read that from then on.

A thread passes on while the rank computes (`relay.py`). The order in which a rank sees the sources, and the order of
its sums, follows from the number of ranks and intervals alone.

Shapes: n rows of an interval, K numbers per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from gnnflow.executions.row_exchange import Arriving, Exchange


@dataclass(frozen=True)
class Ring:
    """One rank's place among those that pass source intervals on.

    sizes: nodes of each interval, of all ranks; as many intervals are of each rank. copies: ranks keep what went by.
    passed: which of a rank's intervals go round, by their places among its own; None for all.
    """

    exchange: Exchange
    sizes: tuple[int, ...]
    copies: bool = False
    passed: tuple[int, ...] | None = None

    @cached_property
    def own(self) -> range:
        """The intervals that this rank owns."""
        each, rank = self._per_rank, self.exchange.rank
        return range(each * rank, each * (rank + 1))

    @cached_property
    def order(self) -> list[int]:
        """The source intervals as they come by at this rank, one per turn."""
        return self._order_of(self.exchange.rank)

    @cached_property
    def sent(self) -> list[int]:
        """The intervals of this rank that go round, in the order in which they set out."""
        return list(self.own if self.passed is None else (self.own[number] for number in self.passed))

    @property
    def _per_rank(self) -> int:
        return len(self.sizes) // self.exchange.size

    def _order_of(self, rank: int) -> list[int]:
        size, each = self.exchange.size, self._per_rank
        numbers = range(each) if self.passed is None else self.passed
        return [(rank - step) % size * each + number for number in numbers for step in range(size)]

    def ends(self, turn: int) -> bool:
        """Return whether what comes by in a turn has then been at all ranks."""
        return (turn + 1) % self.exchange.size == 0

    def send(self, run: Tensor, turn: int, *, width: int) -> Arriving:
        """Begin to send numbers [n K] of this turn's interval to the next rank, and to receive.

        From the rank before comes the interval of the next turn here, or, where it ends there, of one of this rank.
        """
        rank, size = self.exchange.rank, self.exchange.size
        sent, received = [0] * size, [0] * size
        sent[(rank + 1) % size] = len(run)
        received[rank - 1] = self.sizes[self._order_of((rank - 1) % size)[turn]] * width
        return self.exchange.begin(run, sent=sent, received=received)
