"""Numbers of the user's columns as floats: the limits of their size, and the digits they lose.

Shapes: V values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import floats_of, numbers_of
from gnnflow.storage.columns import combine, to_numpy
from gnnflow.storage.user_tables import holds_lists, holds_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.graph.scales import ColumnScale

FloatType = type[np.float32] | type[np.float64]

MOST_SCALED = 1e100
"""The largest magnitude that scaling takes: float64 still holds the sum of squares of such numbers."""

_BITS: dict[FloatType, int] = {np.float32: 24, np.float64: 53}
_WORD = 8


def fits_float32(values: Any) -> Array:
    """Return which values are finite as float32 [V]; a null is not."""
    if values.null_count == len(values):
        return np.zeros(len(values), bool)  # a column of nulls alone may have no type to cast
    with np.errstate(over="ignore"):
        return np.isfinite(floats_of(values).astype(np.float32, copy=False))


def can_be_scaled(values: Any, rows: IntArray, scale: ColumnScale | None) -> Array:
    """Return which values scaling accepts and float32 holds after it [V]; a null is not.

    rows [V]: the row of each value. scale: of these columns, None where it follows from them: then no number lies
    further from the mean than float32 holds.
    """
    if values.null_count == len(values):
        return np.zeros(len(values), bool)
    numbers = floats_of(values).astype(np.float64)
    fits = np.abs(numbers) <= MOST_SCALED
    if scale is None:
        return np.asarray(fits)
    # position of each value in its row [V]; rows of another length have a fault already
    place = np.minimum(np.arange(len(rows)) - np.searchsorted(rows, rows), scale.width - 1)
    with np.errstate(over="ignore"):
        scaled = (numbers - np.asarray(scale.mean)[place]) / np.asarray(scale.deviation)[place]
        return np.asarray(fits & np.isfinite(scaled.astype(np.float32)))


def count_rounded(table: pa.Table, types: Mapping[str, FloatType]) -> dict[str, Any]:
    """Return a task's count of columns whose numbers lose digits: the bits that are kept, and the largest error.

    types: the type that each column of numbers is rounded to first.
    """
    found = {}
    for name, dtype in types.items():
        if _holds(dtype, table.schema.field(name).type):
            continue
        column = combine(table.column(name))
        if holds_text(column.type):  # of numbers
            column = pa.array(numbers_of(column).values, from_pandas=True)
        values = (pc.list_flatten(column) if pa.types.is_nested(column.type) else column).drop_null()
        lost = np.flatnonzero(_loses_digits(values, dtype))
        if len(lost):
            largest = np.abs(floats_of(values.take(pa.array(lost)))).max()
            # the spacing at the largest float of the type would be infinite
            with np.errstate(over="ignore"):
                spacing = np.spacing(min(dtype(largest), np.nextafter(np.finfo(dtype).max, dtype(0))))
            found[name] = [_BITS[dtype], float(spacing / 2)]
    return {"rounded": found} if found else {}


def _holds(dtype: FloatType, found: pa.DataType) -> bool:
    """Return whether numbers of a type, or lists of them, are floats of at most as many bits."""
    found = found.value_type if holds_lists(found) else found
    return bool(pa.types.is_floating(found)) and found.bit_width <= 8 * np.dtype(dtype).itemsize


def _loses_digits(values: Any, dtype: FloatType) -> Array:
    """Return which numbers [V] change in their last digit as floats; no boolean does.

    The last digit of a time is a second, and of a float a unit: floats never hold all decimals.
    """
    found = values.type
    if pa.types.is_integer(found):
        return _loses_bits(values, dtype)
    if pa.types.is_boolean(found):
        return np.zeros(len(values), bool)
    numbers = floats_of(values)
    if pa.types.is_floating(found):
        return np.asarray(np.abs(numbers - numbers.astype(dtype)) > 1 / 2)
    unit = 10.0**-found.scale if pa.types.is_decimal(found) else 1.0
    # beyond the digits of float64 itself, neighbours may be equal before they are compared
    return np.asarray((np.abs(numbers - numbers.astype(dtype)) > unit / 2) | (np.spacing(np.abs(numbers)) > unit))


def _loses_bits(values: Any, dtype: FloatType) -> Array:
    """Return which integers [V] change when they become floats."""
    integers = to_numpy(values)
    floats: FloatArray = integers.astype(dtype)
    limit = float(np.iinfo(integers.dtype).max) if integers.dtype.itemsize == _WORD else np.inf
    with np.errstate(invalid="ignore"):
        return np.asarray((floats >= limit) | (floats.astype(integers.dtype) != integers))
