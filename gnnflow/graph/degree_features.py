"""Degrees as two columns of features, after the columns of a type's table (`graph.degree_features`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnflow.graph.arrays import FloatArray, IntArray

DEGREE_FEATURES = ("log1p(in_degree)", "log1p(out_degree)")
"""The names of the columns, in their order."""


def degree_features(in_degree: IntArray, out_degree: IntArray) -> FloatArray:
    """Return the columns of nodes [N, 2], float32. Both arguments are degrees by relation [N, R]."""
    both = np.stack([in_degree.sum(1), out_degree.sum(1)], axis=1)
    return np.log1p(both.astype(np.float64)).astype(np.float32)


def table_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a table has. names: of all of its features, perhaps with degrees."""
    own = len(names) - len(DEGREE_FEATURES)
    return tuple(names[:own] if tuple(names[own:]) == DEGREE_FEATURES else names)
