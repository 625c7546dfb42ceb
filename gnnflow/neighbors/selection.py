"""Neighbour selection as data: what a layer asks of the graph, not how it is found (FlexGraph's NAU, section 3)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NeighborSelection:
    """What one layer aggregates over.

    include_self: each target also receives one message from itself, beside any self-loop the graph holds.
    relation: the edge type followed; empty means the only one. order: hops between neighbour and target.
    """

    include_self: bool = False
    relation: str = ""
    order: int = 1
