"""Rows in fewer bytes are the nearest that their kind holds, and every reader widens them to the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gnnflow.graph.narrow import KINDS, LEVELS, ColumnErrors, ColumnRanges, NarrowRows
from gnnflow.native import core, widen

matrices = arrays(
    np.float32,
    st.tuples(st.integers(1, 30), st.integers(1, 9)),
    elements=st.floats(-60000, 60000, width=32, allow_subnormal=True),
)


def form_of(kind: str, matrix: np.ndarray) -> NarrowRows:
    ranges = ColumnRanges(tuple(matrix.min(0).tolist()), tuple(matrix.max(0).tolist()))
    return NarrowRows.of(kind, matrix.shape[1], ranges)


@given(matrices)
def test_halves_are_as_numpy_and_torch_round_them(matrix):
    for kind, expected in (
        ("float16", matrix.astype(np.float16).astype(np.float32)),
        ("bfloat16", torch.from_numpy(matrix).to(torch.bfloat16).float().numpy()),
    ):
        form = form_of(kind, matrix)
        rows = form.encode(matrix)
        assert rows.shape == (len(matrix), form.row_bytes)
        assert np.array_equal(form.decode(rows), expected)


@given(matrices)
def test_steps_are_the_nearest_of_a_column_s_range(matrix):
    spread = matrix.max(0).astype(np.float64) - matrix.min(0)
    for kind, levels in LEVELS.items():
        form = form_of(kind, matrix)
        apart = np.abs(form.decode(form.encode(matrix)) - matrix.astype(np.float64))
        # half a step, and the rounding of low, step and sum
        size = np.abs(matrix).max(0)
        assert (apart <= spread / levels / 2 * (1 + 1e-5) + 3e-7 * size + 1e-37).all()
        # what is stored again stays as it is
        again = form.decode(form.encode(form.decode(form.encode(matrix))))
        assert np.array_equal(again, form.decode(form.encode(matrix)))


@pytest.mark.skipif(core() is None, reason="the native core was not built")
@given(matrices, st.randoms(use_true_random=False))
def test_the_core_widens_to_the_same_bits(matrix, random):
    rows = np.array([random.randrange(len(matrix)) for _ in range(40)])
    for kind in KINDS[1:]:
        form = form_of(kind, matrix)
        stored = form.encode(matrix)
        given_ = {"kind": kind, "width": form.width, "low": form.low, "step": form.step}
        assert np.array_equal(widen(stored, **given_), form.decode(stored))
        assert np.array_equal(widen(stored, rows, **given_, threads=2), form.decode(stored[rows]))


def test_numbers_outside_of_a_range_become_its_nearest_end_and_a_constant_stays():
    ranges = ColumnRanges((-1.0, 2.5), (1.0, 2.5))
    for kind in LEVELS:
        found = NarrowRows.of(kind, 2, ranges)
        held = found.decode(found.encode(np.array([[-9, 2.5], [9, 7]], np.float32)))
        assert np.allclose(held, [[-1, 2.5], [1, 2.5]], atol=1e-6)


def test_columns_of_0_and_1_stay_as_they_are():
    matrix = np.array([[0, 1], [1, 0], [1, 1]], np.float32)
    for kind in KINDS[1:]:
        form = form_of(kind, matrix)
        assert np.array_equal(form.decode(form.encode(matrix)), matrix)


def test_errors_are_shares_of_the_spread_and_the_worst_comes_first():
    errors = ColumnErrors("int8", ("a", "b", "c"), (0.1, 0.5, 0.0), (0.05, 0.1, 0.0), (10.0, 5.0, 0.0))
    assert [each.name for each in errors.relative] == ["b", "a", "c"]
    assert (errors.relative[0].largest, errors.relative[2].largest) == (0.1, 0.0)
