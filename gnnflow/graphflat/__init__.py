"""GraphFlat (AGL, VLDB 2020, section 3.2): cuts the graph into k-hop neighbourhoods, in self-contained shards.

Read `plan.py` first (the rounds in order), then `rounds.py` (what each does to a partition), then `placement.py`.
"""

from __future__ import annotations
