"""Dropout and its gradient, each in one pass that keeps a byte per number.

torch's operations take five passes over float32 and keep what each number is multiplied by. Random words are drawn for
a run of numbers at a time, which stay in the cache: the stream is that of one draw for all.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnflow.kernels.draws import generator_of
from gnnflow.kernels.memory import empty_rows
from gnnflow.kernels.native.library import kernels

PER_WORD = 4
"""Numbers that one random word of 64 bits is drawn for."""

_RUN = 1 << 16  # words that are drawn at a time


def drops(rows: Tensor) -> bool:
    """Return whether `dropped` takes such rows."""
    return rows.dtype == torch.float32 and rows.device.type == "cpu" and kernels() is not None


def dropped(rows: Tensor, least: int, scale: float) -> Tensor:
    """Return rows times `scale` where sixteen random bits are at least so many (signed), times zero elsewhere."""
    return cast("Tensor", _Dropped.apply(rows, least, scale))  # type: ignore[no-untyped-call]


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, least: int, scale: float) -> Tensor:
        native, rows = kernels(), rows.contiguous()
        assert native is not None
        out, size, threads = empty_rows(*rows.shape), rows.numel(), torch.get_num_threads()
        # a byte per number says for the backward pass whether it was kept; without one nothing is noted
        kept = empty_rows(-(-size // PER_WORD)).view(torch.uint8) if ctx.needs_input_grad[0] else None
        # random words, of which each serves four numbers; drawn a run at a time, so that they stay in the cache
        generator = generator_of(rows.device)
        words = torch.empty(min(_RUN, -(-size // PER_WORD)), dtype=torch.int64)
        for first in range(0, size, _RUN * PER_WORD):
            count = min(size - first, _RUN * PER_WORD)
            words[: -(-count // PER_WORD)].random_(-(2**63), None, generator=generator)
            noted = None if kept is None else kept.data_ptr() + first
            given = [rows.data_ptr() + 4 * first, words.data_ptr(), least, scale, noted, out.data_ptr() + 4 * first]
            native.gnnflow_dropout(count, *given, threads)
        ctx.scale = scale
        ctx.save_for_backward(kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        native, (kept,), grad = kernels(), ctx.saved_tensors, grad.contiguous()
        assert native is not None
        out = empty_rows(*grad.shape)
        given = [grad.data_ptr(), kept.data_ptr(), ctx.scale, out.data_ptr()]
        native.gnnflow_dropout_gradient(grad.numel(), *given, torch.get_num_threads())
        return out, None, None
