"""Kernels for CUDA tensors, written in Triton: no atomics, so the same inputs give the same bits, and no row per edge.

Each sum is computed by one program that walks its target's in-edges in their order, where rows are narrow those of
several targets side by side; a target of very many edges is divided into pieces of a fixed length (`hubs.py`), whose
sums are then added in order. Rows in float32 or half precision are read as they are and added up in float32.

Read `sum_programs.py`, `largest_programs.py` and `softmax_programs.py` (what runs on the card), then `sums.py`,
`maxima.py` and `attention.py` (what torch sees of each). Triton comes with torch's builds for CUDA on Linux; it is
loaded with the first CUDA tensor.
"""

from __future__ import annotations

from gnnflow.kernels.cuda.attention import softmax_sums
from gnnflow.kernels.cuda.library import accepts
from gnnflow.kernels.cuda.maxima import segment_max
from gnnflow.kernels.cuda.sums import gather_sources, gather_targets, products, sums, weighted_sum

__all__ = [
    "accepts",
    "gather_sources",
    "gather_targets",
    "products",
    "segment_max",
    "softmax_sums",
    "sums",
    "weighted_sum",
]
