"""Dense operations of layers on the core: sums of linear maps, ELU, and semantic attention over a node's rows.

torch goes over all rows once per operation: each product, the bias, relu, their gradients. The core does all of that
for the rows that are in the cache, with torch's own matrix product where its own has no form for the widths. The
gradients of weights are added up over runs of rows in their order, so with more than one run their bits do not depend
on the number of threads.

Semantic attention is a weighted mean, the weights a softmax over relations of q . tanh(W z + b). Each row is read from
memory once forward and once backward, and its gradient is written once (`native/mixtures.c`).

Shapes: N rows, I columns of an input, D columns of the result, R relations, Q columns of the scored rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels.core import kernels
from gnnflow.kernels.memory import empty_rows

_RUN = 1024  # rows that one thread takes at a time, and whose gradients of weights it adds up
_WIDEST = 1024  # most columns of a result: wider ones gain nothing from a matrix product per run


class Map(NamedTuple):
    """Rows [N, I] and the weight [D, I] that maps them."""

    rows: Tensor
    weight: Tensor


def affine(maps: Sequence[Map], bias: Tensor | None, *, relu: bool = False, unit: bool = False) -> Tensor:
    """Return the sum of the mapped rows plus the bias [N, D], or relu of it. There are one or two maps.

    unit: each row is divided by its length, or by 1e-12 where it is shorter.
    """
    first, *others = maps
    if _accepts_maps(maps, bias):
        second = others[0] if others else (None, None)
        return cast("Tensor", _Affine.apply(int(relu), unit, *first, *second, bias))  # type: ignore[no-untyped-call]
    rows = functional.linear(first.rows, first.weight, bias)
    for each in others:
        rows = rows + functional.linear(each.rows, each.weight)
    rows = functional.relu(rows) if relu else rows
    return functional.normalize(rows, dim=1) if unit else rows


def _accepts_maps(maps: Sequence[Map], bias: Tensor | None) -> bool:
    """Return whether the core takes these operands; it checks no shapes, and torch raises for those that do not fit."""
    rows, width = len(maps[0].rows), len(maps[0].weight)
    columns = [each.weight.shape[-1] for each in maps]
    fit = all(
        each.rows.shape == (rows, number) and each.weight.shape == (width, number)
        for each, number in zip(maps, columns, strict=True)
    )
    fit = fit and all(columns) and 0 < width <= _WIDEST and (bias is None or bias.shape == (width,))
    return fit and _are_plain(tensor for operands in (*maps, (bias,)) for tensor in operands) and lends_products()


def _are_plain(tensors: Iterable[Tensor | None]) -> bool:
    plain = all(each is None or (each.dtype == torch.float32 and each.device.type == "cpu") for each in tensors)
    return plain and not torch.is_autocast_enabled("cpu")


@cache
def lends_products() -> bool:
    """Lend torch's matrix product to the core; return False if either is missing."""
    native = kernels()
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if native is None or not library.exists():
        return False
    try:
        product = ctypes.CDLL(str(library)).sgemm_
    except AttributeError:  # this torch uses another BLAS, or hides it
        return False
    native.gnnflow_use_products(ctypes.cast(product, ctypes.c_void_p))
    return True


