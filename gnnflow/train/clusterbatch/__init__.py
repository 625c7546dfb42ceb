"""Cluster-batch training: a step computes on a few clusters of the graph, which each rank holds in memory.

`source.py` gives the loop its steps, `plan.py` says which clusters each has, `cutting.py` builds batches of them.
"""

from __future__ import annotations

from gnnflow.train.clusterbatch.plan import check_clusters
from gnnflow.train.clusterbatch.source import open_cluster_source

__all__ = ["check_clusters", "open_cluster_source"]
