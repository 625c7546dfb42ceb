from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graphfeature.neighborhood import Neighborhood, merge, side_by_side
from tests.graphfeature.random_graphs import assert_same, graphs, shuffled
from tests.graphfeature.random_instances import instance_graphs
from tests.graphfeature.random_typed import typed_graphs

seeds = st.integers(0, 99)


def cut(graph: Neighborhood, rng: np.random.Generator) -> Neighborhood:
    """The graph with each node's list cut to some prefix, as another hop would have stored it."""
    kept = rng.integers(0, graph.edges.lengths + 1)  # of each node in each relation
    picked = graph.edges.prefix(np.arange(graph.num_nodes), limit=kept)
    return replace(graph, edges=graph.edges.take(picked.positions, offsets=picked.offsets))


@given(graphs() | typed_graphs() | instance_graphs())
def test_merging_with_itself_changes_nothing_but_roots(graph: Neighborhood):
    twice = merge([graph, graph])
    assert twice.roots.tolist() == [*graph.roots, *graph.roots]
    assert_same(replace(twice, roots=graph.roots), graph)


@given(graphs() | typed_graphs() | instance_graphs(), seeds)
def test_the_longest_list_of_a_node_wins(graph: Neighborhood, seed: int):
    rng = np.random.default_rng(seed)
    short = [shuffled(cut(graph, rng), rng) for _ in range(2)]
    merged = merge([short[0], shuffled(graph, rng), short[1]])
    assert_same(replace(merged, roots=graph.roots), graph)


@given(graphs() | typed_graphs() | instance_graphs(), seeds)
def test_merging_ignores_order_and_grouping(graph: Neighborhood, seed: int):
    rng = np.random.default_rng(seed)
    a, b, c = (replace(shuffled(cut(graph, rng), rng), roots=np.zeros(0, np.int64)) for _ in range(3))
    whole = merge([a, b, c])
    assert_same(merge([c, merge([b, a])]), whole)
    assert_same(merge([merge([a, c]), b]), whole)


@given(graphs() | typed_graphs() | instance_graphs(), seeds)
def test_roots_keep_their_order(graph: Neighborhood, seed: int):
    other = shuffled(graph, np.random.default_rng(seed))
    merged = merge([other, graph])
    expected = [*other.node_ids[other.roots], *graph.node_ids[graph.roots]]
    assert merged.node_ids[merged.roots].tolist() == expected


@given(graphs() | typed_graphs() | instance_graphs(), seeds)
def test_a_union_is_merged_like_its_parts(graph: Neighborhood, seed: int):
    rng = np.random.default_rng(seed)
    parts = [shuffled(cut(graph, rng), rng) for _ in range(3)]
    assert_same(merge([side_by_side(parts).neighborhood]), merge(parts))
