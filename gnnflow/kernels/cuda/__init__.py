"""Kernels for CUDA tensors, written in Triton: no atomics, so the same inputs give the same bits, and no row per edge.

One program computes each sum, over its target's in-edges in their order; narrow rows of several targets share a
program. A target with very many edges is divided into pieces of a fixed length (`launch.py`), whose sums are then added
in order. Rows in float32 or half precision are read as they are and added up in float32.

Read `sum_programs.py`, `largest_programs.py` and `softmax_programs.py` (programs for the GPU), then `sums.py` and
`attention.py` (operations for torch). Triton comes with torch's builds for CUDA on Linux; it is loaded with the first
CUDA tensor.
"""

from __future__ import annotations

from gnnflow.kernels.cuda.attention import softmax_sums
from gnnflow.kernels.cuda.launch import accepts
from gnnflow.kernels.cuda.sums import gather_sources, gather_targets, products, segment_max, sums, weighted_sum

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
