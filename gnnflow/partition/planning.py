"""What every kind of partitioning gives, a plan, and what kinds read of the store to make one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gnnflow.graph.batch import sum_relations
from gnnflow.graph.splits import SPLITS
from gnnflow.partition.costs import CostArray
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray, KeyArray
    from gnnflow.partition.instances import Ends
    from gnnflow.storage.graph_store import GraphStore

_TRAIN = SPLITS.index("train")


@dataclass(frozen=True)
class Plan:
    """Who owns each node [N].

    cluster [N]: the number of each node's cluster among those of its partition; None where a partition is one. figures
    and settings: what `balance.json` says beside what is counted for every kind, numbers and other values.
    """

    owner: IntArray
    cluster: IntArray | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


class Planner(Protocol):
    """One kind of partitioning; a frozen value, which travels to the worker that makes the plan.

    clusters: in each partition; 0 where it has no more than itself.
    """

    @property
    def clusters(self) -> int:
        """How many clusters each partition has; 0 where it is one."""
        ...

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return who owns each node of a store, a function of the store and the seed."""
        ...


def present_owner(store: GraphStore) -> IntArray:
    """Return the partition that owns each node in the store that is read [N]."""
    parts = store.num_partitions
    return np.repeat(np.arange(parts), [store.book.size(number) for number in range(parts)])


@dataclass(frozen=True)
class AsTheyAre:
    """Nodes stay with those that own them."""

    clusters: int = 0

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return who owns each node already."""
        return Plan(present_owner(store))


def read_ends(store: GraphStore) -> list[Ends]:
    """Return targets and sources of all edges, relation by relation."""
    found = []
    for relation in range(store.schema.num_relations):
        parts = range(store.num_partitions)
        tables = [store.edges(partition, ["dst", "src"], relation=relation) for partition in parts]
        dst, src = (np.concatenate([to_numpy(each[name]) for each in tables]) for name in ("dst", "src"))
        found.append((dst, src))
    return found


def read_keys(store: GraphStore) -> KeyArray:
    """Return the key of each node, in the order of dense ids [N]."""
    return np.concatenate([keys_of(store, partition) for partition in range(store.num_partitions)])


def keys_of(store: GraphStore, partition: int) -> KeyArray:
    """Return the key of each node of a partition, all types in their order [n]."""
    tables = [store.nodes(partition, ["key"], node_type=number) for number in range(store.schema.num_types)]
    return np.concatenate([to_numpy(each["key"]) for each in tables])


def training_targets(store: GraphStore, partition: int) -> IntArray:
    """Return how many training targets each node of a partition is, or is the end of; all types in their order [n]."""
    book = store.book
    found = np.zeros(book.size(partition), np.int64)
    if store.facts.targets == "edges":
        pairs = store.pairs(partition, ["dst", "split"])
        into = to_numpy(pairs["dst"])[to_numpy(pairs["split"]) == _TRAIN] - book.start(partition)
        return np.bincount(into, minlength=len(found))
    node_type = store.facts.target_type
    split = to_numpy(store.nodes(partition, ["split"], node_type=node_type)["split"])
    found[book.rows(partition, node_type)] = split == _TRAIN
    return found


def loads_of(store: GraphStore, partition: int) -> IntArray:
    """Return what is to be even of each node of a partition [n, 3]: itself, its in-edges, its training targets."""
    in_degree = sum_relations(store.degrees(partition).in_degree)
    return np.stack([np.ones_like(in_degree), in_degree, training_targets(store, partition)], axis=1)


def shares_of(loads: Array) -> CostArray:
    """Return each load as a share of what all nodes have of it [N, 3]; zeros where none has any."""
    total = loads.sum(0)
    shares: CostArray = loads / np.where(total > 0, total, 1)
    return shares
