"""The form in which a layer's rows travel between partitions (`infer.rows`): float32, or rounded to half precision.

A row is rounded once, where it is made; whoever reads it computes in float32, the node's own partition too. So where
rows are mapped they have the same numbers, in 4 bytes, which kernels read in place. What a target keeps for itself,
partial states and the terms of targets that edges read are never rounded.

Shapes: N rows, K packed width of a node's source terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.narrow import NarrowRows, row_bytes
from gnnflow.storage.columns import from_matrix, from_rows, to_matrix, to_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from gnnflow.config import RowKind
    from gnnflow.graph.arrays import FloatArray
    from gnnflow.storage.columns import Column

PARITY_LIMITS: dict[RowKind, float] = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""The largest difference that the parity certificate allows: some twenty times the rounding of one row."""


def number_bytes(kind: RowKind) -> int:
    """Return the bytes of a number that travels."""
    return row_bytes(kind, 1)


def rounded(matrix: FloatArray, kind: RowKind) -> FloatArray:
    """Return an array [N, ...] of numbers as they are read on the other side; beyond the kind's limits is infinity."""
    if kind == "float32":
        return matrix
    width = int(np.prod(matrix.shape[1:], dtype=np.int64))
    form = NarrowRows(kind, width)
    with np.errstate(over="ignore"):
        return form.decode(form.encode(matrix.reshape(len(matrix), width))).reshape(matrix.shape)


def to_column(packed: FloatArray, kind: RowKind) -> pa.Array:
    """Return rounded rows [N, K] as the column that travels."""
    if kind == "float32":
        return from_matrix(packed)
    with np.errstate(over="ignore"):
        return from_rows(NarrowRows(kind, packed.shape[1]).encode(packed))


def from_column(column: Column, kind: RowKind) -> FloatArray:
    """Return rows of a column that travelled [N, K]."""
    if kind == "float32":
        return to_matrix(column)
    rows = to_rows(column)
    return NarrowRows(kind, rows.shape[1] // number_bytes(kind)).decode(rows)
