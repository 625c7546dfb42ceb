"""What of tensors may be given to the native core, and how."""

from __future__ import annotations

import ctypes
import warnings
from functools import cache

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr
from gnnflow.native import core

# How rows may be stored, as native/rows.h counts the kinds. The core sums in float32 whatever the kind is.
_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


@cache
def kernels() -> ctypes.CDLL | None:
    """Return the core with torch's threads lent to it, or None where it was not built.

    torch's threads spin for some milliseconds after each of its operations. They are ready for the next one, which
    threads of the core's own would have to share the cores with: an epoch of three layers took a sixth longer.
    """
    found = core()
    if found is not None:
        # torch loads its OpenMP runtime for the whole process to find.
        try:
            found.gnnflow_use_threads(ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p))
        except AttributeError:
            warnings.warn("torch's threads were not found: native kernels compute with one thread", stacklevel=2)
    return found


def accepts(_: Csr, rows: Tensor) -> bool:
    """Return whether the core computes on such rows."""
    return rows.dtype in _KINDS and rows.device.type == "cpu" and kernels() is not None


def call(name: str, csr: Csr, *operands: Tensor | float | None) -> None:
    """Call a function of the core on an adjacency and on contiguous operands, with as many threads as torch uses.

    The core checks nothing: callers see to it that operands have the rows that the adjacency leads to.
    """
    if not csr.is_sound:
        raise IndexError("an edge of the adjacency leads outside of its rows")
    given = [each.data_ptr() if isinstance(each, Tensor) else each for each in operands]
    getattr(kernels(), name)(csr.num_targets, csr.offsets.data_ptr(), *given, torch.get_num_threads())


def numbered(numbers: Tensor, others: Tensor | None) -> tuple[Tensor, Tensor | None, bool]:
    """Return numbers of sources and of edges, and whether they have 4 bytes each: three arguments of a function."""
    if others is not None and others.dtype != numbers.dtype:
        numbers, others = numbers.to(torch.int64), others.to(torch.int64)
    return numbers, others, numbers.dtype == torch.int32


def sources_of(csr: Csr) -> tuple[Tensor, bool]:
    """Return numbers of sources and whether they have 4 bytes each: two arguments of a function."""
    return csr.numbers, csr.numbers.dtype == torch.int32


def stored(rows: Tensor) -> tuple[Tensor, int]:
    """Return rows and the number of their kind: two arguments of a function that takes rows of any kind."""
    return rows, _KINDS[rows.dtype]
