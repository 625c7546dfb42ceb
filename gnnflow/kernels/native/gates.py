"""Gated sums on the core: one pass over the edges forward and one, by source, backward.

Forward also sums the rows weighed by the slopes of the gates: the gradient of the targets' halves needs only that.

Shapes: T targets, S sources, E edges, W columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.core import call, index_args
from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.memory import empty_rows


def gated_sum(csr: Csr, own: Tensor, other: Tensor, rows: Tensor, weight: Tensor | None) -> Tensor:
    """Return `kernels.gated_sum` of float32 operands; weight [E] has no gradient."""
    edges = _Edges(csr, None if weight is None else rows_of(csr.num_edges, weight.float()))
    out: Tensor = _GatedSum.apply(edges, own, other, rows)  # type: ignore[no-untyped-call]
    return out


class _Edges(NamedTuple):
    """Inputs without a gradient: the adjacency and the weight of each edge [E], None for one."""

    csr: Csr
    weight: Tensor | None


class _GatedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: _Edges, own: Tensor, other: Tensor, rows: Tensor) -> Tensor:
        csr, weight = edges
        own, other, rows = rows_of(csr.num_targets, own), *(rows_of(csr.num_sources, each) for each in (other, rows))
        # the sums [T, W], and for a backward pass the rows weighed by the gates' slopes [T, W]
        out = empty_rows(csr.num_targets, own.shape[1])
        slope = empty_rows(*out.shape) if any(ctx.needs_input_grad) else None
        given = (*index_args(csr.numbers, None), weight, own, other, rows, own.shape[1])
        call("gnnflow_gates", csr, *given, out, slope, None, 0)
        ctx.edges = edges
        ctx.save_for_backward(own, other, rows, slope)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        own, other, rows, slope = ctx.saved_tensors
        csr, weight = ctx.edges
        grad = rows_of(csr.num_targets, grad)
        by_rows, by_other = empty_rows(*rows.shape), empty_rows(*rows.shape)
        _call_gradient(Gates(csr, own, other, rows, weight), grad, (by_rows, by_other), add=False)
        return None, grad * slope, by_other, by_rows


class Gates(NamedTuple):
    """The operands of a gated sum, each contiguous; see `gated_sum`."""

    csr: Csr
    own: Tensor
    other: Tensor
    rows: Tensor
    weight: Tensor | None


def add_gated_sum(sums: Tensor, slopes: Tensor | None, gates: Gates) -> None:
    """Add the gated sums to sums [T, W], and the rows weighed by the gates' slopes to slopes [T, W].

    The gradient of the targets' halves is slopes times the gradient of the sums.
    """
    csr, own, other, rows, weight = gates
    given = (*index_args(csr.numbers, None), weight, own, other, rows, own.shape[1])
    call("gnnflow_gates", csr, *given, sums, slopes, None, 1)


def add_gated_gradient(by_rows: Tensor, by_other: Tensor, gates: Gates, grad: Tensor) -> None:
    """Add to the gradients of rows and sources' halves [S, W], given the gradient of the sums [T, W]."""
    _call_gradient(gates, grad, (by_rows, by_other), add=True)


def _call_gradient(gates: Gates, grad: Tensor, made: tuple[Tensor, Tensor], *, add: bool) -> None:
    csr, own, other, rows, weight = gates
    order = None if weight is None else csr.by_source.numbers
    # the same sums over the reversed edges, of the targets' gradients
    back = csr.transposed
    given = (*index_args(back.numbers, order), weight, other, own, grad, own.shape[1])
    call("gnnflow_gates", back, *given, *made, rows, add)
