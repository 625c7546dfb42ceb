"""Selections on small stores as plain Python values in the users' ids, and what a definition of them reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.keyed import node_keys
from gnnflow.neighbors.selection import Selection, SelectionResult
from gnnflow.storage.columns import to_matrix, to_numpy, to_ragged
from gnnflow.storage.graph_store import GraphStore
from tests.typed_stores import PAYMENTS, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

Node = tuple[int, int]
"""A node as (number of its type, user's id)."""
SEED = 5


@dataclass(frozen=True)
class Found:
    """A selection: instances by their relation's name and their root, in order, as (leaves, weight, attributes)."""

    result: SelectionResult
    store: GraphStore
    instances: dict[str, dict[Node, list[tuple[Any, ...]]]]


def select(run_rounds: Any, section: Any, store: GraphStore, folder: Path, **options: Any) -> Found:
    """Run a kind's rounds and read what they wrote."""
    runner = RoundRunner(str(folder / "select-work"), Synchronous())
    result = run_rounds(Selection(str(folder / "selected"), store, (), SEED), section, runner, **options)
    effective = store.selected(str(folder / "selected"), result.relations)
    names = names_of(store)
    instances: dict[str, dict[Node, list[tuple[Any, ...]]]] = {}
    for number, facts in enumerate(result.relations):
        held: dict[Node, list[tuple[Any, ...]]] = {}
        for partition in range(store.num_partitions):
            columns = ["dst", "src", *effective.edge_columns_of(number)]
            table = effective.edges(partition, columns, relation=number)
            dst, count = to_numpy(table["dst"]), table.num_rows
            assert np.all(dst[1:] >= dst[:-1])
            flat = facts.leaves == 1
            offsets, leaves = (np.arange(count + 1), to_numpy(table["src"])) if flat else to_ragged(table["src"])
            weight = to_numpy(table["weight"]).tolist() if "weight" in columns else [None] * count
            attributes = to_matrix(table["attributes"]).tolist() if "attributes" in columns else [None] * count
            for row in range(count):
                reached = tuple(names[each] for each in leaves[offsets[row] : offsets[row + 1]])
                held.setdefault(names[dst[row]], []).append((reached, weight[row], attributes[row]))
        instances[facts.name] = held
    return Found(result, effective, instances)


def names_of(store: GraphStore) -> list[Node]:
    """Return the name of each dense id."""
    names: list[Node] = [(-1, -1)] * store.facts.num_nodes
    for partition in range(store.num_partitions):
        for number in range(store.schema.num_types):
            table = store.nodes(partition, ["id", "node"], node_type=number)
            for node, given in zip(table["node"].to_pylist(), table["id"].to_pylist(), strict=True):
                names[node] = (number, given)
    return names


@dataclass(frozen=True)
class Plain:
    """A store as Python values: keys of nodes, and each node's in-edges as (key, source, relation), in order of key."""

    store: GraphStore

    @cached_property
    def names(self) -> list[Node]:
        return names_of(self.store)

    @cached_property
    def keys(self) -> dict[Node, np.uint64]:
        keys = {}
        for partition in range(self.store.num_partitions):
            own, start = node_keys(self.store, partition), self.store.book.start(partition)
            keys |= {self.names[start + row]: key for row, key in enumerate(own)}
        return keys

    @cached_property
    def in_edges(self) -> dict[Node, list[tuple[int, Node, int]]]:
        names, edges = names_of(self.store), {each: [] for each in names_of(self.store)}
        for partition in range(self.store.num_partitions):
            for relation in range(self.store.schema.num_relations):
                table = self.store.edges(partition, ["dst", "src", "edge_key"], relation=relation)
                for dst, src, key in zip(*(table[each].to_pylist() for each in table.column_names), strict=True):
                    edges[names[dst]].append((key, names[src], relation))
        return {node: sorted(held) for node, held in edges.items()}

    @cached_property
    def weighted_in_edges(self) -> dict[Node, list[tuple[int, Node, float]]]:
        """Each node's in-edges of weight above 0 as (key, source, weight), in order of key; 1 of relations without."""
        names, edges = self.names, {each: [] for each in self.names}
        for partition in range(self.store.num_partitions):
            for relation in range(self.store.schema.num_relations):
                held = ["weight"] if "weight" in self.store.edge_columns_of(relation) else []
                table = self.store.edges(partition, ["dst", "src", "edge_key", *held], relation=relation)
                weights = table["weight"].to_pylist() if held else [1.0] * table.num_rows
                columns = (table[each].to_pylist() for each in ("dst", "src", "edge_key"))
                for dst, src, key, weight in zip(*columns, weights, strict=True):
                    edges[names[dst]] += [(key, names[src], weight)] if weight else []
        return {node: sorted(held) for node, held in edges.items()}


def payments(folder: Path, *, partitions: int = 3, seed: int = 1, hub: int | None = 2) -> GraphStore:
    """Return a store of accounts, devices and merchants, one of which has a third of the in-edges of each relation."""
    return write_store(folder / f"store-{partitions}", random_tables(PAYMENTS, seed, hub=hub), partitions=partitions)


def assert_degrees(found: Found) -> None:
    """The degrees a selection wrote are those of the instances that it wrote."""
    names = names_of(found.store)
    schema = found.store.schema
    for partition in range(found.store.num_partitions):
        degrees = found.store.degrees(partition)
        start = found.store.book.start(partition)
        for number, held in enumerate(found.instances.values()):
            times: dict[Node, int] = {}
            for each in (node for listed in held.values() for leaves, *_ in listed for node in leaves):
                times[each] = times.get(each, 0) + 1
            for row in range(found.store.book.size(partition)):
                own = held.get(names[start + row], [])
                column = (row, number) if schema.is_typed else row
                weights = [1.0 if weight is None else weight for _, weight, _ in own]
                assert degrees.in_degree[column] == len(own)
                assert degrees.out_degree[column] == times.get(names[start + row], 0)
                assert np.isclose(degrees.in_weight[column], sum(weights))
