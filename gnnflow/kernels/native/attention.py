"""Softmax over in-edges and the mean it weighs, in one pass; its gradient in one pass over the edges by source.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.dropout import dropout
from gnnflow.kernels.halves import Halves
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.native.library import call, stored
from gnnflow.kernels.native.sums import products, sums

MOST_HEADS = 256
"""More than these the core has no room for (native/softmax.h)."""


@dataclass(frozen=True)
class _Fixed:
    """What has no gradient: attributes [E, A], factor [E], and kept [E, H], what dropout multiplies a weight with.

    slope: of logits that come as halves; None where they come per edge.
    """

    csr: Csr
    slope: float | None
    attributes: Tensor | None
    factor: Tensor | None
    kept: Tensor | None

    def logits(self, first: Tensor, second: Tensor | None) -> tuple[Tensor | float | None, ...]:
        """Return what the core takes for logits: those per edge, halves of sources and targets, slope, heads."""
        if self.slope is None or second is None:
            return rows_of(self.csr.num_edges, first), None, None, 1.0, first.shape[1]
        halves = rows_of(self.csr.num_sources, first), rows_of(self.csr.num_targets, second)
        return None, *halves, self.slope, first.shape[1]


def softmax_sums(
    csr: Csr, logit: Tensor | Halves, value: Tensor, *, attributes: Tensor | None, factor: Tensor | None, drop: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the maximum [T, H], the denominator [T, H] and the mean [T, H, W]; see `kernels.softmax`.

    logit: float32, of at most MOST_HEADS heads. value: float32 or in half precision, which the mean is then rounded to.
    """
    first, second, slope = logit if isinstance(logit, Halves) else (logit, None, None)
    kept = dropout(first.new_ones(csr.num_edges, first.shape[1]), drop) if drop else None
    factor = None if factor is None else rows_of(csr.num_edges, factor).float()
    fixed = _Fixed(csr, slope, attributes, factor, kept)
    maximum, denominator, mean = _Attention.apply(fixed, first, second, value)  # type: ignore[no-untyped-call]
    return maximum, denominator, mean


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, fixed: _Fixed, first: Tensor, second: Tensor | None, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        csr, heads, attributes = fixed.csr, first.shape[1], fixed.attributes
        value = rows_of(csr.num_sources, value)
        maximum, denominator = (value.new_empty(csr.num_targets, heads, dtype=torch.float32) for _ in range(2))
        mean = empty_rows(csr.num_targets, heads, value.shape[2])
        # what each edge has in the mean [E, H], for the attributes alone
        share = None if attributes is None else mean.new_empty(csr.num_edges, heads)
        given = (*fixed.logits(first, second), fixed.factor, fixed.kept, *stored(value), *value.shape[1:])
        call("gnnflow_attention", csr, csr.sources, *given, maximum, denominator, share, mean)
        whole, beside = mean, None
        if attributes is not None and share is not None:
            beside = sums(csr.edges, share, attributes[:, None])
            whole = torch.cat([mean, beside], 2)
        ctx.fixed = fixed
        ctx.save_for_backward(first, second, value, maximum, denominator, mean, beside)
        ctx.mark_non_differentiable(maximum)
        ctx.set_materialize_grads(False)
        return maximum, denominator, whole.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, grad_denominator: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        first, second, value, maximum, denominator, mean, beside = ctx.saved_tensors
        fixed: _Fixed = ctx.fixed
        csr, (_, heads, width) = fixed.csr, mean.shape
        grad = torch.zeros_like(mean, dtype=value.dtype) if grad is None else grad
        # what the gradient of an edge's share and of a target's logits have beside that of the mean's values
        by_share = None
        by_target = None if grad_denominator is None else denominator * grad_denominator
        if fixed.attributes is not None:
            by_attributes = grad[:, :, width:].float()
            by_share = products(csr.edges, by_attributes, fixed.attributes[:, None])
            own = -(by_attributes * beside).sum(2)
            by_target = own if by_target is None else by_target + own
        by_logit, about = empty_rows(csr.num_edges, heads), mean.new_empty(csr.num_targets, 4, heads)
        by_halves = (None, None) if second is None else (torch.empty_like(first), torch.empty_like(second))
        by_value = empty_rows(csr.num_sources, heads, width)
        reverse = (csr.num_sources, csr.transposed.offsets, csr.transposed.sources, csr.by_source.sources)
        known = (*fixed.logits(first, second), fixed.factor, fixed.kept, maximum, denominator, mean)
        rows, kind = stored(value)
        given = (rows, grad[:, :, :width].contiguous(), kind, *value.shape[1:], by_share, by_target)
        made = (about, by_logit, *by_halves, by_value)
        call("gnnflow_attention_gradient", csr, *reverse, *known, *given, *made)
        # a value that serves every head collects the gradients of all
        by_value = by_value if by_value.shape == value.shape else by_value.sum(1, keepdim=True)
        by_first, by_second = (by_logit, None) if second is None else by_halves
        return None, by_first, by_second, by_value.to(value.dtype)
