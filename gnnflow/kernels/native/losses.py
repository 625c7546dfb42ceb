"""Binary cross entropy of logits and its gradient, in one pass over them.

torch takes ten, which on 121 labels is half of an epoch of a small model.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels.core import kernels
from gnnflow.kernels.memory import empty_rows

_RUN = 4096  # numbers whose losses are added up at a time, as native/losses.c does


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over logits [B, C] of their cross entropy with labels [B, C] between 0 and 1."""
    native = kernels()
    plain = {logits.dtype, labels.dtype} != {torch.float32} or logits.device.type != "cpu" or labels.requires_grad
    if native is None or plain or logits.shape != labels.shape or not logits.numel():
        return functional.binary_cross_entropy_with_logits(logits, labels)
    return cast("Tensor", _CrossEntropy.apply(logits, labels))  # type: ignore[no-untyped-call]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = logits.contiguous(), labels.contiguous()
        gradient = empty_rows(*logits.shape)
        sums = torch.empty(-(-logits.numel() // _RUN), dtype=torch.float64)
        native = kernels()
        assert native is not None
        addresses = [tensor.data_ptr() for tensor in (logits, labels, gradient, sums)]
        native.gnnflow_cross_entropy(logits.numel(), *addresses, torch.get_num_threads())
        ctx.save_for_backward(gradient)
        return (sums.sum() / logits.numel()).to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient if grad.item() == 1.0 else gradient * grad, None
