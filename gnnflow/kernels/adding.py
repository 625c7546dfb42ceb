"""Sums that are added to what is there, and so the gradients of their values: for states that grow piece by piece.

Sums and gradients are those of `table.weighted_sum`; `added_sum` alone is differentiated.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.kernels import native
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.scales import UNSCALED, Scales
from gnnflow.kernels.table import weighted_sum


def add_weighted_sum(
    sums: Tensor, csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales = UNSCALED
) -> None:
    """Add to sums [T, H, D] those over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]."""
    _add(sums, csr, coefficient, value, scales, order=None)


def added_sum(sums: Tensor, csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales = UNSCALED) -> Tensor:
    """Return sums [T, H, D] with those that `add_weighted_sum` adds; the sums may be written to.

    Under autograd for sums and value, and for a coefficient.
    """
    learns = torch.is_grad_enabled() and (sums.requires_grad or value.requires_grad)
    fixed = coefficient is None or not coefficient.requires_grad
    is_plain = sums.dtype == value.dtype == torch.float32 and sums.shape[1] == value.shape[1]
    in_place = fixed and is_plain and native.accepts(csr, value) and not csr.is_identity
    if learns and not in_place:
        return sums + weighted_sum(csr, coefficient, value, scales)
    if learns:
        return cast("Tensor", _AddedSum.apply(csr, (coefficient, scales), sums, value))  # type: ignore[no-untyped-call]
    add_weighted_sum(sums, csr, coefficient, value, scales)
    return sums


class _AddedSum(Function):
    @staticmethod
    def forward(ctx: Any, csr: Csr, factors: tuple[Tensor | None, Scales], sums: Tensor, value: Tensor) -> Tensor:
        ctx.csr, ctx.factors, ctx.shape = csr, factors, value.shape
        ctx.mark_dirty(sums)
        add_weighted_sum(sums, csr, factors[0], value, factors[1])
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, (coefficient, scales) = None, ctx.factors
        if ctx.needs_input_grad[3]:
            gradient = empty_rows(*ctx.shape).zero_()
            add_value_gradient(gradient, ctx.csr, coefficient, grad.contiguous(), scales)
        return None, None, grad, gradient


def add_value_gradient(
    gradient: Tensor, csr: Csr, coefficient: Tensor | None, by_sums: Tensor, scales: Scales = UNSCALED
) -> None:
    """Add to the gradient of a sum's value [S, H or 1, D], given that of the sums [T, H, D]."""
    back = csr if csr.is_identity else csr.transposed
    order = None if coefficient is None or csr.is_identity else csr.by_source.numbers
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
