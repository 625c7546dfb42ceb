"""The form in which a layer's rows travel between partitions (`infer.rows`): float32, or rounded to half precision.

A row is rounded once, where it is made; whoever reads it computes in float32, the node's own partition too. So where
rows are mapped they have the same numbers, in 4 bytes, which kernels read in place. What a target keeps for itself,
partial states and the terms of targets that edges read are never rounded.

Shapes: N rows, K packed width of a node's source terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from gnnflow.executions.tensors import tensor
from gnnflow.storage.columns import from_matrix, from_rows, to_matrix, to_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

    from gnnflow.config import RowKind
    from gnnflow.graph.arrays import FloatArray
    from gnnflow.storage.columns import Column

PARITY_LIMITS: dict[RowKind, float] = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""The largest difference that the parity certificate allows: some twenty times the rounding of one row."""


_HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def number_bytes(kind: RowKind) -> int:
    """Return the bytes of a number that travels."""
    return 2 if kind in _HALVES else 4


def rounded(matrix: FloatArray, kind: RowKind) -> FloatArray:
    """Return an array [N, ...] of numbers as they are read on the other side; beyond the kind's limits is infinity."""
    return _widened(_halves(matrix, kind)) if kind in _HALVES else matrix


def to_column(packed: FloatArray, kind: RowKind) -> pa.Array:
    """Return rounded rows [N, K] as the column that travels."""
    if kind not in _HALVES:
        return from_matrix(packed)
    return from_rows(_halves(packed, kind).view(torch.int16).numpy().view(np.uint8))


def from_column(column: Column, kind: RowKind) -> FloatArray:
    """Return rows of a column that travelled [N, K]."""
    if kind not in _HALVES:
        return to_matrix(column)
    return _widened(tensor(to_rows(column).view(np.int16)).view(_HALVES[kind]))


def _halves(matrix: FloatArray, kind: RowKind) -> Tensor:
    return tensor(np.ascontiguousarray(matrix)).to(_HALVES[kind])


def _widened(halves: Tensor) -> FloatArray:
    wide: FloatArray = halves.float().numpy()
    return wide
