"""Plans of graphs that are known: METIS and Louvain cut less than hash does, and stay even."""

from __future__ import annotations

import numpy as np
import pytest

from gnnflow.graph.hashing import hash_integers
from gnnflow.partition.balance import InducedGraph
from gnnflow.partition.louvain import _communities, _cut, _dealt, _too_large
from gnnflow.partition.metis import cut, subgraph
from gnnflow.partition.planning import shares_of
from gnnflow.partition.streaming import Stream, _level, chunk_bounds

NODES, GROUPS = 4000, 80


@pytest.fixture(scope="module")
def groups() -> np.ndarray:
    return np.random.default_rng(0).integers(0, GROUPS, NODES)


@pytest.fixture(scope="module")
def graph(groups: np.ndarray) -> InducedGraph:
    """A graph of groups: nine in ten edges stay in one."""
    rng = np.random.default_rng(1)
    order = np.argsort(groups, kind="stable")
    start, size = np.searchsorted(groups[order], np.arange(GROUPS)), np.bincount(groups)
    src = rng.integers(0, NODES, 20_000)
    inside = order[start[groups[src]] + rng.integers(0, 1 << 30, len(src)) % size[groups[src]]]
    dst = np.where(rng.random(len(src)) < 0.9, inside, rng.integers(0, NODES, len(src)))
    return InducedGraph.of(dst, src, num_nodes=NODES)


