from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.batch import MiniBatch
from gnnflow.graph.sampling import EVERY_EDGE
from gnnflow.graphfeature.blocks import build_minibatch
from gnnflow.graphfeature.decode import decode_rows
from gnnflow.graphfeature.encode import encode_rows
from gnnflow.graphfeature.neighborhood import Neighborhood, side_by_side
from gnnflow.graphfeature.times import ALL_EARLIER, build_before, cuts, late_edge, latest_edge
from tests.fanouts import sampling_of
from tests.graphfeature.random_graphs import assert_same, graphs


def timed(graph: Neighborhood, seed: int) -> Neighborhood:
    """The graph with a number for each node, and a time for each edge; equal times abound."""
    rng = np.random.default_rng(seed)
    time = rng.integers(0, 5, graph.num_edges)
    features = replace(graph.features, width=1, dense=rng.random((graph.num_nodes, 1), np.float32))
    features = replace(features, offsets=None, index=None, value=None)
    return replace(graph, features=features, edges=replace(graph.edges, time=time))


def summed_slowly(graph: Neighborhood, node: int, time: int, fanouts: list[int | None]) -> float:
    """What a node is after one layer per fan-out: itself and the scaled sum of its in-edges before the time."""
    assert graph.features.dense is not None
    assert graph.edges.time is not None
    if not fanouts:
        return float(graph.features.dense[node, 0])
    start, stop = graph.edges.offsets[node : node + 2]
    taken = list(range(start, stop))[: fanouts[0]]
    scale = 1.0 if fanouts[0] is None or not taken else (stop - start) / len(taken)
    # the targets' own in-edges use the first fan-out, their neighbours' the second
    total = summed_slowly(graph, node, time, fanouts[1:])
    for edge in taken:
        if graph.edges.time[edge] < time:
            total += scale * summed_slowly(graph, int(graph.edges.sources[edge]), time, fanouts[1:])
    return total


def summed(batch: MiniBatch) -> np.ndarray:
    """The same from the blocks of a batch."""
    h = batch.features.dense[:, 0].astype(np.float64)  # type: ignore[index]
    for block in batch.blocks:
        target = np.repeat(np.arange(block.num_targets), block.edges.lengths)
        scale = np.ones(block.num_targets) if block.sample_scale is None else block.sample_scale
        h = h[: block.num_targets] + scale * np.bincount(target, h[block.edges.sources], minlength=block.num_targets)
    return np.asarray(h)


@given(graphs(), st.integers(0, 99), st.sampled_from([None, [3, 2], [2, 2], [1, 4]]))
def test_every_target_sees_its_own_earlier_edges_and_no_others(
    graph: Neighborhood, seed: int, fanouts: list[int] | None
) -> None:
    graph, rng = timed(graph, seed), np.random.default_rng(seed)
    # nodes at times, each once: the same node at several of them
    asked = np.unique(rng.integers(0, [graph.num_nodes, 7], (rng.integers(1, 9), 2)), axis=0)
    built = build_before(graph, asked[:, 0], asked[:, 1], sampling=sampling_of(fanouts), num_layers=2)
    slow = [summed_slowly(graph, int(node), int(time), list(fanouts or [None, None])) for node, time in asked]
    np.testing.assert_allclose(summed(built.batch), slow, rtol=1e-5)
    np.testing.assert_array_equal(built.batch.targets, graph.node_ids[asked[:, 0]])
    assert late_edge(built) is None


@given(graphs(), st.integers(0, 99))
def test_after_every_edge_the_blocks_say_what_they_say_without_times(graph: Neighborhood, seed: int) -> None:
    graph = timed(graph, seed)
    rows = np.random.default_rng(seed).permutation(graph.num_nodes)[:3]
    built = build_before(graph, rows, np.full(len(rows), ALL_EARLIER), sampling=sampling_of([3, 2]), num_layers=2)
    plain = build_minibatch(graph, rows, sampling=sampling_of([3, 2]), num_layers=2)
    np.testing.assert_allclose(summed(built.batch), summed(plain), rtol=1e-6)
    assert [block.num_edges for block in built.batch.blocks] == [block.num_edges for block in plain.blocks]


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-7, 7), min_size=1))
def test_a_cut_is_after_the_same_edges_as_its_time(edges: list[int], times: list[int]) -> None:
    found = cuts(np.unique(np.array(edges, np.int64)), np.array(times))
    for time, cut in zip(times, found.tolist(), strict=True):
        assert [edge < time for edge in edges] == [edge < cut for edge in edges]


def test_times_between_which_no_edge_lies_share_their_rows() -> None:
    found = cuts(np.array([10, 20]), np.array([1, 10, 11, 19, 20, 21, 99]))
    assert found.tolist() == [10, 10, 20, 20, 20, ALL_EARLIER, ALL_EARLIER]


@given(graphs(min_nodes=2), st.integers(0, 99))
def test_an_edge_that_is_not_earlier_is_found_and_named(graph: Neighborhood, seed: int) -> None:
    graph = timed(graph, seed)
    rows = np.arange(graph.num_nodes)
    built = build_before(graph, rows, np.full(len(rows), ALL_EARLIER), sampling=EVERY_EDGE, num_layers=1)
    assert graph.edges.time is not None
    late = late_edge(replace(built, cuts=np.full(len(rows), 3)))
    targets = graph.node_ids[np.repeat(rows, graph.edges.lengths)]
    edges = set(zip(graph.node_ids[graph.edges.sources], targets, graph.edges.time, strict=True))
    assert (late is None) == (not any(time >= 3 for _, _, time in edges))
    if late is not None:
        assert late.time >= 3
        assert (late.source, late.target, late.time) in edges


@given(graphs(), st.integers(0, 99))
def test_the_latest_edge_is_named_with_its_ends(graph: Neighborhood, seed: int) -> None:
    graph = timed(graph, seed)
    targets = graph.node_ids[np.repeat(np.arange(graph.num_nodes), graph.edges.lengths)]
    assert graph.edges.time is not None
    edges = list(zip(graph.node_ids[graph.edges.sources], targets, graph.edges.time, strict=True))
    found = latest_edge(graph)
    assert (found is None) == (not edges)
    if found is not None:
        assert found.time == max(time for _, _, time in edges)
        assert (found.source, found.target, found.time) in edges


@given(graphs(), st.integers(0, 99))
def test_times_of_edges_come_back_from_a_graph_feature(graph: Neighborhood, seed: int) -> None:
    rows = side_by_side([timed(graph, seed)])
    assert_same(decode_rows(encode_rows(rows)).neighborhood.edges.time, rows.neighborhood.edges.time)
