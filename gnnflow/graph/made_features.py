"""Features that no column of a table holds: degrees (`graph.degree_features`), and rows by id (`graph.id_embeddings`).

Both follow from the graph alone, so they are the same for any number of partitions, and later tables have their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnflow.graph.arrays import FloatArray, IntArray, KeyArray
from gnnflow.graph.hashing import combine, seed_word

DEGREE_FEATURES = ("log1p(in_degree)", "log1p(out_degree)")
"""The names of the columns of degrees, after the columns of a type's table."""

ID_FEATURES = ("hash(id)",)
"""What stands for the columns of a type whose nodes read rows by their ids."""

ROWS_PER_ID = 2
"""The rows of a table of embeddings that each id reads. Two ids seldom share both."""


def degree_features(in_degree: IntArray, out_degree: IntArray) -> FloatArray:
    """Return the columns of nodes [N, 2], float32. Both arguments are degrees by relation [N, R]."""
    both = np.stack([in_degree.sum(1), out_degree.sum(1)], axis=1)
    return np.log1p(both.astype(np.float64)).astype(np.float32)


def embedding_rows(keys: KeyArray, num_rows: int) -> IntArray:
    """Return the rows that each id reads of a table [N, 2]: one of its first half, and one of the other half.

    keys: of the ids [N].
    """
    half = num_rows // ROWS_PER_ID
    sizes = (half, num_rows - half)
    hashed = [combine(keys, seed_word("id embedding", number)) % np.uint64(size) for number, size in enumerate(sizes)]
    rows: IntArray = np.stack(hashed, axis=1).astype(np.int64) + np.array([0, half])
    return rows


def table_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a table has. names: of all of its features."""
    if tuple(names) == ID_FEATURES:
        return ()
    own = len(names) - len(DEGREE_FEATURES)
    return tuple(names[:own] if tuple(names[own:]) == DEGREE_FEATURES else names)
