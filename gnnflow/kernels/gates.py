"""Sums of neighbours that pass through a gate per edge and column.

Shapes: T targets, S sources, E edges, W columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr
from gnnflow.kernels.table import GatedSum, choose, gather_sources, gather_targets, segment_sum


def fuses_gates(csr: Csr, rows: Tensor) -> bool:
    """Return whether a kernel computes gated sums of these rows without keeping anything per edge."""
    return _at_once(csr, rows) is not None


def gated_sum(csr: Csr, own: Tensor, other: Tensor, rows: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the sum over each target's in-edges of weight x sigmoid(own + other) x row: [T, W].

    own [T, W] and other [S, W] are the gates' halves at the two ends, rows [S, W] what passes, weight [E] a factor
    without a gradient. Without a kernel of its own [E, W] numbers are made.
    """
    own, other = own.to(rows.dtype), other.to(rows.dtype)  # under autocast a map's rows are narrower than its input's
    if (at_once := _at_once(csr, rows)) is not None:
        return at_once(csr, own, other, rows, weight)
    passed = torch.sigmoid(gather_sources(csr, other) + gather_targets(csr, own)) * gather_sources(csr, rows)
    return segment_sum(csr, passed if weight is None else weight[:, None].to(passed) * passed)


def _at_once(csr: Csr, rows: Tensor) -> GatedSum | None:
    return choose(csr, rows).gated_sum if rows.dtype == torch.float32 else None
