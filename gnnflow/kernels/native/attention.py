"""Softmax over in-edges and the mean it weighs, in one pass; its gradient in one pass over the edges by source.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.core import call, numbered, sources_of, stored
from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.fixed import Fixed
from gnnflow.kernels.halves import Halves
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.native.sums import products, sums

MOST_HEADS = 256
"""More than these the core has no room for (native/softmax.h)."""


def softmax_sums(
    csr: Csr, logit: Tensor | Halves, value: Tensor, *, attributes: Tensor | None, factor: Tensor | None, drop: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the maximum [T, H], the denominator [T, H] and the mean [T, H, W]; see `kernels.softmax`.

    logit: float32, of at most MOST_HEADS heads. value: float32 or in half precision, which the mean is then rounded to.
    """
    first, second = logit[:2] if isinstance(logit, Halves) else (logit, None)
    fixed = Fixed.drawn(csr, logit, attributes=attributes, factor=factor, drop=drop)
    maximum, denominator, mean = _Attention.apply(fixed, first, second, value)  # type: ignore[no-untyped-call]
    return maximum, denominator, mean


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, fixed: Fixed, first: Tensor, second: Tensor | None, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        csr, heads, attributes = fixed.csr, first.shape[1], fixed.attributes
        value = rows_of(csr.num_sources, value)
        maximum, denominator = (value.new_empty(csr.num_targets, heads, dtype=torch.float32) for _ in range(2))
        mean = empty_rows(csr.num_targets, heads, value.shape[2])
        # what each edge has in the mean [E, H], for the attributes alone
        share = None if attributes is None else mean.new_empty(csr.num_edges, heads)
        given = (*fixed.logits(first, second), fixed.factor, fixed.kept, *stored(value), *value.shape[1:])
        call("gnnflow_attention", csr, *sources_of(csr), *given, maximum, denominator, share, mean, 0)
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
        fixed: Fixed = ctx.fixed
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
        by_halves = (None, None) if second is None else (first.new_empty(first.shape), second.new_empty(second.shape))
        by_value = empty_rows(csr.num_sources, heads, width)
        reverse = _reverse(csr)
        known = (*fixed.logits(first, second), fixed.factor, fixed.kept, maximum, denominator, mean)
        rows, kind = stored(value)
        given = (rows, grad[:, :, :width].contiguous(), kind, *value.shape[1:], by_share, by_target)
        made = (about, by_logit, *by_halves, by_value)
        call("gnnflow_attention_gradient", csr, *reverse, *known, *given, *made, 0)
        # a value that serves every head collects the gradients of all
        by_value = by_value if by_value.shape == value.shape else by_value.sum(1, keepdim=True)
        by_first, by_second = (by_logit, None) if second is None else by_halves
        return None, by_first, by_second, by_value.to(value.dtype)


class Attended(NamedTuple):
    """What attention over a piece is made of: logits by their halves, value [S, H, D], all float32; factor and drop."""

    csr: Csr
    halves: Halves
    value: Tensor
    factor: Tensor | None
    drop: float


def add_softmax_sums(maximum: Tensor, denominator: Tensor, mean: Tensor, of: Attended) -> None:
    """Make the state of some edges [T, H], [T, H] and [T, H, D] that of others too; not differentiated."""
    fixed = Fixed.drawn(of.csr, of.halves, factor=of.factor, drop=of.drop)
    value = rows_of(of.csr.num_sources, of.value)
    given = (*fixed.logits(of.halves.source, of.halves.target), fixed.factor, fixed.kept, *stored(value))
    assert all(each.is_contiguous() for each in (maximum, denominator, mean)), "states are written to"
    call(
        "gnnflow_attention", of.csr, *sources_of(of.csr), *given, *value.shape[1:], maximum, denominator, None, mean, 1
    )


def add_softmax_gradient(
    made: tuple[Tensor, Tensor, Tensor], of: Attended, *, shift: Tensor, by_each: Tensor, by_mean: Tensor
) -> None:
    """Add to the gradients of both halves [S, H], [T, H] and of the value [S, H, D], knowing the whole state.

    shift [T, H]: the logarithm of the sum of exponentials. by_mean [T, H, D]: the gradient of the whole mean. by_each
    [T, H]: what each edge's share of the gradient of its logit has beside the product of by_mean with its value.
    """
    csr, (_, heads, width) = of.csr, of.value.shape
    fixed = Fixed.drawn(csr, of.halves, factor=of.factor, drop=of.drop)
    by_logit, about = empty_rows(csr.num_edges, heads), shift.new_empty(csr.num_targets, 4, heads)
    known = (*fixed.logits(of.halves.source, of.halves.target), fixed.factor, fixed.kept)
    whole = (rows_of(csr.num_targets, shift), None, None)
    rows, kind = stored(rows_of(csr.num_sources, of.value))
    given = (rows, rows_of(csr.num_targets, by_mean), kind, heads, width, None, rows_of(csr.num_targets, by_each))
    assert all(each.is_contiguous() for each in made), "gradients are written to"
    call("gnnflow_attention_gradient", csr, *_reverse(csr), *known, *whole, *given, about, by_logit, *made, 1)


def _reverse(csr: Csr) -> tuple[int, Tensor, Tensor, Tensor | None, bool]:
    """Return the edges by source, as the core takes them."""
    if csr.is_identity:
        return csr.num_sources, csr.offsets, *numbered(csr.numbers, csr.numbers)
    order = csr.by_source.numbers
    return csr.num_sources, csr.transposed.offsets, *numbered(csr.transposed.numbers, order)
