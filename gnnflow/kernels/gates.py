"""Sums of neighbours that pass through a gate per edge and column.

Shapes: T targets, S sources, E edges, W columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr
from gnnflow.kernels.table import choose, gather_sources, gather_targets, segment_sum


def fuses_gates(csr: Csr, rows: Tensor) -> bool:
    """Return whether a kernel computes gated sums of these rows without keeping anything per edge."""
    return choose(csr, rows).gated_sum is not None and rows.dtype == torch.float32


def gated_sum(csr: Csr, own: Tensor, other: Tensor, rows: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the sum over each target's in-edges of weight x sigmoid(own + other) x row: [T, W].

    own [T, W] and other [S, W] are the gates' halves at the two ends, rows [S, W] what passes, weight [E] a factor
    without a gradient. Without a kernel of its own [E, W] numbers are made.
    """
    own, other = own.to(rows.dtype), other.to(rows.dtype)  # under autocast a map's rows are narrower than its input's
    at_once = choose(csr, rows).gated_sum
    if at_once is not None and fuses_gates(csr, rows):
        return at_once(csr, own, other, rows, weight)
    passed = torch.sigmoid(gather_sources(csr, other) + gather_targets(csr, own)) * gather_sources(csr, rows)
    return segment_sum(csr, passed if weight is None else weight[:, None].to(passed) * passed)
