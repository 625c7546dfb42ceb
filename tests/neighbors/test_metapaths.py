"""Instances of metapaths: equal to a plain definition, whatever the partitions; all of them where there are few."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config.neighbors_section import MetapathNeighbors, relation_of
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.neighbors import metapaths
from tests.budget import examples
from tests.neighbors.selections import SEED, Found, Plain, assert_degrees, payments, select
from tests.typed_stores import KNOWN, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

PATHS = (
    ("account", "device", "account"),
    ("account", "merchant", "account"),
    ("account", "account", "device", "account"),
    ("merchant", "account", "merchant"),
    ("device", "account"),
)


def found(folder: Path, store: Any, most: int = 6, paths: Any = PATHS) -> Found:
    made = select(metapaths.run_rounds, MetapathNeighbors(paths=paths, max_instances=most), store, folder)
    # those of a root lie in the order of dense ids, which differ with the partitions
    ordered = {name: {root: sorted(each) for root, each in held.items()} for name, held in made.instances.items()}
    return replace(made, instances=ordered)


def steps(plain: Plain, source: int) -> dict[Any, list[tuple[int, Any]]]:
    """The distinct nodes of a type with an edge to each node, as (smallest key, node), in order of key."""
    reached: dict[Any, dict[Any, int]] = {node: {} for node in plain.in_edges}
    for node, edges in plain.in_edges.items():
        for key, each, _ in edges:
            if each[0] == source:
                reached[node][each] = min(key, reached[node].get(each, key))
    return {node: sorted((key, each) for each, key in held.items()) for node, held in reached.items()}


def defined(plain: Plain, path: Any, most: int) -> dict[Any, list[tuple[Any, ...]]]:
    """The definition, root by root."""
    types = plain.store.schema.types
    by_type = [steps(plain, number) for number in range(len(types))]
    chosen = {}
    for root, key in plain.keys.items():
        if types[root[0]] != path[0]:
            continue
        word = int(combine(np.array([key]), seed_word("metapath", SEED, "-".join(path)))[0])
        kept = [(word, (root,))]
        for name in path[1:]:
            longer = []
            for word, nodes in kept:
                edges = by_type[types.index(name)][nodes[-1]]
                if len(edges) > most:
                    begin = ((int(mix(np.array([word], np.uint64))[0]) >> 32) * len(edges)) >> 32
                    edges = (edges + edges)[begin : begin + most]
                for edge, node in edges:
                    longer.append((int(combine(np.array([word], np.uint64), np.uint64(edge))[0]), (*nodes, node)))
            kept = sorted(longer)[:most]
        if kept:
            chosen[root] = sorted((nodes[1:], None, None) for _, nodes in kept)
    return chosen


@pytest.mark.table(3)
@pytest.mark.parametrize("most", [1, 3, 6, 100])
def test_instances_equal_their_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(metapaths, "_PATHS_AT_ONCE", 40)
    store = payments(tmp_path)
    made, plain = found(tmp_path, store, most), Plain(store)
    for path in PATHS:
        name = str(relation_of(path))
        assert made.instances[name] == defined(plain, path, most)
        assert made.instances[name]
    assert [each.leaves for each in made.result.relations] == [
        len(each.name.split("__")[1].split("-")) - 1 for each in made.result.relations
    ]
    assert_degrees(made)


@settings(max_examples=examples(10), deadline=None)
@given(st.sampled_from(PATHS), st.integers(1, 9), st.integers(0, 3), st.integers(1, 4))
def test_any_metapath_equals_its_definition(
    tmp_path_factory: pytest.TempPathFactory, path: Any, most: int, seed: int, partitions: int
) -> None:
    folder = tmp_path_factory.mktemp("metapaths")
    store = payments(folder, partitions=partitions, seed=seed)
    assert list(found(folder, store, most, (path,)).instances.values()) == [defined(Plain(store), path, most)]


def test_instances_ignore_partition_count(tmp_path: Path) -> None:
    made = [found(tmp_path / str(parts), payments(tmp_path, partitions=parts)).instances for parts in (1, 2, 4)]
    assert made[0] == made[1] == made[2]


def test_few_instances_are_all_there_are(tmp_path: Path) -> None:
    store = payments(tmp_path, hub=None)
    plain, path = Plain(store), ("account", "account", "merchant")
    made = found(tmp_path, store, 100_000, (path,)).instances["merchant__account-account-merchant__account"]
    numbers = [store.schema.types.index(each) for each in path]
    every: dict[Any, set[Any]] = {node: {()} for node in plain.keys if node[0] == numbers[0]}
    for _, number in pairwise(numbers):
        every = {
            root: {
                (*nodes, each)
                for nodes in held
                for _, each, _ in plain.in_edges[nodes[-1] if nodes else root]
                if each[0] == number
            }
            for root, held in every.items()
        }
    assert {root: {leaves for leaves, *_ in held} for root, held in made.items()} == {
        root: held for root, held in every.items() if held
    }
    assert all(len({leaves for leaves, *_ in held}) == len(held) for held in made.values())


def test_several_relations_between_two_types_are_all_followed_and_give_a_path_once(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", random_tables(KNOWN, 5), partitions=2)
    made = found(tmp_path, store, 1000, (("account", "account"),))
    reached = {
        root: {leaf for (leaf,), *_ in held}
        for root, held in made.instances["account__account-account__account"].items()
    }
    plain = Plain(store)
    assert reached == {root: {each for _, each, _ in held} for root, held in plain.in_edges.items() if held}
    assert any(len({relation for *_, relation in held}) == 2 for held in plain.in_edges.values())
