"""Cross entropies of logits with fewer passes, or less new memory, than torch's.

Binary: one pass for loss and gradient. torch takes ten, which on 121 labels is half of an epoch of a small model.
Of classes: torch's own kernels, same bits, in kept memory. torch allocates three tensors as large as the logits in each
step; here the gradient reuses one.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels.core import kernels
from gnnflow.kernels.memory import empty_rows, is_kept

_RUN = 4096  # numbers whose losses are added up at a time, as in native/losses.c
_MEAN, _IGNORED = 1, -100  # torch's numbers for its defaults


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over logits [B, C] of their cross entropy with labels [B, C] between 0 and 1."""
    native = kernels()
    plain = {logits.dtype, labels.dtype} != {torch.float32} or logits.device.type != "cpu" or labels.requires_grad
    if native is None or plain or logits.shape != labels.shape or not logits.numel():
        return functional.binary_cross_entropy_with_logits(logits, labels)
    return cast("Tensor", _BinaryCrossEntropy.apply(logits, labels))  # type: ignore[no-untyped-call]


class _BinaryCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        logits, labels = logits.contiguous(), labels.contiguous()
        # the gradient [B, C], and the sum of each run's losses [runs]
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


def cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the mean over logits [B, C] of their cross entropy with classes [B]; weight [C] weighs the classes."""
    if logits.dtype != torch.float32 or logits.device.type != "cpu" or not is_kept(logits.numel()):
        return functional.cross_entropy(logits, labels, weight=weight)
    return cast("Tensor", _CrossEntropy.apply(logits, labels, weight))  # type: ignore[no-untyped-call]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
        # logarithms of the classes' probabilities [B, C]
        log_chance = empty_rows(*logits.shape)
        torch.ops.aten._log_softmax.out(logits, 1, False, out=log_chance)  # noqa: FBT003, SLF001 - positional in aten
        loss, total = torch.ops.aten.nll_loss_forward(log_chance, labels, weight, _MEAN, _IGNORED)
        ctx.save_for_backward(log_chance, labels, weight, total)
        return cast("Tensor", loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        log_chance, labels, weight, total = ctx.saved_tensors
        # the gradient of log_chance, and then of the logits, in the same memory [B, C]
        made = empty_rows(*log_chance.shape)
        given = (grad, log_chance, labels, weight, _MEAN, _IGNORED, total)
        torch.ops.aten.nll_loss_backward.grad_input(*given, grad_input=made)
        # in place: torch sums each row before it writes to it
        torch.ops.aten._log_softmax_backward_data.out(made, log_chance, 1, made.dtype, out=made)  # noqa: SLF001
        return made, None, None
