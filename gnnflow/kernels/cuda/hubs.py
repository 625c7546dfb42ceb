"""Targets of so many edges that one program would keep the card waiting: their edges are divided into pieces.

How many there are is known on the card alone, and asking would stop the stream. So tables have as many places as there
can be at most; a place that is not taken says T, which is no target.

Shapes: T targets, E edges, P places of pieces, U places of hubs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr

_LONGEST = 512
"""Edges of a target that one program goes over, which also decides in which order those of a hub are added."""


@dataclass(frozen=True)
class Hubs:
    """piece_targets [P]: each piece's target. first_pieces and num_pieces [T]. hub_targets [U].

    longest: edges of a piece, but of a hub's last one.
    """

    longest: int
    piece_targets: Tensor
    first_pieces: Tensor
    num_pieces: Tensor
    hub_targets: Tensor


class Division(NamedTuple):
    """How the edges of targets are divided among programs. hubs: None where there are known to be none."""

    num_targets: int
    hubs: Hubs | None

    @staticmethod
    def of(csr: Csr) -> Division:
        """Return how those of an adjacency are, computed once."""
        if csr.num_edges <= _LONGEST or (csr.longest is not None and csr.longest <= _LONGEST):
            return Division(csr.num_targets, None)
        if csr not in _found:
            _found[csr] = _divided(csr, _LONGEST)
        return Division(csr.num_targets, _found[csr])

    def programs(self, rows: int) -> int:
        """Return how many programs of so many targets there are, with those of pieces."""
        return -(-self.num_targets // rows) + (0 if self.hubs is None else len(self.hubs.piece_targets))

    def pieces(self, out: Tensor) -> Tensor | None:
        """Return an uninitialised row [P, ...] for each piece, of what targets have one in out [T, ...]; or None."""
        return None if self.hubs is None else out.new_empty(len(self.hubs.piece_targets), *out.shape[1:])

    @property
    def tables(self) -> tuple[Tensor | None, Tensor | None]:
        """The target of each piece, and the first piece of each target."""
        return (None, None) if self.hubs is None else (self.hubs.piece_targets, self.hubs.first_pieces)

    @property
    def options(self) -> dict[str, int]:
        """What a program that goes over edges is compiled with."""
        return {"DIVIDED": self.hubs is not None, "LONGEST": 0 if self.hubs is None else self.hubs.longest}


_found: WeakKeyDictionary[Csr, Hubs] = WeakKeyDictionary()


def _divided(csr: Csr, longest: int) -> Hubs:
    is_hub, most = csr.degree > longest, csr.num_edges // longest
    # pieces of each target, none where one program walks all [T], and how many come up to each target [T]
    num_pieces = torch.where(is_hub, (csr.degree + longest - 1) // longest, 0)
    ends = num_pieces.cumsum(0)
    device = csr.offsets.device
    return Hubs(
        longest=longest,
        # a target above the longest has fewer than 2 x degree / longest pieces
        piece_targets=torch.searchsorted(ends, torch.arange(2 * most, device=device), right=True),
        first_pieces=ends - num_pieces,
        num_pieces=num_pieces,
        hub_targets=torch.searchsorted(is_hub.cumsum(0), torch.arange(1, most + 1, device=device)),
    )
