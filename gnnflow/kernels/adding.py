"""Sums that are added to what is there, and so the gradients of their values: for states that grow piece by piece.

Nothing here is differentiated; sums and gradients are those of `table.weighted_sum`.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels import native
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.scales import UNSCALED, Scales
from gnnflow.kernels.table import weighted_sum


def add_weighted_sum(
    sums: Tensor, csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales = UNSCALED
) -> None:
    """Add to sums [T, H, D] those over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]."""
    _add(sums, csr, coefficient, value, scales, order=None)


def add_value_gradient(
    gradient: Tensor, csr: Csr, coefficient: Tensor | None, by_sums: Tensor, scales: Scales = UNSCALED
) -> None:
    """Add to the gradient of a sum's value [S, H or 1, D], given that of the sums [T, H, D]."""
    back = csr if csr.is_identity else csr.transposed
    order = None if coefficient is None or csr.is_identity else csr.by_source.sources
    if gradient.shape[1] == by_sums.shape[1]:
        _add(gradient, back, coefficient, by_sums, scales.reversed, order=order)
        return
    # a value that serves every head collects the gradients of all
    of_heads = by_sums.new_zeros(len(gradient), *by_sums.shape[1:])
    _add(of_heads, back, coefficient, by_sums, scales.reversed, order=order)
    gradient.add_(of_heads.sum(1, keepdim=True))


def _add(
    sums: Tensor, csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales, *, order: Tensor | None
) -> None:
    """Add to sums. order: the row of each edge among the coefficients, where that is not its own."""
    if csr.is_identity:
        factor = value.new_ones(()) if coefficient is None else coefficient[:, :, None]
        for scale in scales:
            factor = factor if scale is None else factor * scale[:, None, None]
        sums.addcmul_(value, factor)
    elif native.accepts(csr, value) and sums.dtype == torch.float32:
        coefficient = None if coefficient is None else coefficient.float()
        native.sums(csr, coefficient, value, edges=order, scales=scales, into=sums)
    else:
        ordered = coefficient if coefficient is None or order is None else coefficient.index_select(0, order)
        sums.add_(weighted_sum(csr, ordered, value, scales))
