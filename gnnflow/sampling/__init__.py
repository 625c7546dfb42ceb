"""Neighbour sampling as a pure function of (seed, epoch view, relation, destination, source). NumPy only.

Every edge gets a priority that depends on nothing but itself and the seed, and each target keeps its smallest
ones. Whatever is derived from that ignores partition count, order, retries and which machine did the work.
Read `priority.py` first, then `select.py`.
"""

from __future__ import annotations

from gnnflow.sampling.priority import SamplingKind, edge_keys, priorities
from gnnflow.sampling.select import Selection, select, select_ungrouped

__all__ = ["SamplingKind", "Selection", "edge_keys", "priorities", "select", "select_ungrouped"]
