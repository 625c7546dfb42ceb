"""What of tensors these kernels take, and how a program is started on the card that holds them."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr

_KINDS = frozenset({torch.float32, torch.bfloat16, torch.float16})


def accepts(_: Csr, rows: Tensor) -> bool:
    """Return whether these kernels compute on such rows."""
    return rows.is_cuda and rows.dtype in _KINDS and _has_triton()


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def on_card_of(rows: Tensor) -> AbstractContextManager[None]:
    """Start programs on the card that holds these rows, for the length of a block."""
    return torch.cuda.device(rows.device) if rows.is_cuda else nullcontext()


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a number of at least one."""
    return 1 << (number - 1).bit_length()
