"""A weighted mean of a node's rows, the weights a softmax over them of q . tanh(W z + b): semantic attention, fused.

Rows of all relations stay where they are; each is read from memory once forward and once backward, and its gradient is
written once (`native/mixtures.c`). torch's operations, one after the other, go over all rows for each: both products,
the sum by shares, its gradient for shares and for rows, and the sum of the two gradients of a row.

Shapes: N nodes, R relations, W columns of their rows, Q columns of what is scored.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels.core import kernels
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.native.linear import lends_products

_RUN = 1024  # rows that one thread takes at a time, and whose gradients of weights it adds up
_WIDEST = 1024  # columns of what is scored that a piece of rows has room for


def scored_mean(rows: Sequence[Tensor], weight: Tensor, bias: Tensor, query: Tensor) -> Tensor:
    """Return the sum over R of softmax_R(query . tanh(weight z + bias)) x z: [N, W], from at least one z [N, W].

    weight: [Q, W]; bias and query: [Q].
    """
    if _accepts(rows, weight, bias, query):
        return cast("Tensor", _ScoredMean.apply(weight, bias, query, *rows))  # type: ignore[no-untyped-call]
    # a score of each relation's row [N, R]; no relation's rows are copied beside another's
    scores = [torch.tanh(functional.linear(each, weight, bias)) @ query for each in rows]
    shares = torch.softmax(torch.stack(scores, 1), 1)[:, :, None].unbind(1)
    return reduce(torch.add, (share * each for share, each in zip(shares, rows, strict=True)))


def _accepts(rows: Sequence[Tensor], weight: Tensor, bias: Tensor, query: Tensor) -> bool:
    given = (weight, bias, query, *rows)
    plain = all(each.dtype == torch.float32 and each.device.type == "cpu" for each in given)
    # the core checks nothing; of what does not fit torch says what it is
    fit = all(each.shape == (len(rows[0]), weight.shape[1]) for each in rows)
    fit = fit and bias.shape == query.shape == weight.shape[:1] and 0 < len(weight) <= _WIDEST and weight.shape[1] > 0
    return plain and fit and not torch.is_autocast_enabled("cpu") and lends_products()


def _addresses(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(None if each is None else each.data_ptr() for each in tensors))


class _ScoredMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        weight, bias, query, *rows = (each.contiguous() for each in given)
        number, (scored, width) = len(rows[0]), weight.shape
        # what is scored [R, N, Q], and shares [N, R]
        tanhs, share = empty_rows(len(rows), number, scored), rows[0].new_empty(number, len(rows))
        out = empty_rows(number, width)
        addresses = [each.data_ptr() for each in (weight, bias, query, tanhs, share, out)]
        sizes = len(rows), width, *addresses[:3], scored, *addresses[3:], _RUN, torch.get_num_threads()
        cast("Any", kernels()).gnnflow_mixture(number, _addresses(rows), *sizes)
        ctx.save_for_backward(weight, query, tanhs, share, *rows)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, query, tanhs, share, *rows = ctx.saved_tensors
        number, (scored, width) = len(rows[0]), weight.shape
        grad, slope = grad.contiguous(), torch.empty_like(share)
        by_rows = [empty_rows(number, width) if needed else None for needed in ctx.needs_input_grad[3:]]
        # per run of rows the gradients of weight, bias and query, one after the other
        sums = grad.new_empty(-(-number // _RUN), scored * (width + 2))
        addresses = [each.data_ptr() for each in (weight, query, tanhs, share, grad, slope, sums)]
        sizes = len(rows), width, *addresses[:2], scored, *addresses[2:], _RUN, torch.get_num_threads()
        cast("Any", kernels()).gnnflow_mixture_gradient(number, _addresses(rows), _addresses(by_rows), *sizes)
        by_weight, by_bias, by_query = sums.sum(0).tensor_split([scored * width, scored * (width + 1)])
        return by_weight.view_as(weight), by_bias, by_query, *by_rows
