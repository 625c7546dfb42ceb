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

LONGEST = 1024
"""Edges that one program walks; also what decides the order in which a hub's edges are added."""


@dataclass(frozen=True)
class Hubs:
    """piece_targets [P]: each piece's target. first_pieces and num_pieces [T]. hub_targets [U]."""

    piece_targets: Tensor
    first_pieces: Tensor
    num_pieces: Tensor
    hub_targets: Tensor


_found: WeakKeyDictionary[Csr, Hubs] = WeakKeyDictionary()


def hubs_of(csr: Csr) -> Hubs | None:
    """Return the pieces of an adjacency's hubs, computed once; None where it is known to have none."""
    most = csr.num_edges // LONGEST
    if not most or (csr.longest is not None and csr.longest <= LONGEST):
        return None
    if csr not in _found:
        _found[csr] = _divided(csr, most)
    return _found[csr]


def _divided(csr: Csr, most: int) -> Hubs:
    is_hub = csr.degree > LONGEST
    # pieces of each target, none where one program walks all [T], and how many come up to each target [T]
    num_pieces = torch.where(is_hub, (csr.degree + LONGEST - 1) // LONGEST, 0)
    ends = num_pieces.cumsum(0)
    device = csr.offsets.device
    return Hubs(
        # a target above LONGEST has fewer than 2 x degree / LONGEST pieces
        piece_targets=torch.searchsorted(ends, torch.arange(2 * most, device=device), right=True),
        first_pieces=ends - num_pieces,
        num_pieces=num_pieces,
        hub_targets=torch.searchsorted(is_hub.cumsum(0), torch.arange(1, most + 1, device=device)),
    )
