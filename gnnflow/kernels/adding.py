"""Weighted sums, and gradients of their values, added to existing tensors: for states that grow piece by piece.

They equal `table.weighted_sum` and its gradients; autograd sees only `added_sum`.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.kernels import native
from gnnflow.kernels.csr import UNSCALED, Csr, Scales
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.table import weighted_sum


def add_weighted_sum(
    sums: Tensor, csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales = UNSCALED
) -> None:
    """Add coefficient [E, H] x value [S, H or 1, D] of each target's in-edges to sums [T, H, D]."""
    _add(sums, csr, coefficient, value, scales, order=None)


def added_sum(sums: Tensor, csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales = UNSCALED) -> Tensor:
    """Return sums [T, H, D] plus the weighted sums of `add_weighted_sum`; this may write to sums.

    Autograd sees sums, value and coefficient.
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
    """Add to the gradient of value [S, H or 1, D], given the gradient of the sums [T, H, D]."""
    back = csr if csr.is_identity else csr.transposed
    order = None if coefficient is None or csr.is_identity else csr.by_source.numbers
    if gradient.shape[1] == by_sums.shape[1]:
        _add(gradient, back, coefficient, by_sums, scales.reversed, order=order)
        return
    # the gradient for each head [S, H, D]; a value that serves every head gets their sum
    by_head = by_sums.new_zeros(len(gradient), *by_sums.shape[1:])
    _add(by_head, back, coefficient, by_sums, scales.reversed, order=order)
    gradient.add_(by_head.sum(1, keepdim=True))


def _add(
    sums: Tensor, csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales, *, order: Tensor | None
) -> None:
    """Add to sums. order: the coefficient row of each edge; None where edge e has row e."""
    if csr.is_identity:
        # the factor of each target's one edge [T, H, 1]
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
