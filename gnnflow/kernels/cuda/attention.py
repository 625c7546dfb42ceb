"""Softmax over in-edges and the sum it weighs: one program per target over its logits, then the weighted sum.

What is kept of an edge is a number per head, never a row.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.cuda.library import on_card_of, power_of_two, warps
from gnnflow.kernels.cuda.sums import LOOPS, products, sums
from gnnflow.kernels.dropout import dropout
from gnnflow.kernels.gradients import value_gradient

_TILE = 256  # logits that a program reads at a time


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
        maximum, denominator = (logit.new_empty(csr.num_targets, logit.shape[1]) for _ in range(2))
        # what each edge weighs [E, H], and what of it dropout lets into the sums
        weight = torch.empty_like(logit)
        used = weight if kept is None else torch.empty_like(logit)
        _softmax(csr, logit, (factor, kept), (maximum, denominator, weight, used))
        weighted = sums(csr, used, value)
        if attributes is not None:
            weighted = torch.cat([weighted, sums(csr.edges, used, attributes[:, None])], 2)
        ctx.csr, ctx.width = csr, value.shape[2]
        ctx.save_for_backward(value, attributes, weight, used)
        ctx.mark_non_differentiable(maximum)
        return maximum, denominator, weighted.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, _: Tensor, grad_denominator: Tensor, grad: Tensor
    ) -> tuple[None, Tensor | None, Tensor | None, None]:
        value, attributes, weight, used = ctx.saved_tensors
        csr: Csr = ctx.csr
        # gradients of the sums over values [T, H, D] and over attributes [T, H, A]
        by_value, by_attributes = grad[:, :, : ctx.width], grad[:, :, ctx.width :]
        by_logit = None
        if ctx.needs_input_grad[1]:
            by_logit = products(csr, by_value, value)
            if attributes is not None:
                by_logit += products(csr.edges, by_attributes, attributes[:, None])
            # per edge and head: by its part of the sums, and by that of the denominator [E, H]
            by_logit = (by_logit * used).addcmul_(weight, grad_denominator.index_select(0, csr.targets))
        gradient = value_gradient(LOOPS, csr, used, value, by_value) if ctx.needs_input_grad[2] else None
        return None, by_logit, gradient, None


def _softmax(
    csr: Csr,
    logit: Tensor,
    given: tuple[Tensor | None, Tensor | None],
    out: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """Fill maximum, denominator, weight and used from the logits, the factor and what dropout keeps."""
    from gnnflow.kernels.cuda.programs import softmax_rows

    heads = logit.shape[1]
    if not csr.num_targets or not heads:
        return
    wide = power_of_two(heads)
    high = min(max(_TILE // wide, 4), 64)
    with on_card_of(logit):
        softmax_rows[(csr.num_targets,)](
            csr.offsets,
            logit,
            *given,
            *out,
            heads,
            SCALED=given[0] is not None,
            DROPPED=given[1] is not None,
            TILE_EDGES=high,
            TILE_HEADS=wide,
            num_warps=warps(high * wide),
        )
