"""Turns user tables into the graph store: dense ids, P partitions, in-edges sorted by destination.

Read `run.py` first (the rounds in order), then `node_rounds.py` and `edge_rounds.py` (what each does to one chunk or
part). What all tasks know is `job.py`; imports lead from `run.py` over the rounds to it.
"""

from __future__ import annotations
