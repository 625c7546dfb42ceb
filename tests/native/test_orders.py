"""The native core's orders are those of NumPy's sorts, and what it cannot do it refuses."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.arrays import offsets_of
from gnnflow.native import core, remark, transpose

needs_native = pytest.mark.skipif(core() is None, reason="the native core was not built: no C compiler")


@needs_native
@given(degrees=st.lists(st.integers(0, 6), max_size=12), num_sources=st.integers(1, 9), seed=st.integers(0, 99))
def test_edges_by_source_are_a_stable_sort_by_source(degrees, num_sources, seed):
    offsets = offsets_of(np.array(degrees, np.int64))
    sources = np.random.default_rng(seed).integers(num_sources, size=offsets[-1])
    found = transpose(offsets, sources, num_sources=num_sources)
    order = np.argsort(sources, kind="stable")
    np.testing.assert_array_equal(found.edges, order)
    np.testing.assert_array_equal(found.targets, np.repeat(np.arange(len(degrees)), degrees)[order])
    np.testing.assert_array_equal(found.offsets, offsets_of(np.bincount(sources, minlength=num_sources)))


@needs_native
@pytest.mark.parametrize(
    ("offsets", "sources"), [([0, 1], [3]), ([0, 1], [-1]), ([0, 2], [0]), ([1, 2], [0]), ([0, 2, 1], [0])]
)
def test_edges_that_lead_outside_are_refused(offsets, sources):
    with pytest.raises(IndexError):
        transpose(np.array(offsets), np.array(sources), num_sources=3)


def test_without_the_native_core_one_line_says_what_that_costs(monkeypatch):
    assert core() is None or remark() == ""
    monkeypatch.setattr(sys.modules["gnnflow.native.library"], "core", lambda: None)
    assert "up to three times as long" in remark()