def _call(name: str, rows: int, *operands: Tensor | int | None) -> None:
    given = [each.data_ptr() if isinstance(each, Tensor) else each for each in operands]
    getattr(kernels(), name)(rows, *given, torch.get_num_threads())


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, relu: int, unit: bool, *given: Tensor | None) -> Tensor:  # noqa: FBT001 - autograd's form
        # rows and weight of both maps, and the bias; the second map and the bias may be missing
        x, x_weight, y, y_weight, bias = (None if each is None else each.contiguous() for each in given)
        assert x is not None
        assert x_weight is not None
        out = empty_rows(len(x), len(x_weight))
        inverse = x.new_empty(len(x)) if unit else None
        maps = (x, x.shape[1], x_weight, y, 0 if y is None else y.shape[1], y_weight)
        _call("gnnflow_affine", len(x), *maps, bias, len(x_weight), relu, inverse, out, _RUN)
        ctx.relu = relu
        ctx.save_for_backward(x, x_weight, y, y_weight, inverse, out if relu or unit else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, x_weight, y, y_weight, inverse, out = ctx.saved_tensors
        width, x_width, y_width = len(x_weight), x.shape[1], 0 if y is None else y.shape[1]
        _, _, needs_x, _, needs_y, *_ = ctx.needs_input_grad
        by_x = empty_rows(*x.shape) if needs_x else None
        by_y = empty_rows(*y.shape) if needs_y else None
        # per run of rows the gradients of both weights and of the bias, one after the other [runs, D x (I + I + 1)]
        sums = x.new_empty(-(-len(x) // _RUN), width * (x_width + y_width + 1))
        maps = (x, x_width, x_weight, by_x, y, y_width, y_weight, by_y)
        given = (inverse, out, grad.contiguous(), sums, _RUN)
        _call("gnnflow_affine_gradient", len(x), *maps, width, ctx.relu, *given)
        by_weights, by_bias = sums.sum(0).tensor_split([width * (x_width + y_width)])
        by_x_weight, by_y_weight = (each.view(width, -1) for each in by_weights.tensor_split([width * x_width]))
        found = (by_x, by_x_weight, by_y, by_y_weight if y_width else None, by_bias)
        needed = zip(found, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(each if wanted else None for each, wanted in needed)


def elu(rows: Tensor) -> Tensor:
    """Return x where x > 0, else exp(x) - 1.

    The gradient is computed from the result: torch keeps the input for it, a copy of all rows of a layer.
    """
    return cast("Tensor", _Elu.apply(rows))  # type: ignore[no-untyped-call]


class _Elu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        result = _call_elu("gnnflow_elu", rows) if _runs_elu(rows) else functional.elu(rows)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (result,) = ctx.saved_tensors
        if _runs_elu(result):
            return _call_elu("gnnflow_elu_gradient", result, grad)
        # alpha, scale, input_scale, and True since the last argument is the result
        gradient: Tensor = torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, True, result)  # noqa: FBT003 - positional in aten
        return gradient


def _runs_elu(rows: Tensor) -> bool:
    return rows.dtype == torch.float32 and rows.device.type == "cpu" and kernels() is not None


def _call_elu(name: str, *operands: Tensor) -> Tensor:
    given = [rows.contiguous() for rows in operands]
    out = empty_rows(*given[0].shape)
    addresses = [rows.data_ptr() for rows in (*given, out)]
    getattr(kernels(), name)(out.numel(), *addresses, torch.get_num_threads())
    return out


def scored_mean(rows: Sequence[Tensor], weight: Tensor, bias: Tensor, query: Tensor) -> Tensor:
    """Return the sum over R of softmax_R(query . tanh(weight z + bias)) x z: [N, D], from at least one z [N, D].

    weight: [Q, D]; bias and query: [Q].
    """
    if _accepts_rows(rows, weight, bias, query):
        return cast("Tensor", _ScoredMean.apply(weight, bias, query, *rows))  # type: ignore[no-untyped-call]
    # a score of each relation's row [N, R], then its share [N, 1] per relation; no rows are copied
    scores = [torch.tanh(functional.linear(each, weight, bias)) @ query for each in rows]
    shares = torch.softmax(torch.stack(scores, 1), 1)[:, :, None].unbind(1)
    return reduce(torch.add, (share * each for share, each in zip(shares, rows, strict=True)))


def _accepts_rows(rows: Sequence[Tensor], weight: Tensor, bias: Tensor, query: Tensor) -> bool:
    fit = all(each.shape == (len(rows[0]), weight.shape[1]) for each in rows)
    fit = fit and bias.shape == query.shape == weight.shape[:1] and 0 < len(weight) <= _WIDEST and weight.shape[1] > 0
    return fit and _are_plain((weight, bias, query, *rows)) and lends_products()


def _addresses(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(None if each is None else each.data_ptr() for each in tensors))


class _ScoredMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        weight, bias, query, *rows = (each.contiguous() for each in given)
        number, (scored, width) = len(rows[0]), weight.shape
        # tanh(W z + b) of each relation [R, N, Q], and the shares [N, R]
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
        # per run of rows the gradients of weight, bias and query, one after the other [runs, Q x (D + 2)]
        sums = grad.new_empty(-(-number // _RUN), scored * (width + 2))
        addresses = [each.data_ptr() for each in (weight, query, tanhs, share, grad, slope, sums)]
        sizes = len(rows), width, *addresses[:2], scored, *addresses[2:], _RUN, torch.get_num_threads()
        cast("Any", kernels()).gnnflow_mixture_gradient(number, _addresses(rows), _addresses(by_rows), *sizes)
        by_weight, by_bias, by_query = sums.sum(0).tensor_split([scored * width, scored * (width + 1)])
        return by_weight.view_as(weight), by_bias, by_query, *by_rows
