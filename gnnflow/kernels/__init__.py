"""Sums, maxima and gathers over an adjacency grouped by target: the parts of every layer's aggregation.

Read `csr.py`, then `table.py` (the choice of a kernel), `gradients.py`, and the implementations: `fused.py`,
`native` and `cuda`. `reference.py` is the plain definition.
"""

from __future__ import annotations

from gnnflow.kernels.adding import add_value_gradient, add_weighted_sum, added_sum
from gnnflow.kernels.attention_inputs import Halves, SoftmaxSums
from gnnflow.kernels.csr import UNSCALED, Csr, Instances, Pieces, Scales, identity
from gnnflow.kernels.dropout import dropout
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.native import (
    Attended,
    Gates,
    Map,
    add_gated_gradient,
    add_gated_sum,
    add_softmax_gradient,
    add_softmax_sums,
    affine,
    binary_cross_entropy,
    cross_entropy,
    elu,
    joined_means,
    scored_mean,
    softmax_of_pieces,
)
from gnnflow.kernels.softmax import adds_softmax, softmax_sums
from gnnflow.kernels.table import (
    TABLE,
    Kernel,
    choose,
    coefficient_dtype,
    fuses_gates,
    gated_sum,
    gather_sources,
    gather_targets,
    leaf_sum,
    segment_max,
    segment_sum,
    weighted_sum,
)

__all__ = [
    "TABLE",
    "UNSCALED",
    "Attended",
    "Csr",
    "Gates",
    "Halves",
    "Instances",
    "Kernel",
    "Map",
    "Pieces",
    "Scales",
    "SoftmaxSums",
    "add_gated_gradient",
    "add_gated_sum",
    "add_softmax_gradient",
    "add_softmax_sums",
    "add_value_gradient",
    "add_weighted_sum",
    "added_sum",
    "adds_softmax",
    "affine",
    "binary_cross_entropy",
    "choose",
    "coefficient_dtype",
    "cross_entropy",
    "dropout",
    "elu",
    "empty_rows",
    "fuses_gates",
    "gated_sum",
    "gather_sources",
    "gather_targets",
    "identity",
    "joined_means",
    "leaf_sum",
    "scored_mean",
    "segment_max",
    "segment_sum",
    "softmax_of_pieces",
    "softmax_sums",
    "weighted_sum",
]
