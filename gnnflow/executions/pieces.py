"""Cuts a block's edges into pieces so that materialised messages stay within a bound.

A piece is a run of targets with a run of their edges. Pieces cover the edges in order; a target is cut over several
pieces only where it alone exceeds the bound and its aggregation can merge.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Piece:
    """Targets [first, stop) with edges [first, stop): two slices with start and stop."""

    targets: slice
    edges: slice


def cut(offsets: Tensor, *, max_edges: int, may_split_targets: bool) -> list[list[Piece]]:
    """Return groups of pieces in target order; the pieces of a group share their targets and must be merged.

    offsets: int64 [T + 1]. A piece has at most max_edges edges, unless one target has more and may not be split.
    """
    offsets = offsets.cpu()  # read one by one: from a card each would be waited for
    groups: list[list[Piece]] = []
    first, num_targets = 0, len(offsets) - 1
    while first < num_targets or not groups:
        # the longest run of targets whose edges fit the bound, or one target, and where their edges begin and end
        begin = int(offsets[first])
        fitting = int(torch.searchsorted(offsets, begin + max_edges, right=True)) - 1
        stop = max(fitting, min(first + 1, num_targets))
        end = int(offsets[stop])
        # where their pieces begin: more than one only where a single target exceeds the bound
        starts = range(begin, max(end, begin + 1), max_edges) if may_split_targets else range(begin, begin + 1)
        ends = [*starts[1:], end]
        groups.append([Piece(slice(first, stop), slice(*edges)) for edges in zip(starts, ends, strict=True)])
        first = stop
    return groups
