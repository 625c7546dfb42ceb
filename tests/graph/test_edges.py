"""Prefixes of in-edges nest, and what is gathered keeps its weight and attributes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.edges import InEdges, edge_scale, join_relations, sample_scale

limits = st.one_of(st.none(), st.integers(0, 7))


@dataclass(frozen=True)
class Drawn:
    """In-edges, and rows of them in any order, some more than once."""

    edges: InEdges
    rows: np.ndarray


@st.composite
def in_edges(draw: st.DrawFn) -> Drawn:
    """Nodes with 0 to 6 in-edges each, with and without weight and attributes; no nodes at all occurs too."""
    lengths = np.array(draw(st.lists(st.integers(0, 6), max_size=8)), np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    total = int(lengths.sum())
    edges = InEdges(
        offsets_of(lengths),
        rng.integers(0, 100, total).astype(draw(st.sampled_from([np.int32, np.int64]))),
        weight=rng.random(total, np.float32) if draw(st.booleans()) else None,
        attributes=rng.random((total, 2), np.float32) if draw(st.booleans()) else None,
    )
    rows = draw(st.lists(st.integers(0, len(lengths) - 1), max_size=10)) if len(lengths) else []
    return Drawn(edges, np.array(rows, np.int64))


def positions(edges: InEdges, row: int) -> list[int]:
    return list(range(edges.offsets[row], edges.offsets[row + 1]))


@given(in_edges(), limits)
def test_a_prefix_is_each_rows_first_edges(drawn: Drawn, limit: int | None):
    picked = drawn.edges.prefix(drawn.rows, limit=limit)
    expected = [positions(drawn.edges, row)[:limit] for row in drawn.rows]
    assert picked.positions.tolist() == [position for each in expected for position in each]
    assert picked.counts.tolist() == [len(each) for each in expected]
    assert picked.offsets.tolist() == offsets_of(picked.counts).tolist()


@given(in_edges(), limits, limits)
def test_prefixes_nest(drawn: Drawn, first: int | None, second: int | None):
    """What a larger limit adds to a smaller one is picked without what was taken, and a smaller one adds nothing."""
    before = drawn.edges.prefix(drawn.rows, limit=first)
    more = drawn.edges.prefix(drawn.rows, limit=second, taken=before.counts)
    for i, row in enumerate(drawn.rows):
        own = slice(more.offsets[i], more.offsets[i + 1])
        assert more.positions[own].tolist() == positions(drawn.edges, row)[:second][before.counts[i] :]


@given(in_edges(), st.integers(0, 99))
def test_a_limit_per_row_is_that_rows_limit(drawn: Drawn, seed: int):
    limit = np.random.default_rng(seed).integers(0, 8, len(drawn.rows))
    picked = drawn.edges.prefix(drawn.rows, limit=limit)
    alone = [drawn.edges.prefix(drawn.rows[i : i + 1], limit=int(limit[i])) for i in range(len(limit))]
    assert picked.counts.tolist() == [int(each.counts[0]) for each in alone]
    assert picked.positions.tolist() == [position for each in alone for position in each.positions.tolist()]


@given(in_edges(), limits)
def test_taken_edges_keep_their_columns(drawn: Drawn, limit: int | None):
    edges = drawn.edges
    picked = edges.prefix(drawn.rows, limit=limit)
    taken = edges.take(picked.positions, offsets=picked.offsets)
    assert (taken.num_targets, taken.num_edges) == (len(drawn.rows), len(picked.positions))
    assert taken.lengths.tolist() == picked.counts.tolist()
    for name in ("sources", "weight", "attributes"):
        old, new = getattr(edges, name), getattr(taken, name)
        assert (old is None) == (new is None)
        if old is not None:
            np.testing.assert_array_equal(new, old[picked.positions], strict=True)


@given(in_edges())
def test_taken_edges_may_have_their_sources_numbered_anew(drawn: Drawn):
    picked = drawn.edges.prefix(drawn.rows, limit=None)
    sources = np.arange(len(picked.positions))
    assert drawn.edges.take(picked.positions, offsets=picked.offsets, sources=sources).sources is sources


@given(in_edges(), limits, limits)
def test_taking_a_prefix_of_a_prefix_is_taking_the_smaller(drawn: Drawn, first: int | None, second: int | None):
    every = np.arange(drawn.edges.num_targets)

    def cut(edges: InEdges, limit: int | None) -> InEdges:
        picked = edges.prefix(every, limit=limit)
        return edges.take(picked.positions, offsets=picked.offsets)

    smaller = first if second is None or (first is not None and first < second) else second
    twice, once = cut(cut(drawn.edges, first), second), cut(drawn.edges, smaller)
    assert twice.offsets.tolist() == once.offsets.tolist()
    assert twice.sources.tolist() == once.sources.tolist()


def test_the_scale_of_a_sample_is_full_degree_over_edges_kept():
    scale = sample_scale(np.array([10, 3, 0, 7]), np.array([4, 3, 0, 0]))
    np.testing.assert_array_equal(scale, np.array([2.5, 1, 1, 1], np.float32), strict=True)


def test_the_scale_of_an_edge_is_one_over_the_chance_that_it_came_before_the_first_left_out():
    edges = InEdges(
        offsets=np.array([0, 2, 2, 5]),
        sources=np.zeros(5, np.int64),
        weight=np.array([2, 1, 3, 1, 0], np.float32),
        next_arrival=np.array([0.1, 0.5, 0.1, 0.2, np.inf]),
    )
    expected = [1 / (1 - np.exp(-2 * 0.5)), 1 / (1 - np.exp(-0.5)), 1, 1, 1]
    np.testing.assert_allclose(edge_scale(edges), np.array(expected, np.float32), rtol=1e-6)
    assert edge_scale(edges.take(np.zeros(0, np.int64), offsets=np.zeros(2, np.int64))).tolist() == []


def test_scales_are_finite_for_any_weight():
    edges = InEdges(
        offsets=np.array([0, 1, 2, 3]),
        sources=np.zeros(3, np.int64),
        weight=np.array([1e-45, 3e38, 1], np.float32),
        next_arrival=np.array([1e30, 1e-54, 1e-16]),
    )
    assert np.isfinite(edge_scale(edges)).all()


@st.composite
def instances(draw: st.DrawFn) -> Drawn:
    """The same edges, each of which comes from 0 to 3 leaves, or all from as many."""
    drawn = draw(in_edges())
    edges = drawn.edges
    counts = st.lists(st.integers(0, 3), min_size=100, max_size=100) | st.integers(0, 3).map(lambda each: [each] * 100)
    leaves = offsets_of(np.array(draw(counts))[: edges.num_edges])
    sources = np.random.default_rng(1).integers(0, 100, int(leaves[-1]))
    return Drawn(replace(edges, sources=sources, leaves=leaves), drawn.rows)


def leaves_of(edges: InEdges) -> list[list[int]]:
    """The leaves of each edge, one edge after the other."""
    assert edges.leaves is not None
    ends = zip(edges.leaves[:-1], edges.leaves[1:], strict=True)
    return [edges.sources[start:end].tolist() for start, end in ends]


@given(instances(), limits)
def test_taken_edges_keep_their_leaves(drawn: Drawn, limit: int | None):
    edges = drawn.edges
    picked = edges.prefix(drawn.rows, limit=limit)
    taken = edges.take(picked.positions, offsets=picked.offsets)
    assert taken.num_edges == len(picked.positions)
    assert leaves_of(taken) == [leaves_of(edges)[position] for position in picked.positions]
    assert edges.sources_of(picked.positions).tolist() == taken.sources.tolist()
    number = edges.per_leaf(picked.positions, np.arange(taken.num_edges))
    assert [taken.sources[number == each].tolist() for each in range(taken.num_edges)] == leaves_of(taken)
    sizes = [len(each) for each in leaves_of(taken)]
    assert edges.source_offsets(picked).tolist() == [sum(sizes[:end]) for end in picked.offsets.tolist()]


@given(instances())
def test_an_edge_without_leaves_is_beside_others_its_own_single_leaf(drawn: Drawn):
    deep = drawn.edges
    flat = replace(deep, sources=np.arange(deep.num_edges), leaves=None)
    both = join_relations([deep, flat])
    assert leaves_of(both) == leaves_of(deep) + [[each] for each in range(deep.num_edges)]
    assert leaves_of(both.relation(0)) == leaves_of(deep)
    assert leaves_of(both.relation(1)) == [[each] for each in range(deep.num_edges)]
