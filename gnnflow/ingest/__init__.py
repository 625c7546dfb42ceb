"""Turns user tables into the graph store: dense ids, P partitions, in-edges sorted by destination.

Read `plan.py` first (the rounds in order), then `rounds.py` (what each does to one partition).
"""

from __future__ import annotations
