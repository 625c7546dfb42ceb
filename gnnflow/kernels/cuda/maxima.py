"""The largest message per target and channel, and its gradient.

Shapes: T targets, S sources, E edges, H heads, D width of a head, K = H x D columns.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels import reference
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.cuda.library import on_card_of, power_of_two, rows_of, warps

_MOST_COLUMNS = 256


def segment_max(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the largest coefficient [E, H] x value [S, H or 1, D] per target: [T, H, D]; -inf without in-edges.

    Of equal maxima the first edge receives the gradient. Coefficients that need a gradient take the plain definition:
    no built-in layer has them.
    """
    if coefficient is not None and coefficient.requires_grad:
        return reference.segment_max(csr, coefficient, value).to(value.dtype)
    coefficient = None if coefficient is None else coefficient.float()
    return cast("Tensor", _Maxima.apply(csr, coefficient, value))  # type: ignore[no-untyped-call]


class _Maxima(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
        value = rows_of(csr.num_sources, value)
        coefficient = None if coefficient is None else rows_of(csr.num_edges, coefficient)
        largest, places = _largest(csr, coefficient, value)
        ctx.csr, ctx.value_shape = csr, value.shape
        ctx.save_for_backward(coefficient, places)
        return largest.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        coefficient, places = ctx.saved_tensors
        gradient = _gradient(ctx.csr, coefficient, places, grad.float().contiguous())
        # A value that serves every head collects the gradients of all.
        by_value = gradient if gradient.shape == ctx.value_shape else gradient.sum(1, keepdim=True)
        return None, None, by_value.to(grad.dtype)


def _largest(csr: Csr, coefficient: Tensor | None, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maxima in float32, and the place among its target's edges of the edge that each came along."""
    from gnnflow.kernels.cuda.programs import largest_rows

    heads, width = value.shape[1] if coefficient is None else coefficient.shape[1], value.shape[2]
    columns = heads * width
    largest = value.new_empty(csr.num_targets, heads, width, dtype=torch.float32)
    places = torch.empty_like(largest, dtype=torch.int32)
    if largest.numel():
        wide = min(power_of_two(columns), _MOST_COLUMNS)
        with on_card_of(value):
            largest_rows[csr.num_targets, -(-columns // wide)](
                csr.offsets,
                csr.sources,
                coefficient,
                value,
                largest,
                places,
                columns,
                width,
                heads,
                value.shape[1] * width,
                WEIGHTED=coefficient is not None,
                TILE_COLUMNS=wide,
                num_warps=warps(8 * wide),
            )
    return largest, places


def _gradient(csr: Csr, coefficient: Tensor | None, places: Tensor, grad: Tensor) -> Tensor:
    """Return each source's gradient [S, H, D] from that of the maxima [T, H, D]."""
    from gnnflow.kernels.cuda.programs import largest_rows_gradient

    heads, width = grad.shape[1:]
    columns = heads * width
    out = grad.new_empty(csr.num_sources, heads, width)
    if out.numel():
        wide = min(power_of_two(columns), _MOST_COLUMNS)
        with on_card_of(grad):
            largest_rows_gradient[csr.num_sources, -(-columns // wide)](
                csr.transposed.offsets,
                csr.transposed.sources,
                csr.by_source.sources,
                csr.offsets,
                coefficient,
                places,
                grad,
                out,
                columns,
                width,
                heads,
                WEIGHTED=coefficient is not None,
                TILE_COLUMNS=wide,
                num_warps=warps(8 * wide),
            )
    return out
