"""Which neighbours each node aggregates, found in rounds: sampled direct in-neighbours, walks, metapaths and others.

GraphFlat and GraphInfer both read what is selected here, so that training and inference see the same neighbours. The
pure choice among edges is `gnnflow.sampling`. Read `direct.py` first; what the other kinds share is `selection.py`.
A user's own function is given a `NeighborGraph` and returns `Instances`.
"""

from __future__ import annotations

from gnnflow.neighbors.graph import NeighborGraph
from gnnflow.neighbors.instances import Instances

__all__ = ["Instances", "NeighborGraph"]
