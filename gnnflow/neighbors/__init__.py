"""Selects the neighbours that each node aggregates, in rounds: direct in-neighbours, walks, metapaths and others.

GraphFlat and GraphInfer both read the selection, so training and inference see the same neighbours. `gnnflow.sampling`
holds the pure choice among edges. Read `direct.py` first; the other kinds share `selection.py`. A user's function gets
a `NeighborGraph` and returns `Instances`.
"""

from __future__ import annotations

from gnnflow.neighbors.graph import Instances, NeighborGraph

__all__ = ["Instances", "NeighborGraph"]
