"""Kernels of the native core: they ask the memory for rows before they need them, and keep no row per edge.

The core (`gnnflow.native`) takes float32 on the CPU. What belongs to a target is computed by one thread in the order of
its edges, so the bits do not depend on the number of threads. Measured in docs/decisions/0008-native-core.md.
"""

from __future__ import annotations

from gnnflow.kernels.core import accepts
from gnnflow.kernels.native.activations import elu
from gnnflow.kernels.native.attention import Attended, add_softmax_gradient, add_softmax_sums, softmax_sums
from gnnflow.kernels.native.gates import Gates, add_gated_gradient, add_gated_sum, gated_sum
from gnnflow.kernels.native.linear import Map, affine
from gnnflow.kernels.native.losses import binary_cross_entropy
from gnnflow.kernels.native.maxima import segment_max
from gnnflow.kernels.native.mixtures import scored_mean
from gnnflow.kernels.native.sums import gather_sources, gather_targets, products, scaled_sum, sums, weighted_sum

__all__ = [
    "Attended",
    "Gates",
    "Map",
    "accepts",
    "add_gated_gradient",
    "add_gated_sum",
    "add_softmax_gradient",
    "add_softmax_sums",
    "affine",
    "binary_cross_entropy",
    "elu",
    "gated_sum",
    "gather_sources",
    "gather_targets",
    "products",
    "scaled_sum",
    "scored_mean",
    "segment_max",
    "softmax_sums",
    "sums",
    "weighted_sum",
]
