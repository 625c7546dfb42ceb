"""How large features and edge attributes are: what scales their columns, or which are large and nothing scales them.

Layers are initialised for inputs near 1. On a generated graph (4,000 accounts) test accuracy fell from 0.80 to 0.59
with features ten times as large, and to 0.32, below a model without edges, with a single column of 10,000.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.ingest.moments import moments_of
from gnnflow.ingest.statistics import TYPE_MARK
from gnnflow.storage.columns import to_matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from gnnflow.ingest.fields import ColumnPart
    from gnnflow.mapreduce.rounds import TaskRecord

LARGE = 10.0
"""The root mean square from which on a column counts as large."""


def count_numbers(column: pa.ChunkedArray, scaling: str, *, in_order: bool) -> dict[str, Any]:
    """Return what a task counts of rows of numbers: what scales them, or what tells whether anything ought to.

    scaling: what the config asks for. in_order: the rows do not lie in the order of the user's table.
    """
    if scaling == "row":
        return {}
    if scaling == "none":
        matrix = to_matrix(column)
        squares = np.einsum("rc,rc->c", matrix, matrix, dtype=np.float64)
        return {"size": {"rows": len(matrix), "squares": squares.tolist()}}
    matrix = to_matrix(column, np.float64)
    # each column in ascending order: a sum then does not depend on the order of the rows
    return {"moments": asdict(moments_of(matrix if in_order else np.sort(matrix, axis=0)))}


def large_columns(
    names: Sequence[str], parts: Sequence[Sequence[ColumnPart]], records: Sequence[TaskRecord]
) -> tuple[str, ...]:
    """Return the columns that are large, behind their table's name where it has one.

    names: of the tables; parts: what each is read as. records: of the tasks that counted, of each partition its tables.
    """
    return tuple(
        f"{name}{TYPE_MARK}{column}" if name else column
        for number, (name, held) in enumerate(zip(names, parts, strict=True))
        for column in _large(held, records[number :: len(names)])
    )


def _large(parts: Sequence[ColumnPart], records: Sequence[TaskRecord]) -> list[str]:
    """Return the columns of a table of which some number is large; a list of numbers is one column."""
    counted = [record.counts["size"] for record in records if "size" in record.counts]
    rows = sum(each["rows"] for each in counted)
    if not rows:
        return []
    # the mean square of each column of the matrix [width], and the first of each column of the table
    mean = np.sum([each["squares"] for each in counted], axis=0) / rows
    first = np.cumsum([0, *(part.width for part in parts)])
    largest = np.maximum.reduceat(mean, first[:-1])
    return [part.name for part, square in zip(parts, largest, strict=True) if square > LARGE**2]
