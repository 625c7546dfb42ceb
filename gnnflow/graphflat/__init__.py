"""GraphFlat (AGL, VLDB 2020, section 3.2): cuts the graph into k-hop neighbourhoods, in self-contained shards.

Read `job.py` first (the rounds in order), then `rounds.py` (what each does to a partition), then `shard_plan.py`.
"""

from __future__ import annotations
