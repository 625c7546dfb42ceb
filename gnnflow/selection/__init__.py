"""Neighbour selection as rounds: each node's in-edges, sampled once, hubs by several reducers. What GraphFlat and
GraphInfer both read, so that training and inference see the same neighbours. Read `rounds.py` first.
"""

from __future__ import annotations
