"""Weighted sums and maxima over in-edges, sums over leaves of instances, and products per edge, on the core.

Rows in half precision are read as they are; coefficients and sums are float32. Autograd sees sums that were rounded
once, to the type of the rows.

Shapes: T targets, S sources, E edges or instances, H heads, D width of a head.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels import gradients
from gnnflow.kernels.core import accepts, call, index_args, row_args, source_args
from gnnflow.kernels.csr import UNSCALED, Csr, Instances, Scales, rows_of
from gnnflow.kernels.memory import empty_rows


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    coefficient = None if coefficient is None else coefficient.float()
    return gradients.weighted_sum(LOOPS, csr, coefficient, value)


def scaled_sum(csr: Csr, coefficient: Tensor | None, value: Tensor, scales: Scales) -> Tensor:
    """Return scales.target x the weighted sum of scales.source x value, without a copy of the rows.

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

    coefficient: float32. edges [E]: the coefficient row of each edge; None where edge e has row e. into: contiguous
    float32 sums to add to, which are returned. Raises IndexError if an operand has too few or too many rows.
    """
    value = rows_of(csr.num_sources, value)
    if coefficient is not None:
        coefficient = rows_of(csr.num_edges, coefficient)
    if scales.source is not None:
        by_source = rows_of(csr.num_sources, scales.source)[:, None]
        if coefficient is None:  # the coefficient of an edge is the scale of its source
            coefficient, edges = by_source.expand(-1, value.shape[1]).contiguous(), csr.numbers
        else:
            # coefficients in the order of the edges [E, H], then times the scales of the edges' sources
            ordered = coefficient if edges is None else coefficient.index_select(0, edges)
            coefficient, edges = ordered * by_source.index_select(0, csr.numbers), None
    heads = value.shape[1] if coefficient is None else coefficient.shape[1]
    shape = (csr.num_targets, heads, value.shape[2])
    out = empty_rows(*shape) if into is None else into
    assert out.shape == shape, "sums have one row per target"
    assert out.is_contiguous()
    by_target = None if scales.target is None else rows_of(csr.num_targets, scales.target)
    given = (*index_args(csr.numbers, edges), coefficient, heads, *row_args(value), *value.shape[1:], by_target)
    if csr.pieces is not None:
        assert into is None, "sums over pieces are whole"
        call("gnnflow_joined_sums", csr, *csr.pieces, *given, out)
    else:
        call("gnnflow_sums", csr, *given, out, into is not None)
    return out


def products(csr: Csr, left: Tensor, right: Tensor) -> Tensor:
    """Return per edge and head the dot product of the target's left and the source's right row: [E, H].

    left [T, H, D]; right [S, H or 1, D]; the products are float32. Raises IndexError if an operand has too few or too
    many rows.
    """
    if left.dtype != right.dtype:
        left, right = left.float(), right.float()
    left, right = rows_of(csr.num_targets, left), rows_of(csr.num_sources, right)
    out = left.new_empty(csr.num_edges, left.shape[1], dtype=torch.float32)
    call("gnnflow_products", csr, *source_args(csr), left, left.shape[1], *row_args(right), *right.shape[1:], out)
    return out


LOOPS = gradients.Loops(sums, products)
gather_sources, gather_targets = LOOPS.gather_sources, LOOPS.gather_targets


def _by_source(csr: Csr, coefficient: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return coefficients [E, H] in the order of the reversed edges, times the scales [T] of the edges' targets."""
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
        # a value that serves every head gets the sum of their gradients
        gradient = gradient if gradient.shape[1] == ctx.like.shape[1] else gradient.sum(1, keepdim=True)
        return None, None, gradient.to(ctx.like.dtype), None


def _largest(csr: Csr, coefficient: Tensor | None, value: Tensor) -> gradients.Maxima:
    heads = value.shape[1] if coefficient is None else coefficient.shape[1]
    # the maxima [T, H, D], and the place of the edge that each comes from
    largest = value.new_empty(csr.num_targets, heads, value.shape[2], dtype=torch.float32)
    places = torch.empty_like(largest, dtype=torch.int32)
    given = (*source_args(csr), coefficient, heads, *row_args(value), *value.shape[1:])
    call("gnnflow_maxima", csr, *given, largest, places)
    return gradients.Maxima(largest, places)


def _maximum_gradient(csr: Csr, coefficient: Tensor | None, places: Tensor, grad: Tensor, heads: int) -> Tensor:
    # the gradient of the values [S, H, D]
    out = grad.new_empty(csr.num_sources, heads, grad.shape[2])
    given = (*index_args(csr.transposed.numbers, csr.by_source.numbers), csr.offsets, coefficient, grad.shape[1])
    call("gnnflow_maxima_gradient", csr.transposed, *given, places, grad, *out.shape[1:], out)
    return out


segment_max = gradients.Extremes(_largest, _maximum_gradient).segment_max


def accepts_leaves(instances: Instances, coefficient: Tensor, value: Tensor) -> bool:
    """Return whether `one_head_sum` takes these: float32 rows of one head under several heads of coefficients."""
    plain = value.dtype == coefficient.dtype == torch.float32
    return plain and value.shape[1] == 1 < coefficient.shape[1] and accepts(instances.leaves, value)


def one_head_sum(instances: Instances, coefficient: Tensor, value: Tensor) -> Tensor:
    """Return per target the sum over its instances of coefficient [E, H] x the sum of their leaves: [T, H, D].

    value [S, 1, D]: the leaves' rows.

    A leaf's gradient is a sum over its instances of coefficients x their target's row of H heads. Read leaf by leaf,
    that is H times the leaf's width per leaf; so each instance's part is made once, target by target, in the leaf's
    width, and these parts are added up.
    """
    return cast("Tensor", _OneHeadSum.apply(instances, coefficient, value))  # type: ignore[no-untyped-call]


class _OneHeadSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, instances: Instances, coefficient: Tensor, value: Tensor) -> Tensor:
        ctx.instances = instances
        ctx.save_for_backward(coefficient, value)
        return sums(instances.flat, coefficient.index_select(0, instances.leaves.targets), value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        coefficient, value = ctx.saved_tensors
        instances: Instances = ctx.instances
        by_coefficient = by_value = None
        if ctx.needs_input_grad[1]:
            rows = sums(instances.leaves, None, value)  # the sum of each instance's leaves [E, 1, D]
            by_coefficient = products(instances.roots, grad.contiguous(), rows)
        if ctx.needs_input_grad[2]:
            heads = coefficient.shape[1]
            # one row per target and head [T H, 1, D]
            of_heads = grad.reshape(-1, 1, grad.shape[2])
            # the gradient that each instance passes to its leaves [E, 1, D]
            rows = sums(instances.heads(heads), coefficient.reshape(-1, 1), of_heads)
            by_value = sums(instances.leaves.transposed, None, rows)
        return None, by_coefficient, by_value
