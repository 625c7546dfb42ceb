"""Weighted sums over in-edges, and their gradients.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels import fused
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.native.library import call, rows_of


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    return cast("Tensor", _WeightedSum.apply(csr, coefficient, value))  # type: ignore[no-untyped-call]


def sums(csr: Csr, coefficient: Tensor | None, value: Tensor, *, edges: Tensor | None = None) -> Tensor:
    """Return the weighted sums [T, H, D] without a gradient.

    edges [E]: the row of each edge among the coefficients, where that is not its own. Raises IndexError where an
    operand lacks rows that the adjacency leads to.
    """
    value = rows_of(csr.num_sources, value)
    if coefficient is not None:
        coefficient = rows_of(csr.num_edges, coefficient)
    heads = value.shape[1] if coefficient is None else coefficient.shape[1]
    out = value.new_empty(csr.num_targets, heads, value.shape[2])
    call("gnnflow_sums", csr, csr.sources, edges, coefficient, heads, value, *value.shape[1:], out)
    return out


def products(csr: Csr, left: Tensor, right: Tensor) -> Tensor:
    """Return per edge and head the dot product of its target's row of left [T, H, D] and its source's of right: [E, H].

    right has a single head or H. Raises IndexError where an operand lacks rows that the adjacency leads to.
    """
    left, right = rows_of(csr.num_targets, left), rows_of(csr.num_sources, right)
    out = left.new_empty(csr.num_edges, left.shape[1])
    call("gnnflow_products", csr, csr.sources, left, left.shape[1], right, *right.shape[1:], out)
    return out


def value_gradient(csr: Csr, coefficient: Tensor | None, value: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of value [S, H or 1, D], from that of the sums [T, H, D]."""
    if csr.is_edgewise:
        return fused.edge_gradient(csr, coefficient, value, grad)
    # each source's sum over its out-edges of coefficient x its target's gradient row [S, H, D]
    gradient = sums(csr.transposed, coefficient, grad, edges=csr.by_source.sources)
    # a value that serves every head collects the gradients of all
    return gradient if gradient.shape == value.shape else gradient.sum(1, keepdim=True)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
        ctx.csr = csr
        ctx.save_for_backward(coefficient, value)
        return sums(csr, coefficient, value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        coefficient, value = ctx.saved_tensors
        csr: Csr = ctx.csr
        _, needs_coefficient, needs_value = ctx.needs_input_grad
        by_coefficient = products(csr, grad, value) if needs_coefficient else None
        return None, by_coefficient, value_gradient(csr, coefficient, value, grad) if needs_value else None
