"""Kernels of the native core: they prefetch rows and keep no row per edge.

The core (`gnnflow.native`) takes float32 on the CPU. One thread computes each target in the order of its edges, so the
bits do not depend on the number of threads. Measured in docs/decisions/0008-native-core.md.
"""

from __future__ import annotations

from gnnflow.kernels.core import accepts
from gnnflow.kernels.native.attention import (
    Attended,
    add_softmax_gradient,
    add_softmax_sums,
    joined_means,
    softmax_of_pieces,
    softmax_sums,
)
from gnnflow.kernels.native.dense import Map, affine, elu, scored_mean
from gnnflow.kernels.native.gates import Gates, add_gated_gradient, add_gated_sum, gated_sum
from gnnflow.kernels.native.losses import binary_cross_entropy, cross_entropy
from gnnflow.kernels.native.sums import (
    accepts_leaves,
    gather_sources,
    gather_targets,
    one_head_sum,
    products,
    scaled_sum,
    segment_max,
    sums,
    weighted_sum,
)

__all__ = [
    "Attended",
    "Gates",
    "Map",
    "accepts",
    "accepts_leaves",
    "add_gated_gradient",
    "add_gated_sum",
    "add_softmax_gradient",
    "add_softmax_sums",
    "affine",
    "binary_cross_entropy",
    "cross_entropy",
    "elu",
    "gated_sum",
    "gather_sources",
    "gather_targets",
    "joined_means",
    "one_head_sum",
    "products",
    "scaled_sum",
    "scored_mean",
    "segment_max",
    "softmax_of_pieces",
    "softmax_sums",
    "sums",
    "weighted_sum",
]
