"""Softmax over in-edges and its weighted mean: programs over targets, then over edges, then the weighted sum.

An edge keeps one number per head, never a row.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.attention_inputs import EdgeInputs, Halves, SoftmaxSums
from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.cuda.launch import Division, Tile, device_of, merge
from gnnflow.kernels.cuda.sums import LOOPS, products, sums
from gnnflow.kernels.gradients import value_gradient

_TILE = 512  # numbers of edges per program


def softmax_sums(
    csr: Csr, logit: Tensor | Halves, value: Tensor, *, attributes: Tensor | None, factor: Tensor | None, drop: float
) -> SoftmaxSums:
    """Return the sums of a softmax over in-edges; see `kernels.softmax`.

    logit: float32. value: float32 or half precision, to which the mean is rounded. Raises IndexError if an operand has
    too few or too many rows.
    """
    first, second = logit[:2] if isinstance(logit, Halves) else (logit, None)
    inputs = EdgeInputs.draw(csr, logit, attributes=attributes, factor=factor, drop=drop)
    return SoftmaxSums(*_Attention.apply(inputs, first, second, value))  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: EdgeInputs, first: Tensor, second: Tensor | None, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        csr, value = inputs.csr, rows_of(inputs.csr.num_sources, value)
        maximum, denominator = (first.new_empty(csr.num_targets, first.shape[1]) for _ in range(2))
        # the share of each edge in the mean [E, H], and the same after dropout [E, H]
        share = first.new_empty(csr.num_edges, first.shape[1])
        used = share if inputs.kept is None else torch.empty_like(share)
        _softmax(inputs, first, second, (maximum, denominator, share, used))
        mean = sums(csr, used, value)
        if inputs.attributes is not None:
            mean = torch.cat([mean, sums(csr.edges, used, inputs.attributes[:, None])], 2)
        ctx.inputs, ctx.width = inputs, value.shape[2]
        ctx.save_for_backward(first, second, value, denominator, mean, share, used)
        ctx.mark_non_differentiable(maximum)
        ctx.set_materialize_grads(False)
        return maximum, denominator, mean.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, grad_denominator: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        first, second, value, denominator, mean, share, used = ctx.saved_tensors
        inputs: EdgeInputs = ctx.inputs
        csr, attributes = inputs.csr, inputs.attributes
        grad = torch.zeros_like(mean, dtype=value.dtype) if grad is None else grad
        # gradients of the means of values [T, H, D] and of attributes [T, H, A]
        by_value, by_attributes = grad[:, :, : ctx.width], grad[:, :, ctx.width :]
        halves: tuple[Tensor | None, Tensor | None] = (None, None)
        if any(ctx.needs_input_grad[1:3]):
            # the gradient of each edge's share after dropout [E, H]
            by_used = products(csr, by_value, value)
            if attributes is not None:
                by_used += products(csr.edges, by_attributes, attributes[:, None])
            # the part of the gradient that all edges of a target share, since their shares add up to one [T, H]
            common = -(grad.float() * mean).sum(2)
            common = common if grad_denominator is None else common.addcmul_(denominator, grad_denominator)
            halves = _softmax_gradient(inputs, first, second, (share, by_used, common))
        gradient = value_gradient(LOOPS, csr, used, value, by_value) if ctx.needs_input_grad[3] else None
        return None, *halves, gradient


def _softmax(
    inputs: EdgeInputs, first: Tensor, second: Tensor | None, out: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    """Fill maximum and denominator [T, H], share and used [E, H]."""
    from gnnflow.kernels.cuda.softmax_programs import softmax_edges, softmax_pieces, softmax_rows

    csr, heads, (maximum, denominator, share, used) = inputs.csr, first.shape[1], out
    *logits, _ = inputs.logits(first, second)
    if not csr.num_targets or not heads:
        return
    division = Division.of(csr)
    pieces = [division.pieces(each) for each in (maximum, denominator)]
    tile = Tile.added(1, heads)
    kinds = {"HEADS": heads, "HALVES": second is not None, "SCALED": inputs.factor is not None}
    with device_of(first):
        softmax_rows[division.programs(tile.rows), -(-heads // tile.width)](
            csr.offsets,
            csr.sources,
            *logits,
            inputs.factor,
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
            inputs.factor,
            inputs.kept,
            maximum,
            denominator,
            share,
            used,
            csr.num_edges,
            **kinds,
            DROPPED=inputs.kept is not None,
            TILE=_TILE,
            num_warps=4,
        )


def _softmax_gradient(
    inputs: EdgeInputs, first: Tensor, second: Tensor | None, known: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the logits, or of the halves of sources and targets.

    known: share [E, H], the gradient of used [E, H], and the part that all edges of a target have in common [T, H].
    """
    from gnnflow.kernels.cuda.softmax_programs import softmax_edges_gradient

    csr, heads, (share, by_used, common) = inputs.csr, first.shape[1], known
    _, *halves, _ = inputs.logits(first, second)
    by_logit = torch.empty_like(share)
    if by_logit.numel():
        with device_of(first):
            softmax_edges_gradient[(-(-share.numel() // _TILE),)](
                csr.targets,
                csr.sources,
                *halves,
                inputs.kept,
                share,
                by_used,
                common.contiguous(),
                by_logit,
                csr.num_edges,
                HEADS=heads,
                HALVES=second is not None,
                DROPPED=inputs.kept is not None,
                TILE=_TILE,
                num_warps=4,
            )
    if second is None:
        return by_logit, None
    # gradients of the edges' logits as rows of one head [E, 1, H], added up by source and by target
    rows = by_logit[:, None]
    return sums(csr.by_source, None, rows)[:, 0], sums(csr.edges, None, rows)[:, 0]
