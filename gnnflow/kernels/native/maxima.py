"""The largest message per target and channel, and its gradient.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels import reference
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.native.library import call, rows_of, stored


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
        heads = value.shape[1] if coefficient is None else coefficient.shape[1]
        largest = value.new_empty(csr.num_targets, heads, value.shape[2], dtype=torch.float32)
        # the place among its target's in-edges of the edge that each maximum came along [T, H, D]
        places = torch.empty_like(largest, dtype=torch.int32)
        call("gnnflow_maxima", csr, csr.sources, coefficient, heads, *stored(value), *value.shape[1:], largest, places)
        ctx.csr, ctx.value_shape = csr, value.shape
        ctx.save_for_backward(coefficient, places)
        return largest.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        coefficient, places = ctx.saved_tensors
        csr: Csr = ctx.csr
        out = grad.new_empty(ctx.value_shape, dtype=torch.float32)
        given = (csr.transposed.sources, csr.by_source.sources, csr.offsets, coefficient, grad.shape[1])
        call(
            "gnnflow_maxima_gradient",
            csr.transposed,
            *given,
            places,
            grad.float().contiguous(),
            *ctx.value_shape[1:],
            out,
        )
        return None, None, out.to(grad.dtype)
