"""Weighted sums over in-edges and products per edge, on the core.

Rows in half precision are read as they are; coefficients and sums are float32. Where autograd sees a sum, it has been
rounded once, to the type of the rows.

Shapes: T targets, S sources, E edges, H heads, D width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnflow.kernels import gradients
from gnnflow.kernels.csr import Csr
from gnnflow.kernels.native.library import call, rows_of, stored


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    coefficient = None if coefficient is None else coefficient.float()
    return gradients.weighted_sum(LOOPS, csr, coefficient, value)


def gather_sources(csr: Csr, term: Tensor) -> Tensor:
    """Return term [S, ...] of each edge's source: [E, ...]."""
    return gradients.gather_sources(LOOPS, csr, term)


def gather_targets(csr: Csr, term: Tensor) -> Tensor:
    """Return term [T, ...] of each edge's target: [E, ...]."""
    return gradients.gather_targets(LOOPS, csr, term)


def sums(csr: Csr, coefficient: Tensor | None, value: Tensor, *, edges: Tensor | None = None) -> Tensor:
    """Return the weighted sums [T, H, D] in float32, without a gradient.

    coefficient: float32. edges [E]: the row of each edge among the coefficients, where that is not its own. Raises
    IndexError where an operand lacks rows that the adjacency leads to.
    """
    value = rows_of(csr.num_sources, value)
    if coefficient is not None:
        coefficient = rows_of(csr.num_edges, coefficient)
    heads = value.shape[1] if coefficient is None else coefficient.shape[1]
    out = value.new_empty(csr.num_targets, heads, value.shape[2], dtype=torch.float32)
    call("gnnflow_sums", csr, csr.sources, edges, coefficient, heads, *stored(value), *value.shape[1:], out)
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
    call("gnnflow_products", csr, csr.sources, left, left.shape[1], *stored(right), *right.shape[1:], out)
    return out


LOOPS = gradients.Loops(sums, products)
