"""Softmax over in-edges and the sum it weighs, in one pass; its gradient in two.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.csr import Csr
from gnnflow.kernels.dropout import dropout
from gnnflow.kernels.gradients import value_gradient
from gnnflow.kernels.native.library import call, rows_of, stored
from gnnflow.kernels.native.sums import LOOPS, products, sums


@dataclass(frozen=True)
class _Fixed:
    """What has no gradient: attributes [E, A], factor [E], and kept [E, H], what dropout multiplies a weight with."""

    attributes: Tensor | None
    factor: Tensor | None
    kept: Tensor | None


def softmax_sums(
    csr: Csr, logit: Tensor, value: Tensor, *, attributes: Tensor | None, factor: Tensor | None, drop: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the maximum [T, H], the denominator [T, H] and the weighted sums [T, H, W]; see `kernels.softmax`.

    logit: float32. value: float32 or in half precision, which the weighted sums are then rounded to.
    """
    fixed = _Fixed(attributes, factor, dropout(torch.ones_like(logit), drop) if drop else None)
    maximum, denominator, weighted = _Attention.apply(csr, logit, value, fixed)  # type: ignore[no-untyped-call]
    return maximum, denominator, weighted


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: Csr, logit: Tensor, value: Tensor, fixed: _Fixed) -> tuple[Tensor, Tensor, Tensor]:
        attributes, kept = fixed.attributes, fixed.kept
        logit, value = rows_of(csr.num_edges, logit), rows_of(csr.num_sources, value)
        factor = None if fixed.factor is None else rows_of(csr.num_edges, fixed.factor).to(logit)
        heads = logit.shape[1]
        maximum, denominator = (logit.new_empty(csr.num_targets, heads) for _ in range(2))
        weighted = logit.new_empty(csr.num_targets, heads, value.shape[2])
        # what each edge weighs [E, H], and what of it dropout lets into the sums
        weight = torch.empty_like(logit)
        used = weight if kept is None else torch.empty_like(logit)
        given = (csr.sources, logit, factor, kept, heads, *stored(value), *value.shape[1:])
        call("gnnflow_attention", csr, *given, maximum, denominator, weight, used, weighted)
        if attributes is not None:
            weighted = torch.cat([weighted, sums(csr.edges, used, attributes[:, None])], 2)
        ctx.csr, ctx.width = csr, value.shape[2]
        ctx.save_for_backward(value, attributes, kept, weight, used)
        ctx.mark_non_differentiable(maximum)
        return maximum, denominator, weighted.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, _: Tensor, grad_denominator: Tensor, grad: Tensor
    ) -> tuple[None, Tensor | None, Tensor | None, None]:
        value, attributes, kept, weight, used = ctx.saved_tensors
        csr: Csr = ctx.csr
        # gradients of the sums over values [T, H, D] and over attributes [T, H, A]
        by_value, by_attributes = grad[:, :, : ctx.width].contiguous(), grad[:, :, ctx.width :]
        by_logit = None
        if ctx.needs_input_grad[1]:
            by_logit = torch.empty_like(weight)
            rows, kind = stored(value)
            given = (csr.sources, rows, weight, kept, by_value, grad_denominator.contiguous())
            call("gnnflow_logit_gradient", csr, *given, weight.shape[1], kind, *value.shape[1:], by_logit)
            if attributes is not None:
                by_logit += used * products(csr.edges, by_attributes, attributes[:, None])
        gradient = value_gradient(LOOPS, csr, used, value, by_value) if ctx.needs_input_grad[2] else None
        return None, by_logit, gradient, None
