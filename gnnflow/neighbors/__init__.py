"""Which neighbours a layer reads. Today: direct in-neighbours; walks, metapaths and anchor sets come here.

Read `selection.py` first. Selection is data, so that GraphFlat and GraphInfer can plan from it without running a layer.
"""

from __future__ import annotations

from gnnflow.neighbors.selection import NeighborSelection

__all__ = ["NeighborSelection"]
