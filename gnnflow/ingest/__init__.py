"""Turns user tables into the graph store: dense ids, P partitions, in-edges sorted by destination.

Read `job.py` first (the rounds in order), then `node_rounds.py` and `edge_rounds.py` (what each does to one chunk or
part).
"""

from __future__ import annotations
