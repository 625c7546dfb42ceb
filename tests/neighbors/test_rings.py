"""Rings: equal to a plain definition, whatever the partitions; exactly the distances where nothing is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config.neighbors_section import RingNeighbors
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.neighbors import rings
from tests.budget import examples
from tests.neighbors.selections import SEED, Found, Plain, assert_degrees, payments, select
from tests.typed_stores import BIPARTITE, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path


def found(folder: Path, store: Any, distance: int = 3, most: int = 4) -> Found:
    return select(rings.run_rounds, RingNeighbors(distance=distance, max_nodes=most), store, folder)


def hashed(*words: Any) -> int:
    return int(combine(np.array([words[0]], np.uint64), np.uint64(words[1]))[0])


def once(edges: list[tuple[int, Any, int]]) -> list[tuple[int, Any]]:
    """Each source once, by the smallest key of its edges, in order of key."""
    held: dict[Any, int] = {}
    for key, each, _ in edges:
        held[each] = min(key, held.get(each, key))
    return sorted((key, each) for each, key in held.items())


def defined(plain: Plain, distance: int, most: int) -> dict[str, dict[Any, list[tuple[Any, ...]]]]:
    """The definition, root by root and ring by ring."""
    schema = plain.store.schema
    chosen: dict[str, dict[Any, list[tuple[Any, ...]]]] = {
        str(each): {} for each in RingNeighbors(distance=distance).relations(schema)
    }
    for root, key in plain.keys.items():
        if root[0] not in schema.target_types:
            continue
        word = hashed(key, seed_word("rings", SEED))
        visited, ring = {root}, [root]
        for each in range(1, distance + 1):
            reached = set()
            for node in ring:
                edges = once(plain.in_edges[node])
                if len(edges) > most:
                    begin = hashed(word, plain.keys[node])
                    begin = ((int(mix(np.array([begin], np.uint64))[0]) >> 32) * len(edges)) >> 32
                    edges = (edges + edges)[begin : begin + most]
                reached |= {source for _, source in edges}
            new = sorted(reached - visited, key=lambda node: hashed(word, plain.keys[node]))
            visited |= set(new)
            ring = new[:most]
            for node in ring:
                name = f"{schema.types[node[0]]}__ring{each}__{schema.types[root[0]]}"
                chosen[name].setdefault(root, []).append(((node,), None, None))
    return chosen


@pytest.mark.table(4)
@pytest.mark.parametrize("most", [1, 4, 1000])
@pytest.mark.parametrize("schema", [None, BIPARTITE], ids=["payments", "one relation"])
def test_rings_equal_their_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: Any, most: int) -> None:
    monkeypatch.setattr(rings, "_PAIRS_AT_ONCE", 50)
    store = (
        payments(tmp_path) if schema is None else write_store(tmp_path / "s", random_tables(schema, 3), partitions=2)
    )
    made = found(tmp_path, store, most=most)
    assert made.instances == defined(Plain(store), 3, most)
    assert_degrees(made)


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 3), st.integers(1, 4))
def test_any_rings_equal_their_definition(
    tmp_path_factory: pytest.TempPathFactory, distance: int, most: int, seed: int, partitions: int
) -> None:
    folder = tmp_path_factory.mktemp("rings")
    store = payments(folder, partitions=partitions, seed=seed)
    assert found(folder, store, distance, most).instances == defined(Plain(store), distance, most)


def test_rings_ignore_partition_count(tmp_path: Path) -> None:
    made = [found(tmp_path / str(parts), payments(tmp_path, partitions=parts)).instances for parts in (1, 2, 4)]
    assert made[0] == made[1] == made[2]


def test_where_nothing_is_left_out_rings_are_the_distances(tmp_path: Path) -> None:
    store = payments(tmp_path, hub=None)
    plain, made = Plain(store), found(tmp_path, store, 3, 1000)
    for root in plain.keys:
        distances, frontier = {root: 0}, [root]
        for each in (1, 2, 3):
            frontier = [node for at in frontier for _, node, _ in plain.in_edges[at] if node not in distances]
            distances |= dict.fromkeys(frontier, each)
        held = {
            leaf: int(name.split("__")[1].removeprefix("ring"))
            for name, of in made.instances.items()
            for (leaf,), *_ in of.get(root, [])
        }
        assert held == {node: each for node, each in distances.items() if each}


def test_nodes_of_one_id_and_several_types_have_keys_of_their_own(tmp_path: Path) -> None:
    keys = Plain(payments(tmp_path)).keys
    assert len({number for _, number in keys}) < len(keys) == len(set(keys.values()))
