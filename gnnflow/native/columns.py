"""Orders, places of ids and distributions of columns, and rows that are stored in fewer bytes.

Shapes: V values, I ids, R rows, C columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gnnflow.native.library import core

if TYPE_CHECKING:
    from collections.abc import Sequence

IntArray = npt.NDArray[np.int64]
KeyArray = npt.NDArray[np.uint64]

MOST_IDS = 1 << 29
_CODES = 1 << 16
_NARROW = {"bfloat16": 1, "float16": 2, "int8": 3, "int4": 4}  # as native/narrow.c numbers them


class Sorted(NamedTuple):
    """Integers in ascending order, equal ones as they came, and the place of each before [V]."""

    values: IntArray
    order: IntArray


def stable_order(values: IntArray | KeyArray) -> IntArray:
    """Return the order of non-negative integers [V], equal ones as they come."""
    return np.argsort(values, kind="stable") if core() is None else _order(values, None)


def stable_sort(values: IntArray) -> Sorted:
    """Return non-negative integers [V] in order."""
    if core() is None:
        order = np.argsort(values, kind="stable")
        return Sorted(values[order], order)
    ascending = np.empty(len(values), np.int64)
    return Sorted(ascending, _order(values, ascending))


def _order(values: IntArray | KeyArray, ascending: IntArray | None) -> IntArray:
    native = core()
    assert native is not None
    assert values.itemsize == np.int64().itemsize
    assert values.min(initial=0) >= 0
    held = np.ascontiguousarray(values)
    # bits of the largest value and of the last row
    bits = int(values.max(initial=0)).bit_length(), max(len(values) - 1, 0).bit_length()
    order, spare = np.empty(len(values), np.int64), np.empty(len(values), np.uint64)
    into = None if ascending is None else ascending.ctypes.data
    native.gnnflow_order(len(held), held.ctypes.data, *bits, order.ctypes.data, spare.ctypes.data, into)
    return order


def group(columns: Sequence[npt.NDArray[Any]], groups: IntArray, bounds: IntArray) -> list[npt.NDArray[Any]] | None:
    """Return columns [V] of numbers with the rows of one group together, in their given order; None without the core.

    groups [V]: of each row. bounds [G + 1]: where the rows of each group begin and end then.
    """
    native = core()
    if native is None:
        return None
    of_rows, made = np.ascontiguousarray(groups, np.int32), list[npt.NDArray[Any]]()
    assert not len(of_rows) or 0 <= of_rows.min() <= of_rows.max() < len(bounds) - 1
    assert bounds[-1] == len(of_rows)
    for column in map(np.ascontiguousarray, columns):
        assert column.shape == of_rows.shape
        made.append(np.empty_like(column))
        begins = np.array(bounds[:-1], np.int64)
        addresses = [array.ctypes.data for array in (column, of_rows, begins, made[-1])]
        native.gnnflow_group(len(column), column.itemsize, *addresses)
    return made


def find(ids: IntArray, wanted: IntArray) -> IntArray | None:
    """Return the place of each wanted number [V] among distinct ids [I], -1 where it is none; None without the core."""
    native = core()
    if native is None or len(ids) > MOST_IDS:
        return None
    ids, wanted = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(wanted, np.int64)
    bits = max(2 * len(ids), 1).bit_length()
    slots, found = np.full(1 << bits, -1, np.int32), np.empty(len(wanted), np.int64)
    native.gnnflow_find(
        len(ids), ids.ctypes.data, bits, slots.ctypes.data, len(wanted), wanted.ctypes.data, found.ctypes.data
    )
    return found


def count_codes(matrix: npt.NDArray[np.float32], columns: IntArray) -> npt.NDArray[np.int32] | None:
    """Return the rows of each 16-bit code, by column [C, 65536]: the upper half of a float32 in the order of numbers.

    matrix: [R, width]. Returns None without the core.
    """
    native = core()
    if native is None:
        return None
    matrix, columns = np.ascontiguousarray(matrix, np.float32), np.ascontiguousarray(columns, np.int64)
    assert not len(columns) or 0 <= columns.min() <= columns.max() < matrix.shape[1]
    counts = np.zeros((len(columns), _CODES), np.int32)
    native.gnnflow_count_codes(*matrix.shape, matrix.ctypes.data, len(columns), columns.ctypes.data, counts.ctypes.data)
    return counts


def widen(
    stored: npt.NDArray[np.uint8],
    rows: IntArray | None = None,
    *,
    kind: str,
    width: int,
    low: npt.NDArray[np.float32] | None = None,
    step: npt.NDArray[np.float32] | None = None,
    threads: int = 1,
) -> npt.NDArray[np.float32] | None:
    """Return rows as float32 numbers [R, width], widened while they are gathered; None without the core.

    stored [N, bytes]: as `gnnflow.graph.narrow` stores them in a kind. rows [R]: which of them; None: all. low and step
    [width]: of codes.
    """
    native = core()
    if native is None:
        return None
    if rows is not None:
        rows = np.ascontiguousarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(stored):
            raise IndexError(f"a row is outside of the {len(stored)} stored ones")
    stored, number = np.ascontiguousarray(stored, np.uint8), len(stored) if rows is None else len(rows)
    columns = [None if each is None else np.ascontiguousarray(each, np.float32) for each in (low, step)]
    out = np.empty((number, width), np.float32)
    given = [None if each is None else each.ctypes.data for each in (rows, *columns)]
    native.gnnflow_widen(
        number, width, stored.ctypes.data, stored.shape[1], _NARROW[kind], *given, out.ctypes.data, threads
    )
    return out
