"""Sums of linear maps with bias, relu and unit length, and their gradients, a few hundred rows at a time.

torch goes over all rows once per operation: each product, the bias, relu, their gradients. The core does all of that
for the rows that are in the cache, with torch's own matrix product where its own has no form for the widths. The
gradients of weights are added up over runs of rows in their order, so their bits do not depend on the number of threads
where there are more than one run.

Shapes: N rows, I columns of an input, D columns of the result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels.core import kernels
from gnnflow.kernels.memory import empty_rows

_RUN = 1024  # rows that one thread takes at a time, and whose gradients of weights it adds up
_WIDEST = 1024  # columns of a result whose pieces are still worth a call of the matrix product each


class Map(NamedTuple):
    """Rows [N, I] and the weight [D, I] that maps them."""

    rows: Tensor
    weight: Tensor


def affine(maps: Sequence[Map], bias: Tensor | None, *, relu: bool = False, unit: bool = False) -> Tensor:
    """Return the sum of the mapped rows plus the bias [N, D], or relu of it. There are one or two maps.

    unit: each row is divided by its length, or by 1e-12 where it is shorter.
    """
    if not _accepts(maps, bias):
        return _plain(maps, bias, relu=relu, unit=unit)
    first, *others = maps
    second = others[0] if others else (None, None)
    return cast("Tensor", _Affine.apply(int(relu), unit, *first, *second, bias))  # type: ignore[no-untyped-call]


def _plain(maps: Sequence[Map], bias: Tensor | None, *, relu: bool, unit: bool) -> Tensor:
    first, *others = maps
    rows = functional.linear(first.rows, first.weight, bias)
    for each in others:
        rows = rows + functional.linear(each.rows, each.weight)
    rows = functional.relu(rows) if relu else rows
    return functional.normalize(rows, dim=1) if unit else rows


def _accepts(maps: Sequence[Map], bias: Tensor | None) -> bool:
    given = [tensor for each in maps for tensor in each] + ([] if bias is None else [bias])
    plain = all(each.dtype == torch.float32 and each.device.type == "cpu" for each in given)
    return plain and _fit(maps, bias) and not torch.is_autocast_enabled("cpu") and lends_products()


def _fit(maps: Sequence[Map], bias: Tensor | None) -> bool:
    """Return whether the core, which checks nothing, may be given these; of what does not fit torch says what it is."""
    rows, width = len(maps[0].rows), len(maps[0].weight)
    columns = [each.weight.shape[-1] for each in maps]
    fit = all(
        each.rows.shape == (rows, number) and each.weight.shape == (width, number)
        for each, number in zip(maps, columns, strict=True)
    )
    return fit and all(columns) and 0 < width <= _WIDEST and (bias is None or bias.shape == (width,))


@cache
def lends_products() -> bool:
    """Lend torch's matrix product to the core, and return whether both are there."""
    native = kernels()
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if native is None or not library.exists():
        return False
    try:
        product = ctypes.CDLL(str(library)).sgemm_
    except AttributeError:  # a torch that was built on another BLAS, or hides it
        return False
    native.gnnflow_use_products(ctypes.cast(product, ctypes.c_void_p))
    return True


def _call(name: str, rows: int, *operands: Tensor | int | None) -> None:
    given = [each.data_ptr() if isinstance(each, Tensor) else each for each in operands]
    getattr(kernels(), name)(rows, *given, torch.get_num_threads())


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, relu: int, unit: bool, *given: Tensor | None) -> Tensor:  # noqa: FBT001 - autograd's form
        # rows and weight of both maps, the second's maybe missing, and the bias
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
        # per run of rows the gradients of both weights and of the bias, one after the other
        sums = x.new_empty(-(-len(x) // _RUN), width * (x_width + y_width + 1))
        maps = (x, x_width, x_weight, by_x, y, y_width, y_weight, by_y)
        given = (inverse, out, grad.contiguous(), sums, _RUN)
        _call("gnnflow_affine_gradient", len(x), *maps, width, ctx.relu, *given)
        by_weights, by_bias = sums.sum(0).tensor_split([width * (x_width + y_width)])
        by_x_weight, by_y_weight = (each.view(width, -1) for each in by_weights.tensor_split([width * x_width]))
        found = (by_x, by_x_weight, by_y, by_y_weight if y_width else None, by_bias)
        needed = zip(found, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(each if wanted else None for each, wanted in needed)
