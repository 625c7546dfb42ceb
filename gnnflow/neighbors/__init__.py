"""Which neighbours each node aggregates, found in rounds: sampled direct in-neighbours, hubs by several reducers.

GraphFlat and GraphInfer both read what is selected here, so that training and inference see the same neighbours. The
pure choice among edges is `gnnflow.sampling`. Read `direct.py` first.
"""

from __future__ import annotations
