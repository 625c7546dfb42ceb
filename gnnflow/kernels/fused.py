"""Scatter, edge function and gather in one pass, without a row per edge (NGra, Ma et al. 2018, section 4).

The weighted sum is a bag of source rows per target: `embedding_bag` streams each source row once through the cache into
its target's sum. Rows are split over threads by target, so no two threads write the same sum and its bits depend on
nothing but the inputs. The backward pass is the same bag over the reversed edges for the values, and a sampled
dense-dense product (one dot per edge) for the coefficients. Measured in docs/decisions/0005-kernels.md.

Shapes: T targets, S sources, E edges, H heads, D width of a head, K columns.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels import reference
from gnnflow.kernels.csr import Csr


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    return cast("Tensor", _WeightedSum.apply(csr, coefficient, value))  # type: ignore[no-untyped-call]


def segment_max(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the largest coefficient x value per target and channel: [T, H, D]; -inf where there is no in-edge.

    Of equal maxima one edge receives the gradient, always the same. Coefficients that need a gradient take the plain
    definition: no built-in layer has them.
    """
    if coefficient is not None and coefficient.requires_grad:
        return reference.segment_max(csr, coefficient, value)
    ones = value.new_ones(csr.num_edges)
    heads = value.shape[1] if coefficient is None else coefficient.shape[1]
    # coefficients of each head [E], then each head's maxima [T, D]
    columns = [ones if coefficient is None else coefficient[:, head].contiguous() for head in range(heads)]
    largest = [torch.sparse.mm(csr.matrix(column), _head(value, head), "amax") for head, column in enumerate(columns)]
    return torch.stack(largest, 1).masked_fill((csr.degree == 0)[:, None, None], -torch.inf)


def gather_sources(csr: Csr, term: Tensor) -> Tensor:
    """Return term [S, ...] of each edge's source: [E, ...]."""
    return _gather(csr.sources, csr, term, by_source=True)


def gather_targets(csr: Csr, term: Tensor) -> Tensor:
    """Return term [T, ...] of each edge's target: [E, ...]."""
    return _gather(csr.targets, csr, term, by_source=False)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
        ctx.csr = csr
        ctx.save_for_backward(coefficient, value)
        return _bags(csr, _columns(coefficient), value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        coefficient, value = ctx.saved_tensors
        csr: Csr = ctx.csr
        _, needs_coefficient, needs_value = ctx.needs_input_grad
        by_coefficient = _sampled_products(csr, grad, value) if needs_coefficient else None
        return None, by_coefficient, _value_gradient(csr, coefficient, value, grad) if needs_value else None


def edge_gradient(csr: Csr, coefficient: Tensor | None, value: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of values that are one row per edge: its target's row, times its coefficient [E, H, D]."""
    gathered = grad.index_select(0, csr.targets)
    gradient = gathered if coefficient is None else coefficient[:, :, None] * gathered
    return gradient if gradient.shape == value.shape else gradient.sum(1, keepdim=True)


def _value_gradient(csr: Csr, coefficient: Tensor | None, value: Tensor, grad: Tensor) -> Tensor:
    if csr.is_edgewise:
        return edge_gradient(csr, coefficient, value, grad)
    # coefficients in the order of the reversed edges [E, H], then the bag of gradient rows per source [S, H, D]
    reordered = None if coefficient is None else coefficient.index_select(0, csr.by_source.sources)
    gradient = _bags(csr.transposed, _columns(reordered), grad)
    # A value that serves every head collects the gradients of all.
    return gradient if gradient.shape == value.shape else gradient.sum(1, keepdim=True)


def _sampled_products(csr: Csr, left: Tensor, right: Tensor) -> Tensor:
    # Per edge and head the dot product of its target's row in `left` and its source's row in `right`: [E, H].
    heads = range(left.shape[1])
    if csr.num_edges > csr.num_targets * csr.num_sources:
        # Repeated edges outnumber all pairs: the dense product is the smaller one, and torch's sparse one refuses.
        dense = [(left[:, head] @ _head(right, head).T)[csr.targets, csr.sources] for head in heads]
        return torch.stack(dense, 1)
    # zeros where there is an edge [T, S]; per head the products at these places [E]
    pattern = csr.matrix(left.new_zeros(csr.num_edges))
    dots = [
        torch.sparse.sampled_addmm(pattern, left[:, head].contiguous(), _head(right, head).T, beta=0.0).values()
        for head in heads
    ]
    return torch.stack(dots, 1)


def _bags(csr: Csr, columns: Tensor | None, value: Tensor) -> Tensor:
    """Return the weighted sums [T, H, D]. columns: coefficients by head [H, E], each head's side by side in memory."""
    heads = value.shape[1] if columns is None else len(columns)
    # Heads outermost in memory: each bag is written, and later read, as one run. The view keeps the order [T, H, D].
    sums = value.new_empty(heads, csr.num_targets, value.shape[2])
    for head in range(heads):
        sums[head] = _bag(csr, None if columns is None else columns[head], _head(value, head))
    return sums.transpose(0, 1)


def _bag(csr: Csr, weights: Tensor | None, rows: Tensor) -> Tensor:
    """Return each target's sum of weights [E] x its sources' rows [S, K]: [T, K]."""
    return functional.embedding_bag(
        csr.sources, rows, csr.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


def _columns(coefficient: Tensor | None) -> Tensor | None:
    """Return coefficients [E, H] by head [H, E]."""
    return None if coefficient is None else coefficient.T.contiguous()


def _head(value: Tensor, head: int) -> Tensor:
    """Return one head's rows [S, D]; a value with a single head serves every head."""
    return value[:, head if value.shape[1] > 1 else 0].contiguous()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, csr: Csr, by_source: bool, term: Tensor) -> Tensor:  # noqa: FBT001
        ctx.csr, ctx.by_source = csr, by_source
        return term.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None, Tensor]:
        # the edges of each gathered row: of each source, or of each target
        groups = ctx.csr.by_source if ctx.by_source else ctx.csr.edges
        return None, None, None, _bag(groups, None, grad.contiguous())


def _gather(rows: Tensor, csr: Csr, term: Tensor, *, by_source: bool) -> Tensor:
    # one row per edge, all trailing dimensions as columns [E, K]
    flat = _Gather.apply(rows, csr, by_source, term.flatten(1) if term.dim() > 1 else term[:, None])  # type: ignore[no-untyped-call]
    return cast("Tensor", flat).reshape(len(rows), *term.shape[1:])
