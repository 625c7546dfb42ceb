"""Softmax over in-edges and the mean it weighs, in one pass; its gradient in one pass over the edges by source.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head, W = D (+ A).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.attention_inputs import EdgeInputs, Halves, SoftmaxSums
from gnnflow.kernels.core import call, index_args, row_args, source_args
from gnnflow.kernels.csr import Csr, rows_of
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.native.sums import products, sums

_CHUNKS_PER_THREAD = 16  # as native/csr.c has them
MOST_HEADS = 256
"""The most heads that the core has room for (native/softmax.h)."""


def softmax_sums(
    csr: Csr, logit: Tensor | Halves, value: Tensor, *, attributes: Tensor | None, factor: Tensor | None, drop: float
) -> SoftmaxSums:
    """Return the sums of a softmax over in-edges; see `kernels.softmax`.

    logit: float32, of at most MOST_HEADS heads. value: float32 or half precision, to which the mean is rounded.
    """
    first, second = logit[:2] if isinstance(logit, Halves) else (logit, None)
    inputs = EdgeInputs.draw(csr, logit, attributes=attributes, factor=factor, drop=drop)
    return SoftmaxSums(*_Attention.apply(inputs, first, second, value))  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: EdgeInputs, first: Tensor, second: Tensor | None, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        csr, heads, attributes = inputs.csr, first.shape[1], inputs.attributes
        value = rows_of(csr.num_sources, value)
        maximum, denominator = (value.new_empty(csr.num_targets, heads, dtype=torch.float32) for _ in range(2))
        mean = empty_rows(csr.num_targets, heads, value.shape[2])
        # the share of each edge in the mean [E, H]; only attributes need it
        share = None if attributes is None else mean.new_empty(csr.num_edges, heads)
        given = (*inputs.logits(first, second), inputs.factor, inputs.kept, *row_args(value), *value.shape[1:])
        call("gnnflow_attention", csr, *source_args(csr), *given, maximum, denominator, share, mean, 0)
        whole, of_attributes = mean, None
        if attributes is not None and share is not None:
            # the mean of the attributes [T, H, A], appended to the mean of the values [T, H, D + A]
            of_attributes = sums(csr.edges, share, attributes[:, None])
            whole = torch.cat([mean, of_attributes], 2)
        ctx.inputs = inputs
        ctx.save_for_backward(first, second, value, maximum, denominator, mean, of_attributes)
        ctx.mark_non_differentiable(maximum)
        ctx.set_materialize_grads(False)
        return maximum, denominator, whole.to(value.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, grad_denominator: Tensor | None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        first, second, value, maximum, denominator, mean, of_attributes = ctx.saved_tensors
        inputs: EdgeInputs = ctx.inputs
        csr, (_, heads, width) = inputs.csr, mean.shape
        grad = torch.zeros_like(mean, dtype=value.dtype) if grad is None else grad
        # gradients from attributes and denominators: of each edge's share [E, H], of each target's logits [T, H]
        by_share = None
        by_target = None if grad_denominator is None else denominator * grad_denominator
        if inputs.attributes is not None:
            by_attributes = grad[:, :, width:].float()
            by_share = products(csr.edges, by_attributes, inputs.attributes[:, None])
            own = -(by_attributes * of_attributes).sum(2)
            by_target = own if by_target is None else by_target + own
        # gradients of the logits [E, H], and scratch space per target [T, 4, H]
        by_logit, scratch = empty_rows(csr.num_edges, heads), mean.new_empty(csr.num_targets, 4, heads)
        by_halves = (None, None) if second is None else (first.new_empty(first.shape), second.new_empty(second.shape))
        by_value = empty_rows(csr.num_sources, heads, width)
        reverse = _reverse(csr)
        known = (*inputs.logits(first, second), inputs.factor, inputs.kept, maximum, denominator, mean)
        rows, kind = row_args(value)
        given = (rows, grad[:, :, :width].contiguous(), kind, *value.shape[1:], by_share, by_target)
        made = (scratch, by_logit, *by_halves, by_value)
        call("gnnflow_attention_gradient", csr, *reverse, *known, *given, *made, 0)
        # a value that serves every head gets the sum of their gradients
        by_value = by_value if by_value.shape == value.shape else by_value.sum(1, keepdim=True)
        by_first, by_second = (by_logit, None) if second is None else by_halves
        return None, by_first, by_second, by_value.to(value.dtype)


def softmax_of_pieces(csr: Csr, logit: Halves, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the largest logit and the sum of weights of each piece of the targets' edges: [pieces, H] each.

    logit: float32 halves. factor [E]: what edges count for.
    """
    assert csr.pieces is not None
    bounds, begins = csr.pieces
    # the targets' halves, piece by piece [pieces, H]
    of_target = logit.target.repeat_interleave(bounds.diff(), dim=0, output_size=len(begins) - 1)
    alone, of_source = Csr(begins, csr.sources, csr.num_sources), rows_of(csr.num_sources, logit.source)
    maximum, denominator = torch.empty_like(of_target), torch.empty_like(of_target)
    heads = of_target.shape[1]
    given = (None, of_source, of_target, logit.slope, heads, _factor_of(csr, factor), None, of_source, 0, heads, 0)
    call("gnnflow_attention", alone, *source_args(alone), *given, maximum, denominator, None, maximum, 0)
    return maximum, denominator


