"""The simulator of global-batch: what it counts is what is there, and its limits are where they should be."""

from __future__ import annotations

import numpy as np
import pytest
from globalbatch_scaling import Cluster, Costs, divide, enlarged, step_seconds
from simulator import Network

COSTS = Costs(per_row=1e-6, per_edge=1e-7, per_mirror=1e-6, row_bytes=512, layers=3, gradient_bytes=1000)
FAST = Cluster(Network(1e-9, 1e15))
NODES = 60
EDGES = np.random.default_rng(0).integers(0, NODES, (2, 400))


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_mirrors_are_distinct_sources_of_other_ranks(ranks):
    found = divide(*EDGES, COSTS, nodes=NODES, ranks=ranks)
    owners = np.repeat(np.arange(ranks), found.rows)
    read = {(owners[target], source) for source, target in EDGES.T.tolist() if owners[source] != owners[target]}
    assert found.rows.sum() == NODES
    assert found.edges.tolist() == np.bincount(owners[EDGES[1]], minlength=ranks).tolist()
    assert found.mirrors.tolist() == [sum(rank == reader for reader, _ in read) for rank in range(ranks)]
    assert found.sent.tolist() == [sum(owners[source] == rank for _, source in read) for rank in range(ranks)]


def test_one_rank_takes_what_it_computes():
    took = step_seconds(divide(*EDGES, COSTS, nodes=NODES, ranks=1), COSTS, FAST)
    assert took.step == pytest.approx(NODES * 1e-6 + 400e-7)
    assert took.exchange == 0


def test_rows_that_travel_longer_than_own_edges_take_are_waited_for():
    divided = divide(*EDGES, COSTS, nodes=NODES, ranks=4)
    slow = step_seconds(divided, COSTS, Cluster(Network(1e-9, 1e6)))
    most = np.maximum(divided.mirrors, divided.sent).max()
    assert slow.exchange == pytest.approx(5 * most * 512 / 1e6, rel=0.01)
    assert slow.step > slow.exchange > step_seconds(divided, COSTS, FAST).step


def test_a_graph_without_far_edges_scales_with_the_ranks():
    nodes = np.repeat(np.arange(1024), 50)
    seconds = [
        step_seconds(divide(nodes, nodes, COSTS, nodes=1024, ranks=ranks), COSTS, FAST).step for ranks in (1, 1024)
    ]
    assert seconds[0] / seconds[1] == pytest.approx(1024, rel=0.01)


def test_a_larger_graph_keeps_the_mirrors_of_an_edge():
    divided = divide(*EDGES, COSTS, nodes=NODES, ranks=4)
    large = enlarged(divided, nodes=6e6, edges=4e7)
    np.testing.assert_allclose(large.mirrors / large.edges, divided.mirrors / divided.edges, rtol=1e-4)
    assert large.rows.sum() == pytest.approx(6e6, rel=1e-4)
