"""Rows that go between the ranks of a group within a step: what `gnnflow.executions.row_exchange.Exchange` asks for.

Connections of their own carry them, so that sums of gradients may be under way beside them, in any order: between ranks
of one host memory that both see (`shared_memory.py`), as long as that is all ranks, else gloo. Rows from a card go
through the memory of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.operations import Pending
from gnnflow.train.ranks.shared_memory import Part, SharedPair


def open_rows(group: RankGroup) -> RowExchange:
    """Return a connection for rows between the ranks of a group, which all open it together."""
    assert group.join is not None
    group.connections += 1
    name = f"rows/{group.connections}"
    pairs = tuple(None if other == group.rank else group.memory_with(other, name) for other in range(group.size))
    met = torch.tensor([sum(each is not None for each in pairs)])
    if group.all_reduce(met).wait().item() == group.size * (group.size - 1):
        return RowExchange(group, pairs)
    return RowExchange(group, backend=group.join(name, group.rank, group.size))


@dataclass(frozen=True)
class RowExchange:
    """Moves rows between the ranks of a group: through pairs [ranks], None at its own place, or else the backend."""

    group: RankGroup
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

    def begin(self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int]) -> ArrivingRows:
        """Begin to send rows and to receive others: see `gnnflow.executions.row_exchange.Exchange`."""
        width = rows.element_size() * rows.shape[1:].numel()
        held = rows.detach().cpu().contiguous()
        # one run of memory, whose stride a single row need not say
        held = held.as_strided((held.numel(),), (1,)).view(torch.uint8)
        found = torch.empty(sum(received) * width, dtype=torch.uint8)
        parts = ([count * width for count in received], [count * width for count in sent])
        # what stays here is sent too: it is copied
        work = self._swaps(found, held, *parts) if self.pairs else self.backend.alltoall_base(found, held, *parts)
        pending = self.group.pending(iter([work]), found)
        return ArrivingRows(pending, rows.dtype, rows.shape[1:], rows.device, None if self.pairs else held)

    def _swaps(self, found: Tensor, held: Tensor, received: Sequence[int], sent: Sequence[int]) -> _Swaps:
        there, here = (list(accumulate(each, initial=0)) for each in (sent, received))
        begun = []
        for rank, pair in enumerate(self.pairs):
            leaving, coming = held[there[rank] : there[rank + 1]], found[here[rank] : here[rank + 1]]
            if pair is None:
                coming.copy_(leaving)
            else:
                begun.append(pair.swap(leaving, coming))
        return _Swaps(begun)


@dataclass(frozen=True)
class _Swaps:
    """Parts of other ranks under way, waited for as an operation of torch's groups is."""

    parts: list[Part]

    def wait(self, limit: timedelta) -> None:
        """Have all be there. Raises TimeoutError where one does not come in time; then this may be called again."""
        while self.parts:
            self.parts[-1].wait(limit)
            self.parts.pop()


@dataclass(frozen=True)
class ArrivingRows:
    """Rows under way, and what gloo sends: it must stay until they are here."""

    pending: Pending
    dtype: torch.dtype
    shape: torch.Size
    device: torch.device
    held: Tensor | None

    def wait(self) -> Tensor:
        """Return the received rows. Raises RankLostError where another rank is gone or too late."""
        found = self.pending.wait().view(self.dtype).view(-1, *self.shape)
        return found.to(self.device)
