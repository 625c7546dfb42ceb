"""Sends rows between the ranks of a group within a step, as `gnnflow.executions.row_exchange.Exchange` asks.

Separate connections carry them, so that sums of gradients may be under way at the same time, in any order: between
ranks of one host memory that both see (`shared_memory.py`), as long as that is all ranks, else gloo. Rows of a card go
from card to card over NCCL where each rank has its own, and else through the memory of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch import Tensor

from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.operations import Pending
from gnnflow.train.ranks.shared_memory import Outgoing, PairWork, SharedPair

_TWO = 2


def open_rows(group: RankGroup) -> RowExchange:
    """Return a connection for rows between the ranks of a group, which all open it together."""
    assert group.join is not None
    group.connections += 1
    name = f"rows/{group.connections}"
    pairs = tuple(None if other == group.rank else group.memory_with(other, name) for other in range(group.size))
    met = torch.tensor([sum(each is not None for each in pairs)])
    if group.all_reduce(met).wait().item() == group.size * (group.size - 1):
        return RowExchange(group, name, pairs)
    return RowExchange(group, name, backend=group.join(name, group.rank, group.size))


@dataclass(frozen=True)
class RowExchange:
    """Moves rows between the ranks of a group: through pairs [ranks], None at its own place, or else the backend.

    name: of its connections.
    """

    group: RankGroup
    name: str
    pairs: tuple[SharedPair | None, ...] = ()
    backend: Any = None

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""
        return self.group.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.group.size

    def begin(
        self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int], places: Tensor | None = None
    ) -> ArrivingRows:
        """Begin to send rows and to receive others: see `gnnflow.executions.row_exchange.Exchange`.

        Between two ranks the rows received are memory of the other one, which has it back when they are gone.
        """
        held, shape = rows.detach(), (sum(received), *rows.shape[1:])
        if self.group.is_between_cards(rows):
            return self._between_cards(held if places is None else held.index_select(0, places), shape, sent, received)
        if places is not None and (held.device.type != "cpu" or not self.pairs):
            held, places = held.index_select(0, places), None
        outgoing = Outgoing(held.cpu() if self.pairs else held.cpu().contiguous(), places)
        # what stays here is sent too: it is copied
        lends = len(self.pairs) == _TWO and not sent[self.rank] and sum(received) > 0
        found = torch.empty(shape, dtype=rows.dtype, device="meta" if lends else "cpu")
        work: Any = (
            self._swaps(found, outgoing, received, sent)
            if self.pairs
            else _sent(self.backend, found, outgoing.rows, received, sent)
        )
        pending = self.group.pending(iter([work]), found)
        return ArrivingRows(
            pending, work.parts[0] if lends else None, rows.device, None if self.pairs else outgoing.rows
        )

    def _between_cards(
        self, rows: Tensor, shape: tuple[int, ...], sent: Sequence[int], received: Sequence[int]
    ) -> ArrivingRows:
        outgoing, found = rows.contiguous(), rows.new_empty(shape)
        work = _sent(self.group.between_cards(self.name), found, outgoing, received, sent)
        return ArrivingRows(self.group.pending(iter([work]), found), None, rows.device, outgoing)

    def _swaps(self, found: Tensor, outgoing: Outgoing, received: Sequence[int], sent: Sequence[int]) -> _Swaps:
        there, here = (list(accumulate(each, initial=0)) for each in (sent, received))
        begun: list[PairWork] = []
        for rank, pair in enumerate(self.pairs):
            part, coming = outgoing.run(*there[rank : rank + 2]), found[here[rank] : here[rank + 1]]
            if pair is not None:
                begun.append(pair.swap(part, coming))
            elif len(coming):
                part.write(coming)
        return _Swaps(tuple(begun), begun)


def _sent(backend: Any, found: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]) -> Any:
    """Begin to send rows by a backend of torch's, and to receive others."""
    width = found.element_size() * prod(found.shape[1:])
    parts = ([count * width for count in received], [count * width for count in sent])
    return backend.alltoall_base(_bytes_of(found), _bytes_of(rows), *parts)


def _bytes_of(rows: Tensor) -> Tensor:
    # one run of memory, whose stride a single row need not say
    return rows.as_strided((rows.numel(),), (1,)).view(torch.uint8)


@dataclass(frozen=True)
class _Swaps:
    """Parts of other ranks under way, waited for as an operation of torch's groups is."""

    parts: tuple[PairWork, ...]
    under_way: list[PairWork]

    def wait(self, limit: timedelta) -> None:
        """Wait for all parts. Raises TimeoutError if one does not come in time; then this may be called again."""
        while self.under_way:
            self.under_way[-1].wait(limit)
            self.under_way.pop()


@dataclass(frozen=True)
class ArrivingRows:
    """Rows under way. lent: the part that is read where it lies; held: what gloo or NCCL sends, until then."""

    pending: Pending
    lent: PairWork | None
    device: torch.device
    held: Tensor | None

    def wait(self) -> Tensor:
        """Return the received rows. Raises RankLostError where another rank is gone or too late."""
        found = self.pending.wait()
        if self.lent is not None:
            assert self.lent.found is not None
            found = self.lent.found
        return found.to(self.device)