@pytest.fixture(scope="module")
def loads(graph: InducedGraph) -> np.ndarray:
    """Nodes, edges, and training targets, which the first half of the nodes are."""
    return np.stack([np.ones(NODES, np.int64), np.diff(graph.offsets), np.arange(NODES) < NODES // 2], axis=1)


def largest(loads: np.ndarray, owner: np.ndarray, *, parts: int) -> np.ndarray:
    held = np.stack([np.bincount(owner, each, minlength=parts) for each in loads.T])
    return held.max(1) / held.mean(1)


def test_metis_cuts_little_and_keeps_nodes_edges_and_targets_even(graph: InducedGraph, loads: np.ndarray) -> None:
    pytest.importorskip("pymetis", reason="pymetis is an extra: pip install 'gnnflow[metis]'")
    owner = cut(graph, loads, parts=8, imbalance=1.05, seed=3)
    assert np.all(largest(loads, owner, parts=8) <= 1.06)
    assert graph.cut(owner) < 0.35 * graph.cut(np.arange(NODES) % 8)
    np.testing.assert_array_equal(owner, cut(graph, loads, parts=8, imbalance=1.05, seed=3))


def test_with_one_load_it_is_what_pymetis_gives(graph: InducedGraph) -> None:
    pymetis = pytest.importorskip("pymetis", reason="pymetis is an extra: pip install 'gnnflow[metis]'")
    weights = np.diff(graph.offsets) + 1
    owner = cut(graph, weights[:, None], parts=6, imbalance=1.1, seed=5)
    options = pymetis.Options(seed=5, ufactor=100)
    adjacency = pymetis.CSRAdjacency(graph.offsets, graph.neighbors)
    _, expected = pymetis.part_graph(6, adjacency, vweights=weights, recursive=False, options=options)
    np.testing.assert_array_equal(owner, expected)


@pytest.mark.parametrize(
    ("nodes", "edges", "parts"), [(0, 0, 4), (1, 0, 4), (3, 3, 4), (5, 2, 4), (9, 0, 4), (40, 3, 8)]
)
def test_metis_takes_graphs_that_are_hardly_there(nodes: int, edges: int, parts: int) -> None:
    pytest.importorskip("pymetis", reason="pymetis is an extra: pip install 'gnnflow[metis]'")
    dst, src = np.random.default_rng(0).integers(0, max(nodes, 1), (2, edges))
    owner = cut(
        InducedGraph.of(dst, src, num_nodes=nodes), np.ones((nodes, 1), np.int64), parts=parts, imbalance=1.05, seed=0
    )
    assert owner.shape == (nodes,)
    assert np.all((owner >= 0) & (owner < parts))


def test_louvain_finds_the_groups_and_deals_them_evenly(
    graph: InducedGraph, groups: np.ndarray, loads: np.ndarray
) -> None:
    pytest.importorskip("networkit", reason="networkit is an extra: pip install 'gnnflow[louvain]'")
    keys, shares = hash_integers(np.arange(NODES)), shares_of(loads)
    found = _communities(graph, keys, resolution=1.0)
    pieces = _cut(graph, keys, found, shares, largest=0.25 / 8, resolution=1.0)
    owner = _dealt(graph, pieces, shares, parts=8, imbalance=1.05)
    assert np.all(largest(loads, owner, parts=8) <= 1.1)
    assert graph.cut(owner) < 0.5 * graph.cut(np.arange(NODES) % 8)
    np.testing.assert_array_equal(found, _communities(graph, keys, resolution=1.0))
    # nodes of a group lie in one community, but for strays
    count = found.max() + 1
    held = np.bincount(groups * count + found, minlength=GROUPS * count).reshape(GROUPS, count)
    assert held.max(1).sum() > 0.9 * NODES


def test_no_piece_of_a_community_is_too_large(graph: InducedGraph, loads: np.ndarray) -> None:
    pytest.importorskip("networkit", reason="networkit is an extra: pip install 'gnnflow[louvain]'")
    keys, shares = hash_integers(np.arange(NODES)), shares_of(loads)
    for limit in (0.05, 0.01, 0.001):
        pieces = _cut(graph, keys, np.zeros(NODES, np.int64), shares, largest=limit, resolution=1.0)
        assert np.mean(_too_large(pieces, shares, 2 * limit)) == 0


def test_threads_of_networkit_do_not_change_communities_and_stay_as_they_were(graph: InducedGraph) -> None:
    networkit = pytest.importorskip("networkit", reason="networkit is an extra: pip install 'gnnflow[louvain]'")
    keys, before = hash_integers(np.arange(NODES)), networkit.getMaxNumberOfThreads()
    found = []
    try:
        for threads in (1, 4):
            networkit.setNumberOfThreads(threads)
            found.append(_communities(graph, keys, resolution=1.0))
            assert networkit.getMaxNumberOfThreads() == threads
    finally:
        networkit.setNumberOfThreads(before)
    np.testing.assert_array_equal(*found)


def test_a_subgraph_has_the_pairs_that_join_two_of_its_nodes(graph: InducedGraph) -> None:
    nodes = np.arange(0, NODES, 7)
    found = subgraph(graph, nodes)
    first = np.repeat(np.arange(len(nodes)), np.diff(found.offsets))
    pairs = set(zip(nodes[first].tolist(), nodes[found.neighbors].tolist(), strict=True))
    whole = np.repeat(np.arange(NODES), np.diff(graph.offsets))
    expected = {(a, b) for a, b in zip(whole.tolist(), graph.neighbors.tolist(), strict=True) if a % 7 == b % 7 == 0}
    assert pairs == expected


def test_a_stream_cuts_less_than_hash_and_keeps_its_bounds(graph: InducedGraph, loads: np.ndarray) -> None:
    shares = shares_of(loads)
    stream = Stream(NODES, capacity=np.full((8, 3), 1.05 / 8))
    order = np.random.default_rng(0).permutation(NODES)
    for start, stop in zip(chunk_bounds(NODES)[:-1], chunk_bounds(NODES)[1:], strict=True):
        items = order[start:stop]
        lengths = graph.offsets[items + 1] - graph.offsets[items]
        stream.deal(items, shares[items], lengths, graph.neighbors_of(items))
    assert np.all(largest(loads, stream.owner, parts=8) <= 1.05 + 1e-6)
    assert graph.cut(stream.owner) < 0.7 * graph.cut(np.arange(NODES) % 8)


def test_an_item_goes_where_its_load_is_none_of_what_is_full() -> None:
    stream = Stream(4, capacity=np.array([[2.0, 1.0], [2.0, 1.0]]))
    none = np.zeros(2, np.int64)
    stream.deal(np.array([0, 1]), np.array([[1.0, 1.0], [1.0, 1.0]]), none, none[:0])
    stream.deal(np.array([2]), np.array([[1.0, 0.0]]), np.array([1]), np.array([1]))
    assert stream.owner[2] == stream.owner[1] != stream.owner[0]


def test_items_that_fit_nowhere_are_dealt_evenly() -> None:
    stream = Stream(100, capacity=np.full((4, 1), 0.01))
    none = np.zeros(100, np.int64)
    stream.deal(np.arange(100), np.full((100, 1), 0.01), none, none[:0])
    assert np.bincount(stream.owner, minlength=4).tolist() == [25] * 4


def test_a_level_fills_the_emptiest_first() -> None:
    np.testing.assert_allclose(_level(np.array([0.9, 0.5, 0.1]), 0.2), [0.2, 0, 0])
    np.testing.assert_allclose(_level(np.array([0.9, 0.5, 0.1]), 0.6), [0.5, 0.1, 0])
    np.testing.assert_allclose(_level(np.array([0.5, 0.5]), 2.0), [1.0, 1.0])
