"""How a block's edges are cut so that materialised messages stay within a bound.

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
    groups: list[list[Piece]] = []
    first, num_targets = 0, len(offsets) - 1
    while first < num_targets or not groups:
        start = int(offsets[first])
        stop = _last_within(offsets, start + max_edges, at_least=min(first + 1, num_targets))
        targets, edges = slice(first, stop), slice(start, int(offsets[stop]))
        groups.append(_split(targets, edges, max_edges) if may_split_targets else [Piece(targets, edges)])
        first = stop
    return groups


def _last_within(offsets: Tensor, last_edge: int, *, at_least: int) -> int:
    return max(int(torch.searchsorted(offsets, last_edge, right=True)) - 1, at_least)


def _split(targets: slice, edges: slice, max_edges: int) -> list[Piece]:
    starts = range(edges.start, max(edges.stop, edges.start + 1), max_edges)
    return [Piece(targets, slice(start, min(start + max_edges, edges.stop))) for start in starts]
