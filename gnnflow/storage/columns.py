"""Between Arrow columns and NumPy arrays, without a copy where the layout allows.

Fixed-size lists are matrices [n, width]; lists are ragged rows (offsets, values).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import Array, IntArray, KeyArray
from gnnflow.graph.errors import TableError
from gnnflow.graph.hashing import hash_bytes, hash_integers
from gnnflow.native import Texts, hash_ids, hash_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.facts import IdType

Column = Any  # pa.Array | pa.ChunkedArray: pyarrow ships no complete types


class Ragged(NamedTuple):
    """A list column without nulls: offsets [n + 1] from 0, and the values of all rows."""

    offsets: IntArray
    values: Array


def refuse_repeated(names: Sequence[str], path: str) -> None:
    """Raise TableError where two columns have one name."""
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise TableError(f"two columns would have the name {repeated[0]!r}", where=path, fix="Rename one in the file.")


def plain_values(column: Column) -> Column:
    """Return a column without a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def combine(column: Column) -> Any:
    """Return a column as one contiguous Arrow array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def to_numpy(column: Column) -> Array:
    """Return a primitive column without nulls as an array."""
    array: Array = combine(column).to_numpy(zero_copy_only=False)
    return array


def to_matrix(column: Column, dtype: type[np.number[Any]] = np.float32) -> Array:
    """Return a fixed-size-list column without nulls as a matrix [n, width] of the given type."""
    array = combine(column)
    width = array.type.list_size
    flat = array.flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat, dtype).reshape(len(array), width)


def as_ids(ids: Any, id_type: IdType) -> Any:
    """Return ids as integers or text, unchanged where they are already."""
    is_integer = pa.types.is_integer(ids.type)
    if is_integer == (id_type == "int64"):
        return ids
    return ids.cast(pa.large_string() if is_integer else pa.int64())


def from_matrix(matrix: Array) -> Any:
    """Return a matrix [n, width] as a fixed-size-list column of the same element type."""
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])


def from_rows(rows: Array) -> Any:
    """Return rows of bytes [n, width] as a column of fixed-size binary values."""
    buffer = pa.py_buffer(np.ascontiguousarray(rows, np.uint8))
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, buffer])


def to_rows(column: Column) -> Array:
    """Return a column of fixed-size binary values without nulls as rows of bytes [n, width]."""
    array, width = combine(column), column.type.byte_width
    if not len(array):
        return np.zeros((0, width), np.uint8)
    content = np.frombuffer(array.buffers()[1], np.uint8)
    rows: Array = content[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)
    return rows


def to_ragged(column: Column) -> Ragged:
    """Return a list column without nulls as (offsets [n + 1] from 0, values)."""
    array = combine(column)
    if pa.types.is_fixed_size_list(array.type):
        flat = array.flatten().to_numpy(zero_copy_only=False)
        return Ragged(np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size, flat)
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
    return Ragged(offsets - offsets[0], values)


def from_ragged(offsets: Array, values: Array) -> Any:
    """Return (offsets, values) as a list column. Raises ArrowInvalid for 2^31 values or more."""
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values))


def take_rows(table: pa.Table, rows: Array) -> pa.Table:
    """Return the given rows in order; numbers go through NumPy, which gathers whole rows of a matrix at once."""
    return pa.table([_taken(combine(column), rows) for column in table.columns], schema=table.schema)


def are_numbers(column: Column) -> bool:
    """Return whether a column is of numbers, none of them missing."""
    return (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) and not column.null_count


def _taken(column: Any, rows: Array) -> Any:
    if _is_matrix(column):
        return from_matrix(_matrix(column)[rows])
    if are_numbers(column):
        return pa.array(column.to_numpy()[rows])
    return column.take(pa.array(rows))


def order_rows(table: pa.Table, order: IntArray) -> pa.Table:
    """Return what `take_rows` returns for rows none of which is asked for twice.

    A row of a matrix in pieces is copied once, from its piece to its place: the pieces are never joined.
    """
    columns = [
        _placed(column, order)
        if column.num_chunks > 1 and all(map(_is_matrix, column.chunks))
        else _taken(combine(column), order)
        for column in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def _placed(column: pa.ChunkedArray, order: IntArray) -> Any:
    parts = [_matrix(chunk) for chunk in column.chunks]
    taken = np.empty((len(order), column.type.list_size), parts[0].dtype)
    # the place of each row, -1 of one that nobody asks for [R]
    place = np.full(len(column), -1)
    place[order] = np.arange(len(order))
    begin = 0
    for part in parts:
        to = place[begin : begin + len(part)]
        asked = to >= 0
        if asked.all():
            taken[to] = part
        else:
            taken[to[asked]] = part[asked]
        begin += len(part)
    return from_matrix(taken)


def _is_matrix(array: Any) -> bool:
    if not pa.types.is_fixed_size_list(array.type) or pa.types.is_decimal(array.type.value_type):
        return False  # NumPy has no decimals
    return not array.null_count and not array.flatten().null_count


def _matrix(array: Any) -> Array:
    flat: Array = array.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(array), array.type.list_size)


def id_keys(column: Column) -> KeyArray:
    """Return the 64-bit key of each id (int64 or string), which depends on the id alone."""
    array = combine(column)
    if pa.types.is_integer(array.type):
        ids = to_numpy(array)
        keys = hash_ids(ids)
        return hash_integers(ids) if keys is None else keys
    texts = texts_of(array)
    keys = hash_texts(texts)
    return hash_bytes(texts.content, texts.offsets) if keys is None else keys


def texts_of(column: Column) -> Texts:
    """Return a column of text without nulls as its offsets and its content."""
    array = combine(column).cast(pa.large_string())
    _, offsets, content = array.buffers()
    held = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return Texts(held, np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8))
