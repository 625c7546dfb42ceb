"""Softmax over in-edges and the mean it weighs: over targets, then over edges, and the weighted sum.

What is kept of an edge is a number per head, never a row.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.cuda.hubs import Division
from gnnflow.kernels.cuda.library import on_card_of
from gnnflow.kernels.cuda.sums import LOOPS, Tile, merge, products, sums
from gnnflow.kernels.fixed import Fixed
from gnnflow.kernels.gradients import value_gradient
from gnnflow.kernels.halves import Halves

_TILE = 512  # numbers of edges that a program goes over


def softmax_sums(
    csr: Csr, logit: Tensor | Halves, value: Tensor, *, attributes: Tensor | None, factor: Tensor | None, drop: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the maximum [T, H], the denominator [T, H] and the mean [T, H, W]; see `kernels.softmax`.

    logit: float32. value: float32 or in half precision, which the mean is then rounded to. Raises IndexError where an
    operand has not as many rows as the adjacency.
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
        csr, value = fixed.csr, rows_of(fixed.csr.num_sources, value)
        maximum, denominator = (first.new_empty(csr.num_targets, first.shape[1]) for _ in range(2))
        # what each edge has in the mean [E, H], and what of it dropout lets into that
        share = first.new_empty(csr.num_edges, first.shape[1])
        used = share if fixed.kept is None else torch.empty_like(share)
        _softmax(fixed, first, second, (maximum, denominator, share, used))
        mean = sums(csr, used, value)
        if fixed.attributes is not None:
            mean = torch.cat([mean, sums(csr.edges, used, fixed.attributes[:, None])], 2)
        ctx.fixed, ctx.width = fixed, value.shape[2]
        ctx.save_for_backward(first, second, value, denominator, mean, share, used)
        ctx.mark_non_differentiable(maximum)
        ctx.set_materialize_grads(False)
        return maximum, denominator, mean.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, grad_denominator: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        first, second, value, denominator, mean, share, used = ctx.saved_tensors
        fixed: Fixed = ctx.fixed
        csr, attributes = fixed.csr, fixed.attributes
        grad = torch.zeros_like(mean, dtype=value.dtype) if grad is None else grad
        # gradients of the means of values [T, H, D] and of attributes [T, H, A]
        by_value, by_attributes = grad[:, :, : ctx.width], grad[:, :, ctx.width :]
        halves: tuple[Tensor | None, Tensor | None] = (None, None)
        if any(ctx.needs_input_grad[1:3]):
            by_used = products(csr, by_value, value)
            if attributes is not None:
                by_used += products(csr.edges, by_attributes, attributes[:, None])
            # a share is one of a whole: what the shares of a target add up to has no part in their gradients [T, H]
            about = -(grad.float() * mean).sum(2)
            about = about if grad_denominator is None else about.addcmul_(denominator, grad_denominator)
            halves = _softmax_gradient(fixed, first, second, (share, by_used, about))
        gradient = value_gradient(LOOPS, csr, used, value, by_value) if ctx.needs_input_grad[3] else None
        return None, *halves, gradient


def _softmax(fixed: Fixed, first: Tensor, second: Tensor | None, out: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Fill maximum and denominator [T, H], share and used [E, H]."""
    from gnnflow.kernels.cuda.softmax_programs import softmax_edges, softmax_pieces, softmax_rows

    csr, heads, (maximum, denominator, share, used) = fixed.csr, first.shape[1], out
    *logits, _ = fixed.logits(first, second)
    if not csr.num_targets or not heads:
        return
    division = Division.of(csr)
    pieces = [division.pieces(each) for each in (maximum, denominator)]
    tile = Tile.added(1, heads)
    kinds = {"HEADS": heads, "HALVES": second is not None, "SCALED": fixed.factor is not None}
    with on_card_of(first):
        softmax_rows[division.programs(tile.rows), -(-heads // tile.width)](
            csr.offsets,
            csr.sources,
            *logits,
            fixed.factor,
            maximum,
            denominator,
            *pieces,
            *division.tables,
            csr.num_targets,
            **kinds,
            **division.options,
            TILE_TARGETS=tile.rows,
            TILE_HEADS=tile.width,
            num_warps=1,
        )
        if division.hubs is not None:
            merge(softmax_pieces, division.hubs, pieces, [maximum, denominator])
        if not csr.num_edges:
            return
        softmax_edges[(-(-share.numel() // _TILE),)](
            csr.targets,
            csr.sources,
            *logits,
            fixed.factor,
            fixed.kept,
            maximum,
            denominator,
            share,
            used,
            csr.num_edges,
            **kinds,
            DROPPED=fixed.kept is not None,
            TILE=_TILE,
            num_warps=4,
        )


def _softmax_gradient(
    fixed: Fixed, first: Tensor, second: Tensor | None, known: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the logits, or of the halves of sources and targets.

    known: share [E, H], the gradient of used [E, H], and what is the same for all edges of a target [T, H].
    """
    from gnnflow.kernels.cuda.softmax_programs import softmax_edges_gradient

    csr, heads, (share, by_used, about) = fixed.csr, first.shape[1], known
    _, *halves, _ = fixed.logits(first, second)
    by_logit = torch.empty_like(share)
    if by_logit.numel():
        with on_card_of(first):
            softmax_edges_gradient[(-(-share.numel() // _TILE),)](
                csr.targets,
                csr.sources,
                *halves,
                fixed.kept,
                share,
                by_used,
                about.contiguous(),
                by_logit,
                csr.num_edges,
                HEADS=heads,
                HALVES=second is not None,
                DROPPED=fixed.kept is not None,
                TILE=_TILE,
                num_warps=4,
            )
    if second is None:
        return by_logit, None
    rows = by_logit[:, None]
    return sums(csr.by_source, None, rows)[:, 0], sums(csr.edges, None, rows)[:, 0]
