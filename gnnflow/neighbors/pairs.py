"""Pairs of nodes to predict, read from a store, and the pools that their negatives are drawn from.

A pool is a number of draws, with replacement, of nodes that a pair may lead to, each by its weight. A draw is a point
on the partitions' cumulative weights; the partition that owns the point knows the node. GraphFlat draws a pool for each
shard; training without shards draws one for each step.

Shapes: P pairs, S pools, N nodes of a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.config import LinkTask
from gnnflow.graph.errors import TableError
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import labels_of
from gnnflow.sampling.pairs import pool_draws, pool_owner, pool_rows
from gnnflow.storage.columns import to_matrix, to_numpy

if TYPE_CHECKING:
    from gnnflow.config import PairTask
    from gnnflow.graph.arrays import Array, FloatArray, IntArray, KeyArray
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.sampling.pairs import Points
    from gnnflow.storage.graph_store import GraphStore

_POOLS_AT_ONCE = 1024  # drawn together: every partition draws all and keeps the draws of its nodes


@dataclass(frozen=True)
class PoolPlan:
    """The plan of negatives: pools of `size` nodes, drawn by in-degree to a power; 0: all equally likely.

    Nodes are of the type that pairs lead to, and in-degrees are of the relation of the pairs. The size is 0 where edges
    have labels.
    """

    seed: int
    size: int = 0
    power: float = 0.0

    @classmethod
    def of(cls, task: PairTask, *, seed: int) -> PoolPlan:
        """Return the plan that a task asks for."""
        if not isinstance(task, LinkTask):
            return cls(seed)
        negatives = task.negatives
        return cls(seed, negatives.pool, negatives.power if negatives.kind == "degree" else 0.0)


def num_candidates(graph: GraphFacts) -> int:
    """Return the number of nodes that a negative may lead to: a pair's target type without the pair's ends."""
    source, target = graph.pair_types
    return _nodes_led_to(graph) - 1 - (source == target)


def _nodes_led_to(graph: GraphFacts) -> int:
    return graph.types[graph.pair_types.target].num_nodes if graph.types else graph.num_nodes


def check_negatives(graph: GraphFacts, task: PairTask, *, where: str) -> None:
    """Raise TableError where no pair can have a negative: every node to draw from is an end of the pair.

    where: the table of the pairs.
    """
    if not isinstance(task, LinkTask) or task.split.kind == "none":  # nothing is trained
        return
    name, count = graph.types[graph.pair_types.target].name if graph.types else "", _nodes_led_to(graph)
    fewest = count - num_candidates(graph) + 1
    if count < fewest:
        raise TableError(
            f"{name or 'the graph'} has {count} node{'s' if count != 1 else ''}: no negative exists, since it is "
            f"a pair that leads to another {name or 'node'}",
            where=where,
            fix=f"Give the node table at least {fewest} nodes, or learn labels of edges: task.kind edge.",
        )
    bins = graph.relations[graph.pair_relation].degree_bins if graph.relations else graph.degree_bins
    if task.negatives.kind != "uniform" and count - bins[0] <= 1:
        raise TableError(
            f"every edge that carries messages leads to one {name or 'node'}, and task.negatives.kind "
            f"{task.negatives.kind} draws nodes that edges lead to: no negative exists",
            where=where,
            fix="Set task.negatives.kind: uniform.",
        )


def pool_weights(store: GraphStore, partition: int, plan: PoolPlan) -> Points:
    """Return the weights as negatives of the nodes in a partition that a pair may lead to [N]."""
    rows = store.book.rows(partition, store.facts.pair_types.target)
    if not plan.power:
        return np.ones(rows.stop - rows.start)
    degrees = store.degrees(partition).relation(store.facts.pair_relation).in_degree[rows]
    return degrees.astype(np.float64) ** plan.power


class Draws(NamedTuple):
    """Draws of pools: dense id, number of the pool, and place in the pool."""

    nodes: IntArray
    pools: IntArray
    places: IntArray


def draws_of(partition: int, store: GraphStore, numbers: IntArray, plan: PoolPlan, *, weights: Points) -> Draws:
    """Return the draws of a partition's nodes.

    numbers [S]: of the pools. weights: the total weight of each partition's nodes.
    """
    found: list[tuple[IntArray, IntArray, Points]] = []
    for first in range(0, len(numbers), _POOLS_AT_ONCE):
        pools = numbers[first : first + _POOLS_AT_ONCE]
        # points of these pools' draws, a row for each pool; then pool and place of the draws owned here
        points = pool_draws(pools, plan.size, seed=plan.seed, weights=weights)
        row, place = np.nonzero(pool_owner(points, weights) == partition)
        found.append((pools[row], place, points[row, place]))
    if not any(len(pool) for pool, *_ in found):
        return Draws(*(np.zeros(0, np.int64),) * 3)
    pool, place, points = (np.concatenate(column) for column in zip(*found, strict=True))
    rows = pool_rows(points, partition, weights=weights, nodes=pool_weights(store, partition, plan))
    book, node_type = store.book, store.facts.pair_types.target
    return Draws(rows + book.start(partition) + book.rows(partition, node_type).start, pool, place)


@dataclass(frozen=True)
class StoredPairs:
    """The pairs to predict that lead to some partitions [P], partition by partition, in stored order.

    sources and targets are dense ids; splits are codes, -1 for none; labels, attributes and times as `PairShard` has
    them. partitions [P]: the owner of each pair's target.
    """

    sources: IntArray
    targets: IntArray
    keys: KeyArray
    splits: IntArray
    partitions: IntArray
    labels: Array
    attributes: FloatArray | None
    times: IntArray | None

    def of(self, split: str) -> IntArray:
        """Return which of the pairs are of a split, ascending."""
        return np.flatnonzero(self.splits == SPLITS.index(split))


def read_pairs(store: GraphStore, partitions: Sequence[int]) -> StoredPairs:
    """Read the pairs that lead to some partitions, at least one."""
    columns = ("src", "dst", "key", "split", *store.pair_columns)
    tables = [store.pairs(each, columns) for each in partitions]

    def column(name: str) -> Array:
        return np.concatenate([to_numpy(table[name]) for table in tables])

    # the columns of all pairs, one partition after the other [P]
    sources = column("src").astype(np.int64)
    unlabelled = np.zeros_like(sources)
    return StoredPairs(
        sources,
        column("dst").astype(np.int64),
        column("key"),
        column("split").astype(np.int64),
        np.repeat(np.asarray(partitions), [table.num_rows for table in tables]),
        np.concatenate([labels_of(table["label"]) for table in tables]) if "label" in columns else unlabelled,
        np.concatenate([to_matrix(table["attributes"]) for table in tables]) if "attributes" in columns else None,
        column("time") if "time" in columns else None,
    )
