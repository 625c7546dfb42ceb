"""Counting instances without listing them."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from gnnflow.graph.schema import UNTYPED, GraphSchema, Relation
from gnnflow.partition.costs import DirectInstances, PathInstances

SCHEMA = GraphSchema.of(
    ["author", "paper"],
    [Relation("author", "writes", "paper"), Relation("paper", "by", "author"), Relation("paper", "cites", "paper")],
)
NUM_AUTHORS, NUM_PAPERS = 6, 9


def edges_of(schema, seed=0):
    """Return random ends of each relation; nodes are authors, then papers."""
    rng = np.random.default_rng(seed)
    nodes = {"author": range(NUM_AUTHORS), "paper": range(NUM_AUTHORS, NUM_AUTHORS + NUM_PAPERS)}
    nodes["node"] = range(NUM_AUTHORS + NUM_PAPERS)
    return [(rng.choice(nodes[each.target], 20), rng.choice(nodes[each.source], 20)) for each in schema.relations]


def listed(path, schema, ends):
    """Return how many paths lead to each node, by listing them."""
    found = [(node,) for node in range(NUM_AUTHORS + NUM_PAPERS)]
    for target, source in pairwise(path):
        steps = [
            pair
            for relation, (dst, src) in zip(schema.relations, ends, strict=True)
            if (relation.target, relation.source) == (target, source)
            for pair in zip(dst.tolist(), src.tolist(), strict=True)
        ]
        found = [(*walked, src) for walked, (dst, src) in product(found, steps) if walked[-1] == dst]
    return np.bincount([walked[0] for walked in found], minlength=NUM_AUTHORS + NUM_PAPERS)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (SCHEMA, ("author", "paper", "author")),
        (SCHEMA, ("author", "paper", "paper", "author")),
        (SCHEMA, ("paper", "paper")),
        (UNTYPED, ("node", "node", "node")),
    ],
)
def test_paths_are_counted_as_if_they_were_listed(schema, path):
    ends, num_nodes = edges_of(schema), NUM_AUTHORS + NUM_PAPERS
    expected = listed(path, schema, ends)
    counts, leaves = PathInstances((path,), 10**6).counts(ends, schema=schema, num_nodes=num_nodes)
    np.testing.assert_array_equal(counts[:, 0], expected)
    np.testing.assert_array_equal(leaves[:, 0], expected * (len(path) - 1))
    capped, _ = PathInstances((path,), 3).counts(ends, schema=schema, num_nodes=num_nodes)
    np.testing.assert_array_equal(capped[:, 0], np.minimum(expected, 3))


def test_in_edges_count_as_many_as_are_kept():
    ends, num_nodes = edges_of(SCHEMA), NUM_AUTHORS + NUM_PAPERS
    every, leaves = DirectInstances(None).counts(ends, schema=SCHEMA, num_nodes=num_nodes)
    np.testing.assert_array_equal(every.sum(0), [20, 20, 20])
    np.testing.assert_array_equal(every, leaves)
    kept, _ = DirectInstances((2, 1, 5)).counts(ends, schema=SCHEMA, num_nodes=num_nodes)
    np.testing.assert_array_equal(kept, np.minimum(every, [2, 1, 5]))
