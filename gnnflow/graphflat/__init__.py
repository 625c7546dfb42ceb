"""GraphFlat (AGL, VLDB 2020, section 3.2): cuts the graph into k-hop neighbourhoods, in self-contained shards.

Read `run.py` first (the rounds in order), then `rounds.py` (what each does to a partition), then `shard_plan.py`. What
all tasks know is `job.py`.
"""

from __future__ import annotations
