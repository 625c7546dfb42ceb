"""Neighbour sampling as a pure function of (seed, destination, source). NumPy only.

Every edge gets a priority that depends only on the edge and the seed, and each target keeps its smallest ones. So a
sample does not depend on partitions, order, retries or machines.
Read `priority.py` first, then `top_k.py`.
"""

from __future__ import annotations

from gnnflow.graph.sampling import SamplingKind
from gnnflow.sampling.priority import arrivals, edge_keys, priorities
from gnnflow.sampling.top_k import TopK, top_k, top_k_ungrouped

__all__ = ["SamplingKind", "TopK", "arrivals", "edge_keys", "priorities", "top_k", "top_k_ungrouped"]
