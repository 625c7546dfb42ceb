"""Targets of so many edges that one program would keep the card waiting: their edges are divided into pieces.

How many there are is known on the card alone, and asking would stop the stream. So tables have as many places as there
can be at most; a place that is not taken says T, which is no target.

Shapes: T targets, E edges, P places of pieces, U places of hubs.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr


@dataclass(frozen=True)
class Hubs:
    """piece_targets [P]: each piece's target. first_pieces and num_pieces [T]. hub_targets [U]."""

    piece_targets: Tensor
    first_pieces: Tensor
    num_pieces: Tensor
    hub_targets: Tensor


_found: WeakKeyDictionary[Csr, dict[int, Hubs]] = WeakKeyDictionary()


def hubs_of(csr: Csr, longest: int) -> Hubs | None:
    """Return the pieces of targets of more than `longest` edges, computed once; None where there are known to be none.

    longest: the edges that one program walks, which also decides the order in which a hub's edges are added.
    """
    if csr.num_edges <= longest or (csr.longest is not None and csr.longest <= longest):
        return None
    found = _found.setdefault(csr, {})
    if longest not in found:
        found[longest] = _divided(csr, longest)
    return found[longest]


def _divided(csr: Csr, longest: int) -> Hubs:
    is_hub, most = csr.degree > longest, csr.num_edges // longest
    # pieces of each target, none where one program walks all [T], and how many come up to each target [T]
    num_pieces = torch.where(is_hub, (csr.degree + longest - 1) // longest, 0)
    ends = num_pieces.cumsum(0)
    device = csr.offsets.device
    return Hubs(
        # a target above the longest has fewer than 2 x degree / longest pieces
        piece_targets=torch.searchsorted(ends, torch.arange(2 * most, device=device), right=True),
        first_pieces=ends - num_pieces,
        num_pieces=num_pieces,
        hub_targets=torch.searchsorted(is_hub.cumsum(0), torch.arange(1, most + 1, device=device)),
    )
