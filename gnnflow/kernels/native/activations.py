"""ELU and its gradient, each in one pass; the gradient is computed from the result, as that of relu is.

torch keeps the input for it, which nothing else needs: a copy of all rows of a layer.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels.core import kernels
from gnnflow.kernels.memory import empty_rows


def elu(rows: Tensor) -> Tensor:
    """Return x where x > 0, else exp(x) - 1."""
    return cast("Tensor", _Elu.apply(rows))  # type: ignore[no-untyped-call]


class _Elu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        result = _called("gnnflow_elu", rows) if _native(rows) else functional.elu(rows)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (result,) = ctx.saved_tensors
        if _native(result):
            return _called("gnnflow_elu_gradient", result, grad)
        # alpha, scale, input_scale, and that the last argument is the result
        gradient: Tensor = torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, True, result)  # noqa: FBT003 - positional in aten
        return gradient


def _native(rows: Tensor) -> bool:
    return rows.dtype == torch.float32 and rows.device.type == "cpu" and kernels() is not None


def _called(name: str, *operands: Tensor) -> Tensor:
    given = [rows.contiguous() for rows in operands]
    out = empty_rows(*given[0].shape)
    addresses = [rows.data_ptr() for rows in (*given, out)]
    getattr(kernels(), name)(out.numel(), *addresses, torch.get_num_threads())
    return out
