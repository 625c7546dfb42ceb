from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.arrays import KeyArray, offsets_of
from gnnflow.sampling import TopK, top_k, top_k_ungrouped

# Few distinct values, some far apart only in the bits that share a word with the target, make ties at every
# level.
words = st.sampled_from([0, 1, 2, 1 << 20, (1 << 20) + 1, 1 << 63, (1 << 64) - 1])
edge_lists = st.lists(st.tuples(st.integers(0, 5), words, words), max_size=60)
limits = st.one_of(st.none(), st.integers(0, 8))
Edge = tuple[int, int, int]


def arrays(edges: list[Edge]) -> tuple[np.ndarray, KeyArray, KeyArray]:
    targets = np.array([e[0] for e in edges], np.int64)
    return targets, np.array([e[1] for e in edges], np.uint64), np.array([e[2] for e in edges], np.uint64)


def chosen(edges: list[Edge], limit: int | None) -> list[Edge]:
    targets, priority, tie = arrays(edges)
    picked = top_k_ungrouped(targets, priority, num_targets=6, tie=tie, limit=limit)
    return [edges[i] for i in picked.edges]


def definition(edges: list[Edge], limit: int | None) -> list[Edge]:
    kept = []
    for target in range(6):
        kept += sorted(e for e in edges if e[0] == target)[:limit]
    return kept


@given(edge_lists, limits)
def test_keeps_each_targets_smallest_in_order(edges: list[Edge], limit: int | None):
    assert chosen(edges, limit) == definition(edges, limit)


@given(edge_lists, edge_lists, edge_lists, limits)
def test_pieces_merge_exactly(a: list[Edge], b: list[Edge], c: list[Edge], limit: int | None):
    whole = chosen(a + b + c, limit)
    assert chosen(chosen(a, limit) + chosen(b, limit) + chosen(c, limit), limit) == whole
    assert chosen(chosen(c, limit) + chosen(chosen(b, limit) + a, limit), limit) == whole


@given(edge_lists, st.integers(0, 8), st.integers(0, 8))
def test_fanouts_nest(edges: list[Edge], small: int, extra: int):
    targets, priority, tie = arrays(edges)
    narrow = top_k_ungrouped(targets, priority, num_targets=6, tie=tie, limit=small)
    wide = top_k_ungrouped(targets, priority, num_targets=6, tie=tie, limit=small + extra)
    for target in range(6):
        prefix = within(wide, target)[:small]
        assert within(narrow, target) == prefix


@given(edge_lists, limits)
def test_grouped_and_ungrouped_agree(edges: list[Edge], limit: int | None):
    edges = sorted(edges, key=lambda e: e[0])
    targets, priority, tie = arrays(edges)
    grouped = top_k(offsets_of(np.bincount(targets, minlength=6)), priority, tie=tie, limit=limit)
    ungrouped = top_k_ungrouped(targets, priority, num_targets=6, tie=tie, limit=limit)
    assert grouped.edges.tolist() == ungrouped.edges.tolist()
    assert grouped.offsets.tolist() == ungrouped.offsets.tolist()


def test_equal_priorities_without_a_tie_keep_input_order():
    picked = top_k(np.array([0, 300, 303]), np.zeros(303, np.uint64), limit=4)
    assert picked.edges.tolist() == [0, 1, 2, 3, 300, 301, 302]
    assert picked.offsets.tolist() == [0, 4, 7]


def test_slices_do_not_show():
    rng = np.random.default_rng(5)
    degree = np.append(rng.integers(0, 9, 90_000), [300_000, 0, 2])
    offsets = offsets_of(degree)
    targets = np.repeat(np.arange(len(degree)), degree)
    priority = rng.integers(0, 1 << 40, len(targets), dtype=np.uint64)
    picked = top_k(offsets, priority, limit=5)
    exact = np.lexsort((priority, targets))
    rank = np.arange(len(targets)) - offsets[targets]
    np.testing.assert_array_equal(picked.edges, exact[rank < 5])


def within(selection: TopK, target: int) -> list[int]:
    return selection.edges[selection.offsets[target] : selection.offsets[target + 1]].tolist()
