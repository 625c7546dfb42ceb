"""Weighted sums over in-edges and products per edge, on the core.

Rows in half precision are read as they are; coefficients and sums are float32. Where autograd sees a sum, it has been
rounded once, to the type of the rows.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels import gradients
from gnnflow.kernels.core import call, numbered, sources_of, stored
from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.scales import UNSCALED, Scales


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    coefficient = None if coefficient is None else coefficient.float()
    return gradients.weighted_sum(LOOPS, csr, coefficient, value)


def scaled_sum(csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales) -> Tensor:
    """Return scales.target x the weighted sum of scales.source x value, without a row for either product.

    coefficient has no gradient.
    """
    coefficient = None if coefficient is None else coefficient.float()
    scales = Scales(*(None if scale is None else scale.float() for scale in scales))
    return cast("Tensor", _ScaledSum.apply(csr, coefficient, value, scales))  # type: ignore[no-untyped-call]


def sums(
    csr: Csr,
    coefficient: Tensor | None,
    value: Tensor,
    *,
    edges: Tensor | None = None,
    scales: Scales = UNSCALED,
    into: Tensor | None = None,
) -> Tensor:
    """Return the weighted sums [T, H, D] in float32, without a gradient.

    coefficient: float32. edges [E]: the row of each edge among the coefficients, where that is not its own. into:
    contiguous sums, float32, that they are added to and that are returned. Raises IndexError where an operand lacks
    rows that the adjacency leads to.
    """
    value = rows_of(csr.num_sources, value)
    if coefficient is not None:
        coefficient = rows_of(csr.num_edges, coefficient)
    if scales.source is not None:
        by_source = rows_of(csr.num_sources, scales.source)[:, None]
        if coefficient is None:  # what an edge counts for is in the row of its source
            coefficient, edges = by_source.expand(-1, value.shape[1]).contiguous(), csr.numbers
        else:
            ordered = coefficient if edges is None else coefficient.index_select(0, edges)
            coefficient, edges = ordered * by_source.index_select(0, csr.numbers), None
    heads = value.shape[1] if coefficient is None else coefficient.shape[1]
    shape = (csr.num_targets, heads, value.shape[2])
    out = empty_rows(*shape) if into is None else into
    assert out.shape == shape, "sums have a row per target"
    assert out.is_contiguous()
    by_target = None if scales.target is None else rows_of(csr.num_targets, scales.target)
    given = (*numbered(csr.numbers, edges), coefficient, heads, *stored(value), *value.shape[1:], by_target)
    call("gnnflow_sums", csr, *given, out, into is not None)
    return out


def products(csr: Csr, left: Tensor, right: Tensor) -> Tensor:
    """Return per edge and head the dot product of its target's row of left [T, H, D] and its source's of right: [E, H].

    right has a single head or H; the products are float32. Raises IndexError where an operand lacks rows that the
    adjacency leads to.
    """
    if left.dtype != right.dtype:
        left, right = left.float(), right.float()
    left, right = rows_of(csr.num_targets, left), rows_of(csr.num_sources, right)
    out = left.new_empty(csr.num_edges, left.shape[1], dtype=torch.float32)
    call("gnnflow_products", csr, *sources_of(csr), left, left.shape[1], *stored(right), *right.shape[1:], out)
    return out


LOOPS = gradients.Loops(sums, products)
gather_sources, gather_targets = LOOPS.gather_sources, LOOPS.gather_targets


def _by_source(csr: Csr, coefficient: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return a coefficient [E, H] in the order of the reversed edges, times the scale [T] of each edge's target."""
    ordered = coefficient.index_select(0, csr.by_source.numbers)
    return ordered if scale is None else ordered * scale.index_select(0, csr.transposed.numbers)[:, None]


class _ScaledSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales) -> Tensor:
        ctx.csr, ctx.coefficient, ctx.scales, ctx.like = csr, coefficient, scales, value.new_empty(0, *value.shape[1:])
        return sums(csr, coefficient, value, scales=scales).to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None]:
        csr: Csr = ctx.csr
        coefficient, scales = ctx.coefficient, ctx.scales.reversed
        if coefficient is not None:
            given = (coefficient,) if scales.source is None else (coefficient, scales.source)
            coefficient, scales = csr.kept("by_source", given, partial(_by_source, csr)), Scales(None, scales.target)
        gradient = sums(csr.transposed, coefficient, grad, scales=scales)
        # A value that serves every head collects the gradients of all.
        gradient = gradient if gradient.shape[1] == ctx.like.shape[1] else gradient.sum(1, keepdim=True)
        return None, None, gradient.to(ctx.like.dtype), None
