"""Moments merged from any parts are those of the whole, also where values lie close together and far from zero."""

from __future__ import annotations

import numpy as np
import pytest

from gnnflow.ingest.moments import moments_of, scale_of


@pytest.mark.parametrize("parts", [1, 2, 7, 100])
@pytest.mark.parametrize("offset", [0.0, 1.7e9, -1e12])
def test_merged_parts_are_the_whole(parts: int, offset: float) -> None:
    rng = np.random.default_rng(parts)
    matrix = np.round(rng.standard_normal((100, 3)) * 16) + offset  # exact in float64
    empty = np.zeros((0, 3))
    scale = scale_of([moments_of(part) for part in (empty, *np.array_split(matrix, parts), empty)])
    centred = matrix - offset
    assert np.allclose(
        np.asarray(scale.mean) - offset, centred.mean(0), atol=1e-3
    )  # the last bits of float64 near 1e12
    assert np.allclose(scale.deviation, centred.std(0), rtol=1e-5)


def test_a_constant_column_is_left_at_zero() -> None:
    matrix = np.full((1000, 2), 0.1)
    scale = scale_of([moments_of(part) for part in np.array_split(matrix, 9)])
    assert not ((matrix - scale.mean) / scale.deviation).any()


def test_a_table_without_rows_in_any_part_stays_as_it_is():
    scale = scale_of([moments_of(np.empty((0, 2)))] * 3)
    assert (scale.mean, scale.deviation) == ((0.0, 0.0), (1.0, 1.0))
