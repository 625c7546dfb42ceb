"""Whole numbers in a file are those that were put there, in the fewest bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.train.streamed.packed import PLAIN, Coding

ENDS = st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**31 - 1])
NUMBERS = st.lists(st.one_of(ENDS, st.integers(-(2**31), 2**31 - 1), st.integers(0, 300)), max_size=20)


@given(numbers=NUMBERS, ascending=st.booleans(), plain=st.booleans())
def test_numbers_come_back(numbers, ascending, plain):
    held = np.array(sorted(numbers) if ascending else numbers, np.int64)
    coding = PLAIN if plain else Coding.of(held)
    run = coding.coded(held)
    assert run.dtype == np.int32
    for dtype in (np.int32, np.int64):
        found = coding.decoded(run, len(held), dtype)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, held)


@pytest.mark.parametrize(
    ("numbers", "coding"),
    [
        ([3, 0, 255], Coding(1)),
        ([3, 0, 256], Coding(2)),
        ([3, 0, 65_535], Coding(2)),
        ([3, 0, 65_536], Coding(4)),
        ([0, 255, 510, 70_000], Coding(4)),
        ([0, 255, 510, 70_000 - 5000], Coding(2)),
        ([0, 200_000, 200_255], Coding(4)),
        ([0, 0, 250, 500, 750, 1000], Coding(1, are_steps=True)),
        ([*range(0, 100_000, 300)], Coding(2, are_steps=True)),
        ([-1, 0, 5], Coding(4)),
        ([], Coding(1)),
    ],
)
def test_the_fewest_bytes_are_taken(numbers, coding):
    held = np.array(numbers, np.int64)
    assert Coding.of(held) == coding
    assert coding.coded(held).nbytes == -(-len(held) * coding.num_bytes // 4) * 4
