"""What stands between layers, under the names that a config gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def elu(rows: Tensor) -> Tensor:
    """Return x where x > 0, else exp(x) - 1; its gradient is computed from the result, as that of relu is.

    torch keeps the input for it, which nothing else needs: a copy of all rows of a layer.
    """
    return cast("Tensor", _Elu.apply(rows))  # type: ignore[no-untyped-call]


class _Elu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        result = functional.elu(rows)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (result,) = ctx.saved_tensors
        # alpha, scale, input_scale, and that the last argument is the result
        gradient: Tensor = torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, True, result)  # noqa: FBT003 - positional in aten
        return gradient


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "elu": elu}
