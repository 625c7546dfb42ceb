"""Partitions of even cost: what is moved, and what stays where it is."""

from __future__ import annotations

import numpy as np
import pytest

from gnnflow.graph.hashing import hash_integers
from gnnflow.partition.balance import InducedGraph, balance, balance_factor


def communities(number, size, *, seed=0, links=6, bridges=0.05):
    """Return a graph of communities that few edges join, and the community of each node."""
    rng = np.random.default_rng(seed)
    num_nodes = number * size
    community = np.repeat(np.arange(number), size)
    first = np.repeat(np.arange(num_nodes), links)
    near = community[first] * size + rng.integers(0, size, len(first))
    second = np.where(rng.random(len(first)) < bridges, rng.integers(0, num_nodes, len(first)), near)
    return InducedGraph.of(first, second, num_nodes=num_nodes), community


def balanced(graph, cost, owner, parts, **options):
    keys = hash_integers(np.arange(graph.num_nodes))
    return balance(graph, cost, owner, num_partitions=parts, keys=keys, **{"threshold": 1.05, **options})


def test_a_pair_is_there_once_in_both_directions_and_a_node_is_not_its_own_leaf():
    graph = InducedGraph.of(np.array([0, 0, 1, 2, 2]), np.array([1, 1, 0, 2, 3]), num_nodes=5)
    np.testing.assert_array_equal(graph.offsets, [0, 1, 2, 3, 4, 4])
    np.testing.assert_array_equal(graph.neighbors, [1, 0, 3, 2])
    assert graph.cut(np.array([0, 1, 0, 0, 0])) == 1


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_skewed_costs_are_balanced_below_the_threshold(parts):
    graph, community = communities(24, 200)
    cost = np.random.default_rng(1).pareto(1.8, graph.num_nodes) + 0.01
    owner = community % parts
    owner[: graph.num_nodes // 4] = 0
    assert balance_factor(cost, owner, num_partitions=parts) > 1.2
    result = balanced(graph, cost, owner, parts)
    assert balance_factor(cost, result.owner, num_partitions=parts) <= 1.05
    assert sum(move.added_cut for move in result.moves) == graph.cut(result.owner) - graph.cut(owner)


def test_partitions_that_are_even_stay_as_they_are():
    graph, community = communities(4, 50)
    result = balanced(graph, np.ones(graph.num_nodes), community, 4)
    assert not result.moves
    np.testing.assert_array_equal(result.owner, community)


def test_searches_cut_fewer_edges_than_moving_nodes_at_random():
    graph, community = communities(8, 500)
    owner = np.where(community < 6, 0, 1)
    result = balanced(graph, np.ones(graph.num_nodes), owner, 2)
    moved = int((result.owner != owner).sum())
    rng = np.random.default_rng(0)
    at_random = owner.copy()
    at_random[rng.choice(np.flatnonzero(owner == 0), moved, replace=False)] = 1
    assert graph.cut(result.owner) < 0.7 * graph.cut(at_random)


def test_the_plan_that_cuts_fewest_edges_wins_of_five(monkeypatch):
    graph, community = communities(8, 500, seed=3)
    owner, ones = np.where(community < 6, 0, 1), np.ones(graph.num_nodes)
    five = balanced(graph, ones, owner, 2).moves[0]
    monkeypatch.setattr("gnnflow.partition.balance.NUM_PLANS", 1)
    assert five.added_cut <= balanced(graph, ones, owner, 2).moves[0].added_cut


def test_a_node_dearer_than_a_partition_should_be_stays_and_others_leave_it():
    graph, community = communities(2, 100)
    cost = np.ones(200)
    cost[7] = 500
    result = balanced(graph, cost, community, 2)
    assert result.owner[7] == 0
    assert np.bincount(result.owner, cost)[0] < 600
    # all that can leave has left, so the search for more ends
    assert np.all(result.owner[np.arange(200) != 7] == 1)


def test_the_result_is_a_function_of_its_arguments_and_the_seed_chooses_others():
    graph, community = communities(8, 300)
    cost = np.random.default_rng(2).pareto(2, graph.num_nodes) + 0.1
    owner = np.where(community < 4, 0, community % 4)
    once, again = (balanced(graph, cost, owner, 4) for _ in range(2))
    np.testing.assert_array_equal(once.owner, again.owner)
    assert once.moves == again.moves
    other = balanced(graph, cost, owner, 4, seed=1)
    assert np.any(other.owner != once.owner)
    assert balance_factor(cost, other.owner, num_partitions=4) <= 1.05


def test_nodes_without_edges_are_balanced_too():
    graph = InducedGraph.of(np.zeros(0, np.int64), np.zeros(0, np.int64), num_nodes=10_000)
    result = balanced(graph, np.ones(10_000), np.zeros(10_000, np.int64), 4)
    assert balance_factor(np.ones(10_000), result.owner, num_partitions=4) <= 1.05


def test_costs_of_nothing_are_balanced():
    graph, community = communities(2, 10)
    assert not balanced(graph, np.zeros(20), community, 2).moves
