"""Neighbour selection as rounds: each node's in-edges, sampled once, hubs by several reducers.

GraphFlat and GraphInfer both read it, so that training and inference see the same neighbours. Read `rounds.py` first.
"""

from __future__ import annotations
