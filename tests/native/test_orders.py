"""The native core's orders are those of NumPy's sorts, and what it cannot do it refuses."""

from __future__ import annotations

import sys
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnnflow.graph.arrays import offsets_of
from gnnflow.graphfeature.blocks import _number
from gnnflow.infer.reads import number_rows
from gnnflow.native import (
    core,
    count_ranks,
    cut_pieces,
    find,
    group,
    number,
    number_sources,
    remark,
    stable_order,
    stable_sort,
    transpose,
)

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


@needs_native
@given(found=st.lists(st.integers(0, 8), max_size=30), known=st.lists(st.integers(0, 8), max_size=4, unique=True))
def test_nodes_are_numbered_in_the_order_they_are_met_as_without_the_core(found, known):
    results = []
    for way in (number, _number):
        row_of = np.full(9, -1, np.int32)
        row_of[known] = np.arange(len(known))
        rows, fresh = way(np.array(found, np.int32), row_of, first_row=len(known))
        assert list(dict.fromkeys(each for each in found if each not in known)) == fresh.tolist()
        results.append((rows.tolist(), row_of.tolist()))
    assert results[0] == results[1]


@needs_native
def test_a_node_outside_of_the_rows_is_refused():
    for outside in (-1, 3):
        with pytest.raises(IndexError):
            number(np.array([0, outside], np.int32), np.full(3, -1, np.int32), first_row=0)


def test_without_the_native_core_one_line_says_what_that_costs(monkeypatch):
    assert core() is None or remark() == ""
    monkeypatch.setattr(sys.modules["gnnflow.native.library"], "core", lambda: None)
    assert "several times as long" in remark()


@given(values=st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 9), max_size=40), times=st.integers(1, 60))
@example(values=[2**63 - 1, *range(0, 2**62, 2**57)], times=200)  # two digits are read at the rows
@example(values=[2**40, *range(40)], times=1 << 15)  # and one
def test_orders_of_integers_are_stable_sorts(values, times):
    numbers = np.array(values * times, np.int64)
    expected = np.argsort(numbers, kind="stable")
    np.testing.assert_array_equal(stable_order(numbers), expected)
    np.testing.assert_array_equal(stable_order(numbers.view(np.uint64) << np.uint64(1)), expected)
    ordered = stable_sort(numbers)
    np.testing.assert_array_equal(ordered.order, expected)
    np.testing.assert_array_equal(ordered.values, np.sort(numbers))


@needs_native
@given(groups=st.lists(st.integers(0, 4), max_size=60), kind=st.sampled_from(["int64", "float32", "uint16", "int8"]))
def test_grouped_rows_are_stable_sorts_by_group(groups, kind):
    columns = [np.arange(len(groups)).astype(kind), np.arange(len(groups))]
    bounds = np.cumsum([0, *np.bincount(groups, minlength=5)]) if groups else np.zeros(6, np.int64)
    order = np.argsort(groups, kind="stable")
    for made, column in zip(group(columns, np.array(groups, np.int64), bounds), columns, strict=True):
        np.testing.assert_array_equal(made, column[order])


@needs_native
@given(ids=st.sets(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50), max_size=40), seed=st.integers(0, 99))
def test_places_of_ids_are_found_and_others_are_not(ids, seed):
    rng = np.random.default_rng(seed)
    listed = rng.permutation(np.array([*ids], np.int64))
    wanted = np.r_[rng.choice(listed, 50) if len(listed) else [], np.arange(60)].astype(np.int64)
    places = {value: place for place, value in enumerate(listed.tolist())}
    assert find(listed, wanted).tolist() == [places.get(value, -1) for value in wanted.tolist()]


@needs_native
@given(degrees=st.lists(st.integers(0, 9), max_size=12), num_ranks=st.integers(1, 6), seed=st.integers(0, 99))
def test_pieces_are_a_stable_sort_of_each_targets_edges(degrees, num_ranks, seed):
    rng = np.random.default_rng(seed)
    ranks = rng.integers(0, num_ranks, 8)
    offsets, sources = offsets_of(np.array(degrees, np.int64)), rng.integers(0, 8, sum(degrees))
    order, bounds, begins = cut_pieces(offsets, sources, ranks, num_ranks=num_ranks)
    targets = np.repeat(np.arange(len(degrees)), degrees)
    np.testing.assert_array_equal(order, np.lexsort((ranks[sources], targets)))
    found = [
        [ranks[sources[order[begins[piece] : begins[piece + 1]]]].tolist() for piece in range(*ends)]
        for ends in pairwise(bounds)
    ]
    for target, pieces in enumerate(found):
        own = np.sort(ranks[sources[targets == target]])
        expected = [own[own == rank].tolist() for rank in dict.fromkeys([0, *own.tolist()])]
        assert pieces == expected
    counted = count_ranks(offsets, sources, ranks, num_ranks=num_ranks)
    np.testing.assert_array_equal(counted.edges, np.bincount(ranks[sources], minlength=num_ranks))
    pairs = np.unique(np.stack([ranks[sources], targets]), axis=1)
    np.testing.assert_array_equal(counted.targets, np.bincount(pairs[0], minlength=num_ranks))


@needs_native
@given(
    sources=st.lists(st.integers(0, 199), max_size=40),
    targets=st.lists(st.integers(0, 199), max_size=40, unique=True),
    beyond=st.integers(0, 70),
)
def test_sources_are_numbered_behind_the_targets_as_without_the_core(sources, targets, beyond):
    given_sources, given_targets = np.array(sources, np.int64), np.array(sorted(targets), np.int64)
    found = number_sources(given_sources, given_targets, num_nodes=200 + beyond)
    assert found.others.tolist() == sorted(set(sources) - set(targets))
    every = np.concatenate([given_targets, found.others])
    np.testing.assert_array_equal(every[found.rows], given_sources)
    with patch("gnnflow.infer.reads.number_sources", return_value=None):
        again = number_rows(given_sources, given_targets, num_nodes=200 + beyond)
    np.testing.assert_array_equal(found.others, again.others)
    np.testing.assert_array_equal(found.rows, again.rows)


@needs_native
@pytest.mark.parametrize(("sources", "targets"), [([3], [0]), ([-1], []), ([0], [3])])
def test_sources_outside_of_the_graph_are_refused(sources, targets):
    with pytest.raises(IndexError):
        number_sources(np.array(sources), np.array(targets, np.int64), num_nodes=3)
