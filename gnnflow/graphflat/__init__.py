"""GraphFlat (AGL, VLDB 2020, section 3.2): cuts the graph into k-hop neighbourhoods, in self-contained shards.

Read `run.py` first (the rounds in order), then `rounds.py` (each task's work), then `shard_plan.py`. `job.py` holds the
job that every task gets.
"""

from __future__ import annotations
