"""The plan that every kind of partitioning returns, its inputs from the store, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gnnflow.graph.arrays import distinct
from gnnflow.graph.batch import sum_relations
from gnnflow.graph.splits import SPLITS
from gnnflow.partition.costs import CostArray, Ends
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray, KeyArray
    from gnnflow.graph.book import PartitionBook
    from gnnflow.graph.schema import Placement
    from gnnflow.mapreduce.rounds import TaskRecord
    from gnnflow.storage.graph_store import GraphStore

LOADS = ("nodes", "edges", "targets")
"""The loads to balance: nodes, in-edges, and training targets; a pair counts at its destination."""

_TRAIN = SPLITS.index("train")


@dataclass(frozen=True)
class Plan:
    """The owner of each node [N].

    cluster [N]: the number of each node's cluster in its partition; None where a partition is one cluster. figures and
    settings: numbers and other values for `balance.json`, in addition to the figures of every kind.
    """

    owner: IntArray
    cluster: IntArray | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


class Planner(Protocol):
    """One kind of partitioning; a frozen value that is sent to the worker that makes the plan."""

    @property
    def clusters(self) -> int:
        """Number of clusters of each partition; 0 where it is one cluster."""
        ...

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return the owner of each node, a function of the store and the seed."""
        ...


def present_owner(store: GraphStore) -> IntArray:
    """Return the present owner of each node [N]."""
    parts = store.num_partitions
    return np.repeat(np.arange(parts), [store.book.size(number) for number in range(parts)])


@dataclass(frozen=True)
class KeptOwners:
    """Leaves every node in its partition."""

    clusters: int = 0

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return the present owners."""
        return Plan(present_owner(store))


def read_ends(store: GraphStore) -> list[Ends]:
    """Return targets and sources of all edges, relation by relation."""
    found = []
    for relation in range(store.schema.num_relations):
        parts = range(store.num_partitions)
        tables = [store.edges(partition, ["dst", "src"], relation=relation) for partition in parts]
        dst, src = (np.concatenate([to_numpy(each[name]) for each in tables]) for name in ("dst", "src"))
        found.append(Ends(dst, src))
    return found


def read_keys(store: GraphStore) -> KeyArray:
    """Return the key of each node, in the order of dense ids [N]."""
    return np.concatenate([keys_of(store, partition) for partition in range(store.num_partitions)])


def keys_of(store: GraphStore, partition: int) -> KeyArray:
    """Return the key of each node of a partition, all types in their order [n]."""
    tables = [store.nodes(partition, ["key"], node_type=number) for number in range(store.schema.num_types)]
    return np.concatenate([to_numpy(each["key"]) for each in tables])


def training_targets(store: GraphStore, partition: int) -> IntArray:
    """Return the number of training targets at each node of a partition, all types in their order [n]."""
    book = store.book
    found = np.zeros(book.size(partition), np.int64)
    if store.facts.targets == "edges":
        pairs = store.pairs(partition, ["dst", "split"])
        # rows of the training pairs' destinations
        into = to_numpy(pairs["dst"])[to_numpy(pairs["split"]) == _TRAIN] - book.start(partition)
        return np.bincount(into, minlength=len(found))
    node_type = store.facts.target_type
    # split code of each node of the target type
    split = to_numpy(store.nodes(partition, ["split"], node_type=node_type)["split"])
    found[book.rows(partition, node_type)] = split == _TRAIN
    return found


def loads_of(store: GraphStore, partition: int) -> IntArray:
    """Return the loads of each node of a partition [n, 3]: 1, its in-edges, its training targets."""
    in_degree = sum_relations(store.degrees(partition).in_degree)
    return np.stack([np.ones_like(in_degree), in_degree, training_targets(store, partition)], axis=1)


def shares_of(loads: Array) -> CostArray:
    """Return each load as a share of its sum over all nodes [N, 3]; zeros where the sum is 0."""
    total = loads.sum(0)
    shares: CostArray = loads / np.where(total > 0, total, 1)
    return shares


@dataclass(frozen=True)
class PartitionJob:
    """The job of `partition`, known to every task. placement: where edges are computed, in addition to in-edges."""

    artifact: str
    store: GraphStore
    planner: Planner
    seed: int
    placement: Placement = ""


def crossing(sources: Sequence[IntArray], book: PartitionBook, *, partition: int) -> dict[str, int]:
    """Return the counts of a partition's in-edges from other partitions.

    sources: of in-edges, by relation. cut: edges from elsewhere; mirrors: distinct sources of these.
    """
    start, end = book.start(partition), book.start(partition) + book.size(partition)
    # sources in other partitions, one for each edge from there
    apart = np.concatenate([each[(each < start) | (each >= end)] for each in sources])
    return {"cut": len(apart), "mirrors": len(distinct(apart))}


def figures_of(loads: Array, records: Sequence[TaskRecord], *, key: str) -> dict[str, float | list[int]]:
    """Return the figures of a partitioning, rounded so that they are the same everywhere.

    loads: [P, 3] as in `LOADS`; the counts of each partition's record hold `crossing` below a key. replication: nodes
    and mirrors per node; edge_cut: the share of edges whose ends two partitions own; balance_*: the largest load of a
    partition over the mean, 1 where all are 0.
    """
    held = [record.counts[key] for record in records]
    nodes, edges, _ = loads.sum(0).tolist()
    cut, mirrors = (sum(each[name] for each in held) for name in ("cut", "mirrors"))
    even = {
        f"balance_{name}": round(float(column.max() / column.mean()), 6) if column.any() else 1.0
        for name, column in zip(LOADS, loads.T, strict=True)
    }
    return {
        "replication": round(float(1 + mirrors / max(nodes, 1)), 6),
        "edge_cut": round(float(cut / max(edges, 1)), 6),
        "edges_cut": cut,
        **even,
    }