def joined_means(
    csr: Csr, logit: Halves, value: Tensor, *, factor: Tensor | None, sums: tuple[Tensor, Tensor], shares: Tensor
) -> Tensor:
    """Return the means [T, H, D] of values weighed by a softmax over edges that come in pieces.

    sums: see `softmax_of_pieces`. shares [pieces, 2, H]: of all pieces before one, and of the piece.
    """
    assert csr.pieces is not None
    value, heads = rows_of(csr.num_sources, value), logit.source.shape[1]
    halves = rows_of(csr.num_sources, logit.source), rows_of(csr.num_targets, logit.target)
    before, own = (shares[:, side].contiguous() for side in range(2))
    mean = empty_rows(csr.num_targets, heads, value.shape[2])
    room = mean.new_empty(_CHUNKS_PER_THREAD * torch.get_num_threads(), heads, value.shape[2])
    given = (*halves, logit.slope, heads, _factor_of(csr, factor), *row_args(value), *value.shape[1:], *sums)
    call("gnnflow_joined_attention", csr, *csr.pieces, *source_args(csr), *given, before, own, room, mean)
    return mean


def _factor_of(csr: Csr, factor: Tensor | None) -> Tensor | None:
    return None if factor is None else rows_of(csr.num_edges, factor).float()


class Attended(NamedTuple):
    """Inputs of attention over a piece of edges, in float32: value is [S, H, D], factor [E]; drop is a rate."""

    csr: Csr
    halves: Halves
    value: Tensor
    factor: Tensor | None
    drop: float


def add_softmax_sums(maximum: Tensor, denominator: Tensor, mean: Tensor, of: Attended) -> None:
    """Add more edges to a state [T, H], [T, H] and [T, H, D] in place, without a gradient."""
    inputs = EdgeInputs.draw(of.csr, of.halves, factor=of.factor, drop=of.drop)
    value = rows_of(of.csr.num_sources, of.value)
    given = (*inputs.logits(of.halves.source, of.halves.target), inputs.factor, inputs.kept, *row_args(value))
    assert all(each.is_contiguous() for each in (maximum, denominator, mean)), "states must be contiguous"
    given = (*source_args(of.csr), *given, *value.shape[1:])
    call("gnnflow_attention", of.csr, *given, maximum, denominator, None, mean, 1)


def add_softmax_gradient(
    made: tuple[Tensor, Tensor, Tensor], of: Attended, *, shift: Tensor, by_each: Tensor, by_mean: Tensor
) -> None:
    """Add to the gradients of both halves and of the value: [S, H], [T, H] and [S, H, D].

    shift [T, H]: the logarithm of the sum of exponentials. by_mean [T, H, D]: the gradient of the whole mean. by_each
    [T, H]: a number added to the product of by_mean with each edge's value, before the edge's share multiplies it.
    """
    csr, (_, heads, width) = of.csr, of.value.shape
    inputs = EdgeInputs.draw(csr, of.halves, factor=of.factor, drop=of.drop)
    # gradients of the logits [E, H], and scratch space per target [T, 4, H]
    by_logit, scratch = empty_rows(csr.num_edges, heads), shift.new_empty(csr.num_targets, 4, heads)
    known = (*inputs.logits(of.halves.source, of.halves.target), inputs.factor, inputs.kept)
    whole = (rows_of(csr.num_targets, shift), None, None)
    rows, kind = row_args(rows_of(csr.num_sources, of.value))
    given = (rows, rows_of(csr.num_targets, by_mean), kind, heads, width, None, rows_of(csr.num_targets, by_each))
    assert all(each.is_contiguous() for each in made), "gradients must be contiguous"
    call("gnnflow_attention_gradient", csr, *_reverse(csr), *known, *whole, *given, scratch, by_logit, *made, 1)


def _reverse(csr: Csr) -> tuple[int, Tensor, Tensor, Tensor | None, bool]:
    """Return the arguments for the edges in the order of their sources."""
    if csr.is_identity:
        return csr.num_sources, csr.offsets, *index_args(csr.numbers, csr.numbers)
    order = csr.by_source.numbers
    return csr.num_sources, csr.transposed.offsets, *index_args(csr.transposed.numbers, order)
