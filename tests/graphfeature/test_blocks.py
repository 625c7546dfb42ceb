from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.graph.sampling import EVERY_EDGE, Fanout
from gnnflow.graphfeature.blocks import build_in_place, build_minibatch, extract_rows, new_scratch
from gnnflow.graphfeature.neighborhood import Neighborhood, merge
from tests.fanouts import sampling_of
from tests.graphfeature.random_graphs import assert_same, graphs, shuffled
from tests.graphfeature.random_instances import instance_graphs, sources_of
from tests.graphfeature.random_typed import typed_graphs, untyped

Fanouts = list[Fanout] | None
Drawn = tuple[Neighborhood, Fanouts]
numbers = st.integers(0, 7)
fanouts_of = st.one_of(st.none(), st.lists(numbers, min_size=3, max_size=3))
by_relation_of = st.one_of(fanouts_of, st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=3, max_size=3))
"""Fan-outs, and those of graphs with four relations."""
any_graphs = st.one_of(
    st.tuples(graphs(), fanouts_of),
    st.tuples(typed_graphs(), by_relation_of),
    st.tuples(instance_graphs(), fanouts_of),
)
"""Graphs with and without types, and with edges that have leaves, each with fan-outs of its own."""


def rows_of(graph: Neighborhood, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.permutation(graph.num_nodes)[: rng.integers(1, graph.num_nodes + 1)]


def in_edges(graph: Neighborhood, row: int, limit: Fanout | None, relation: int = 0) -> list[int]:
    """The definition: a node's first in-edges in a relation."""
    row += relation * graph.num_nodes
    own = limit[relation] if isinstance(limit, tuple) else limit
    return list(range(graph.edges.offsets[row], graph.edges.offsets[row + 1]))[:own]


def definition(graph: Neighborhood, rows: Sequence[int], limits: Sequence[Fanout | None]) -> tuple[list, list[int]]:
    """The blocks from the last layer to the first as (computed nodes, their edges), and all nodes in row order.

    Edges are a list for each node in the first relation, then for each in the second, and so on.
    """
    nodes, layers = list(rows), []
    for limit in limits:
        edges = [in_edges(graph, row, limit, r) for r in range(graph.edges.num_relations) for row in nodes]
        layers.append((list(nodes), edges))
        for each in edges:
            for source in (source for edge in each for source in sources_of(graph.edges, edge)):
                if source not in nodes:
                    nodes.append(source)
    return layers, nodes


@given(any_graphs, st.integers(0, 99), st.integers(1, 3))
def test_blocks_follow_the_definition(drawn: Drawn, seed: int, num_layers: int):
    graph, fanouts = drawn
    rows = rows_of(graph, seed)
    fanouts = None if fanouts is None else fanouts[:num_layers]
    labels = np.arange(len(rows))
    batch = build_minibatch(graph, rows, sampling=sampling_of(fanouts), num_layers=num_layers, labels=labels)
    layers, nodes = definition(graph, rows.tolist(), fanouts or [None] * num_layers)

    assert_same(batch.nodes, graph.degrees.take(np.array(nodes)))
    assert_same(batch.features, graph.features.take(np.array(nodes)))
    assert batch.targets.tolist() == graph.node_ids[rows].tolist()
    assert batch.labels is labels
    assert len(batch.blocks) == num_layers
    for block, (computed, edges) in zip(reversed(batch.blocks), layers, strict=True):
        flat = np.array([edge for each in edges for edge in each], np.int64)
        assert block.num_targets == len(computed)
        assert_same(block.edges.offsets, offsets_of(np.array([len(each) for each in edges], np.int64)))
        sources = [sources_of(graph.edges, edge) for edge in flat.tolist()]
        assert_same(block.edges.sources, np.array([nodes.index(s) for own in sources for s in own], np.int64))
        leaves = None if graph.edges.leaves is None else offsets_of(np.array([len(own) for own in sources], np.int64))
        assert_same(block.edges.leaves, leaves)
        weight, attributes = graph.edges.weight, graph.edges.attributes
        assert_same(block.edges.weight, None if weight is None else weight[flat])
        assert_same(block.edges.attributes, None if attributes is None else attributes[flat])
    for earlier, later in zip(batch.blocks, batch.blocks[1:], strict=False):
        assert later.num_sources == earlier.num_targets
    assert batch.blocks[0].num_sources == len(nodes)


@given(any_graphs, st.integers(0, 99))
def test_scale_is_full_degree_over_edges_kept(drawn: Drawn, seed: int):
    graph, fanouts = drawn
    batch = build_minibatch(graph, rows_of(graph, seed), sampling=sampling_of(fanouts), num_layers=3)
    for block in batch.blocks:
        if fanouts is None:
            assert block.sample_scale is None
            continue
        degree = batch.nodes.in_degree[: block.num_targets].T.ravel()
        pairs = zip(degree.tolist(), block.edges.lengths.tolist(), strict=True)
        expected = np.array([full / kept if kept else 1 for full, kept in pairs], np.float32)
        assert_same(block.sample_scale, expected)


@given(any_graphs, st.integers(0, 99))
def test_scratch_serves_again_and_again(drawn: Drawn, seed: int):
    graph, fanouts = drawn
    scratch = new_scratch(graph.num_nodes + 3)
    rows = rows_of(graph, seed)
    for part in (rows, rows[::-1], rows[:1]):
        shared = build_minibatch(graph, part, sampling=sampling_of(fanouts), num_layers=3, scratch=scratch)
        assert_same(shared, build_minibatch(graph, part, sampling=sampling_of(fanouts), num_layers=3))


@given(graphs(arrives=True), st.integers(0, 99), fanouts_of)
def test_weighted_samples_scale_each_edge_by_the_first_that_was_left_out(
    graph: Neighborhood, seed: int, fanouts: Fanouts
):
    weighted = replace(graph.edges, weight=np.ones(graph.num_edges, np.float32))
    graph = replace(graph, edges=weighted)
    batch = build_minibatch(graph, rows_of(graph, seed), sampling=sampling_of(fanouts, "weighted"), num_layers=3)
    for block in batch.blocks:
        assert block.sample_scale is None
        if fanouts is None:
            assert block.edge_scale is None
            continue
        for target in range(block.num_targets):
            mine = slice(*block.edges.offsets[target : target + 2])
            tau = block.edges.next_arrival[mine][-1:]
            np.testing.assert_allclose(
                block.edge_scale[mine],
                np.repeat(1 / (1 - np.exp(-tau)), len(tau) and mine.stop - mine.start),
                rtol=1e-6,
            )


def test_top_k_is_not_scaled():
    batch = build_minibatch(path(), np.array([2, 0]), sampling=sampling_of([1, 1], "top_k"), num_layers=2)
    assert all(block.sample_scale is None and block.edge_scale is None for block in batch.blocks)


def test_fanout_zero_leaves_only_the_targets():
    batch = build_minibatch(path(), np.array([2, 0]), sampling=sampling_of([0, 0]), num_layers=2)
    assert [block.num_edges for block in batch.blocks] == [0, 0]
    assert [block.num_sources for block in batch.blocks] == [2, 2]
    assert [block.sample_scale.tolist() for block in batch.blocks] == [[1, 1], [1, 1]]


def test_repeated_targets_are_refused_and_scratch_survives():
    scratch = new_scratch(3)
    with pytest.raises(AssertionError, match="distinct"):
        build_minibatch(path(), np.array([1, 1]), sampling=EVERY_EDGE, num_layers=1, scratch=scratch)
    assert scratch.tolist() == [-1, -1, -1]


def test_a_neighbourhood_of_too_few_hops_is_refused():
    one_hop = extract_rows(path(), np.array([2]), sampling=EVERY_EDGE, num_layers=1).neighborhood
    with pytest.raises(AssertionError, match="fewer hops"):
        build_minibatch(one_hop, one_hop.roots, sampling=EVERY_EDGE, num_layers=2)


@given(any_graphs, st.integers(0, 99), st.integers(1, 3))
def test_extracted_rows_give_the_blocks_of_the_whole(drawn: Drawn, seed: int, num_layers: int):
    graph, fanouts = drawn
    rows = rows_of(graph, seed)
    fanouts = None if fanouts is None else fanouts[:num_layers]
    extracted = extract_rows(graph, rows, sampling=sampling_of(fanouts), num_layers=num_layers)
    assert len(extracted) == len(rows)
    merged = merge([extracted.neighborhood])
    whole = build_minibatch(graph, rows, sampling=sampling_of(fanouts), num_layers=num_layers)
    assert_same(build_minibatch(merged, merged.roots, sampling=sampling_of(fanouts), num_layers=num_layers), whole)


@given(any_graphs, st.integers(0, 99), st.integers(1, 3))
def test_extracted_rows_hold_what_is_needed_and_no_more(drawn: Drawn, seed: int, num_layers: int):
    fanouts = drawn[1]
    graph = shuffled(drawn[0], np.random.default_rng(seed))
    rows = rows_of(graph, seed)
    limits = [None] * num_layers if fanouts is None else fanouts[:num_layers]
    extracted = extract_rows(graph, rows, sampling=sampling_of(fanouts), num_layers=num_layers)
    union = extracted.neighborhood
    for i, row in enumerate(rows.tolist()):
        layers, nodes = definition(graph, [row], limits)
        relations = range(graph.edges.num_relations)
        kept = {
            (n, r): max(len(e[r * len(c) + c.index(n)]) for c, e in layers if n in c)
            for c, _ in layers
            for n in c
            for r in relations
        }
        start, stop = extracted.node_offsets[i : i + 2]
        assert union.node_ids[start:stop].tolist() == graph.node_ids[sorted(nodes)].tolist()
        assert union.node_ids[union.roots[i]] == graph.node_ids[row]
        assert start <= union.roots[i] < stop
        for (place, node), r in product(enumerate(sorted(nodes), start), relations):
            low, high = union.edges.relation(r).offsets[place : place + 2]
            found = [union.node_ids[sources_of(union.edges.relation(r), e)].tolist() for e in range(low, high)]
            expected = in_edges(graph, node, kept.get((node, r), 0), r)
            assert found == [graph.node_ids[sources_of(graph.edges, edge)].tolist() for edge in expected]


@given(typed_graphs(), st.integers(0, 99), fanouts_of)
def test_a_relation_of_a_block_is_the_block_of_the_relation(graph: Neighborhood, seed: int, fanouts: Fanouts):
    rows = rows_of(graph, seed)
    batch = build_minibatch(graph, rows, sampling=sampling_of(fanouts and fanouts[:1]), num_layers=1)
    for number in range(4):
        alone = build_minibatch(
            untyped(graph, number), rows, sampling=sampling_of(fanouts and fanouts[:1]), num_layers=1
        )
        ours, theirs = batch.blocks[0].relation(number), alone.blocks[0]
        assert_same(ours.edges.offsets, theirs.edges.offsets)
        assert_same(ours.sample_scale, theirs.sample_scale)
        assert_same(ours.edges.weight, theirs.edges.weight)


@given(any_graphs, st.integers(0, 99))
def test_blocks_built_in_place_are_the_same(drawn: Drawn, seed: int):
    graph, fanouts = drawn
    rows = rows_of(graph, seed)
    batch = build_minibatch(graph, rows, sampling=sampling_of(fanouts), num_layers=3)
    placed = build_in_place(graph, rows, sampling=sampling_of(fanouts), num_layers=3)
    assert_same(placed.blocks, batch.blocks[1:])
    first = batch.blocks[0].edges
    nodes = graph.node_ids[placed.first.edges.sources]
    assert_same(replace(placed.first.edges, sources=first.sources), first)
    assert_same(graph.degrees.take(placed.rows), placed.nodes)
    all_nodes = np.zeros(batch.blocks[0].num_sources, np.int64)
    all_nodes[first.sources] = nodes
    assert_same(all_nodes[first.sources], nodes)


@given(graphs() | typed_graphs() | instance_graphs())
def test_neighbourhoods_side_by_side_share_nothing(graph: Neighborhood):
    extracted = extract_rows(graph, np.arange(graph.num_nodes), sampling=EVERY_EDGE, num_layers=2)
    owner = np.repeat(np.arange(len(extracted)), np.diff(extracted.node_offsets))
    union = extracted.neighborhood
    target = np.repeat(np.tile(owner, union.edges.num_relations), union.edges.lengths)
    assert np.array_equal(owner[union.edges.sources], np.repeat(target, union.edges.leaf_counts))


def path() -> Neighborhood:
    """0 -> 1 -> 2."""
    in_degree = np.array([0, 1, 1])
    return Neighborhood(
        roots=np.array([2]),
        node_ids=np.array([10, 11, 12]),
        degrees=Degrees(in_degree, in_degree[::-1], in_degree.astype(np.float32)),
        features=Features(0, dense=np.zeros((3, 0), np.float32)),
        edges=InEdges(offsets_of(in_degree), np.array([0, 1], np.int32)),
    )
