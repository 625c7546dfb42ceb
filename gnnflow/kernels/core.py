"""Calls of the native core: the tensors that it accepts, and its arguments."""

from __future__ import annotations

import ctypes
import warnings
from functools import cache

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr
from gnnflow.native import core

# Types of rows, numbered as in native/rows.h. The core sums in float32 for all of them.
_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


@cache
def kernels() -> ctypes.CDLL | None:
    """Return the core, which computes with torch's threads; None if it was not built.

    torch's threads spin for some milliseconds after each operation, ready for the next one. Separate threads of the
    core would compete with them: an epoch of three layers took a sixth longer.
    """
    found = core()
    if found is not None:
        # torch loads its OpenMP runtime for the whole process to find.
        try:
            found.gnnflow_use_threads(ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p))
        except AttributeError:
            warnings.warn("torch's OpenMP threads were not found: native kernels use one thread", stacklevel=2)
    return found


def accepts(_: Csr, rows: Tensor) -> bool:
    """Return whether the core computes on rows of this type."""
    return rows.dtype in _KINDS and rows.device.type == "cpu" and kernels() is not None


def call(name: str, csr: Csr, *operands: Tensor | float | None) -> None:
    """Call a function of the core on an adjacency and contiguous operands, with as many threads as torch uses.

    The core checks no bounds: callers check that the operands have the rows that the adjacency refers to.
    """
    if not csr.is_sound:
        raise IndexError("an edge of the adjacency refers to a row that does not exist")
    given = [each.data_ptr() if isinstance(each, Tensor) else each for each in operands]
    getattr(kernels(), name)(csr.num_targets, csr.offsets.data_ptr(), *given, torch.get_num_threads())


def index_args(numbers: Tensor, others: Tensor | None) -> tuple[Tensor, Tensor | None, bool]:
    """Return three arguments: the numbers of sources and of edges, and whether they have 4 bytes each."""
    if others is not None and others.dtype != numbers.dtype:
        numbers, others = numbers.to(torch.int64), others.to(torch.int64)
    return numbers, others, numbers.dtype == torch.int32


def source_args(csr: Csr) -> tuple[Tensor, bool]:
    """Return two arguments: the numbers of sources, and whether they have 4 bytes each."""
    return csr.numbers, csr.numbers.dtype == torch.int32


def row_args(rows: Tensor) -> tuple[Tensor, int]:
    """Return two arguments: the rows, and the number of their type."""
    return rows, _KINDS[rows.dtype]
