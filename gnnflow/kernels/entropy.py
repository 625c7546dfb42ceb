"""Cross entropy of logits and classes by torch's own kernels, in memory that is kept: same bits, fewer pages.

torch takes three tensors as large as the logits anew in each step; here the gradient has the memory of another, and all
of it serves again.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels.memory import empty_rows, is_kept

_MEAN, _IGNORED = 1, -100  # torch's numbers for its defaults


def cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the mean over logits [B, C] of their cross entropy with classes [B]; weight [C] is that of each class."""
    if logits.dtype != torch.float32 or logits.device.type != "cpu" or not is_kept(logits.numel()):
        return functional.cross_entropy(logits, labels, weight=weight)
    return cast("Tensor", _CrossEntropy.apply(logits, labels, weight))  # type: ignore[no-untyped-call]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
        log_chance = empty_rows(*logits.shape)
        torch.ops.aten._log_softmax.out(logits, 1, False, out=log_chance)  # noqa: FBT003, SLF001 - positional in aten
        loss, total = torch.ops.aten.nll_loss_forward(log_chance, labels, weight, _MEAN, _IGNORED)
        ctx.save_for_backward(log_chance, labels, weight, total)
        return cast("Tensor", loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        log_chance, labels, weight, total = ctx.saved_tensors
        made = empty_rows(*log_chance.shape)
        given = (grad, log_chance, labels, weight, _MEAN, _IGNORED, total)
        torch.ops.aten.nll_loss_backward.grad_input(*given, grad_input=made)
        # a row at a time, whose sum is taken before the row is written to
        torch.ops.aten._log_softmax_backward_data.out(made, log_chance, 1, made.dtype, out=made)  # noqa: SLF001
        return made, None, None
