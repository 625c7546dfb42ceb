"""Text as rows of numbers: its words hashed with a sign, or what a function of the user's returns."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns.values import Column, texts_of
from gnnflow.config.own_code import own_function
from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import TableError
from gnnflow.storage.columns import combine, id_keys, to_numpy

_BETWEEN_WORDS = r"[^\p{L}\p{N}]+"
_SIGN = np.uint64(63)


def hash_words(column: Column, width: int) -> Array:
    """Return a row of length 1 per text [R, width]: each word adds 1 or -1 to the column of its hash.

    Feature hashing (Weinberger et al., ICML 2009): no table of words is kept. A text without words is zeros.
    """
    text = pc.utf8_lower(texts_of(column).fill_null(""))
    words = pc.split_pattern_regex(text, _BETWEEN_WORDS)
    rows, flat = to_numpy(pc.list_parent_indices(words)).astype(np.int64), combine(pc.list_flatten(words))
    given = np.flatnonzero(to_numpy(pc.not_equal(flat, "")))
    rows, keys = rows[given], id_keys(flat.take(pa.array(given)))
    place = rows * width + (keys % np.uint64(width)).astype(np.int64)
    sign = 1.0 - 2.0 * (keys >> _SIGN).astype(np.float64)
    matrix = np.bincount(place, sign, minlength=len(text) * width).reshape(len(text), width)
    length = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.where(length > 0, length, 1))


def call_encoder(column: Column, encoder: str, *, width: int | None = None) -> Array:
    """Return the rows of numbers [R, width] that a user's function gives for R texts.

    The function gets a list, with "" where a text is missing. width: the expected one. Raises TableError where the
    function returns anything else.
    """
    function = own_function(encoder, where="graph.columns", raises=TableError)
    texts = texts_of(column).fill_null("").to_pylist()
    try:
        found = np.asarray(cast("Array", function(texts)), np.float64)
    except (TypeError, ValueError) as error:
        raise TableError(f"{encoder} failed ({error})", where="graph.columns", fix=_CONTRACT) from error
    if found.ndim != 2 or len(found) != len(texts) or (width or found.shape[1] or 1) != found.shape[1]:  # noqa: PLR2004 - rows and columns
        expected = f"({len(texts)}, {width or 'width'})"
        raise TableError(f"{encoder} returned {found.shape}, not {expected}", where="graph.columns", fix=_CONTRACT)
    if not np.isfinite(found.astype(np.float32)).all():
        raise TableError(f"{encoder} returned a number that float32 lacks", where="graph.columns", fix=_CONTRACT)
    return found


_CONTRACT = "It is called as function(texts) with a list of text, and returns a row of finite numbers for each."
