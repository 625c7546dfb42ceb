"""Scatter, edge function and gather in one pass, without a row per edge (NGra, Ma et al. 2018, section 4).

The weighted sum is a bag of source rows per target: `embedding_bag` streams each source row once through the cache into
its target's sum. Rows are split over threads by target, so no two threads write the same sum and its bits depend on
nothing but the inputs. The backward pass is the same bag over the reversed edges for the values, and a sampled
dense-dense product (one dot per edge) for the coefficients. Measured in docs/decisions/0005-kernels.md.

Shapes: T targets, S sources, E edges, H heads, D width of a head, K columns.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.kernels import gradients, reference
from gnnflow.kernels.csr import Csr


def weighted_sum(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the sum over each target's in-edges of coefficient [E, H] x value [S, H or 1, D]: [T, H, D].

    A missing coefficient is one; a value with a single head serves every head. Targets without in-edges give zero.
    """
    return gradients.weighted_sum(_LOOPS, csr, coefficient, value)


def segment_max(csr: Csr, coefficient: Tensor | None, value: Tensor) -> Tensor:
    """Return the largest coefficient x value per target and channel: [T, H, D]; -inf where there is no in-edge.

    Of equal maxima one edge receives the gradient, always the same. Coefficients that need a gradient use the plain
    definition; no built-in layer has them.
    """
    if coefficient is not None and coefficient.requires_grad:
        return reference.segment_max(csr, coefficient, value)
    ones = value.new_ones(csr.num_edges)
    heads = value.shape[1] if coefficient is None else coefficient.shape[1]
    # coefficients of each head [E], then each head's maxima [T, D]
    columns = [ones if coefficient is None else coefficient[:, head].contiguous() for head in range(heads)]
    largest = [torch.sparse.mm(csr.matrix(column), _head(value, head), "amax") for head, column in enumerate(columns)]
    return torch.stack(largest, 1).masked_fill((csr.degree == 0)[:, None, None], -torch.inf)


def _sums(csr: Csr, coefficient: Tensor | None, value: Tensor, *, edges: Tensor | None = None) -> Tensor:
    # coefficients in the order of the edges [E, H], then contiguous per head [H, E]
    ordered = coefficient if coefficient is None or edges is None else coefficient.index_select(0, edges)
    columns = None if ordered is None else ordered.T.contiguous()
    heads = value.shape[1] if columns is None else len(columns)
    # Heads outermost in memory: each bag is written, and later read, as one run. The view keeps the order [T, H, D].
    sums = value.new_empty(heads, csr.num_targets, value.shape[2])
    for head in range(heads):
        sums[head] = _bag(csr, None if columns is None else columns[head], _head(value, head))
    return sums.transpose(0, 1)


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


def _bag(csr: Csr, weights: Tensor | None, rows: Tensor) -> Tensor:
    """Return each target's sum of weights [E] x its sources' rows [S, K]: [T, K]."""
    return functional.embedding_bag(
        csr.sources, rows, csr.offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


def _head(value: Tensor, head: int) -> Tensor:
    """Return one head's rows [S, D]; a value with a single head serves every head."""
    return value[:, head if value.shape[1] > 1 else 0].contiguous()


_LOOPS = gradients.Loops(_sums, _sampled_products)
gather_sources, gather_targets = _LOOPS.gather_sources, _LOOPS.gather_targets
