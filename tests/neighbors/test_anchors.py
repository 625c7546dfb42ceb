"""Anchors: equal to a plain definition, whatever the partitions; sets are of the sizes that P-GNN gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config.neighbors_section import AnchorNeighbors
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.neighbors import anchors
from tests.budget import examples
from tests.neighbors.selections import SEED, Found, Plain, assert_degrees, payments, select
from tests.typed_stores import BIPARTITE, KNOWN, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path


def found(folder: Path, store: Any, copies: int = 2, distance: int = 3) -> Found:
    return select(anchors.run_rounds, AnchorNeighbors(copies=copies, distance=distance), store, folder)


def defined(plain: Plain, copies: int, distance: int) -> dict[str, dict[Any, list[tuple[Any, ...]]]]:
    """The definition: all distances of a root, then the nearest member of each set."""
    schema, chosen = plain.store.schema, {}
    for number in sorted(set(schema.target_types)):
        nodes = [node for node in plain.keys if node[0] == number]
        count = copies * max(int(np.ceil(np.log2(len(nodes)))), 1)
        sets: list[dict[Any, int]] = []
        for each in range(count):
            hashed = combine(np.array([plain.keys[node] for node in nodes]), seed_word("anchors", SEED, each))
            inside = hashed.astype(float) < 2.0 ** (64 - 1 - each // copies)
            ties = mix(hashed)
            sets.append({node: int(ties[row]) for row, node in enumerate(nodes) if inside[row]})
        held: dict[Any, list[tuple[Any, ...]]] = {}
        for root in nodes:
            away, frontier = {root: 0}, [root]
            for each in range(1, distance + 1):
                frontier = [node for at in frontier for _, node, _ in plain.in_edges[at] if node not in away]
                away |= dict.fromkeys(frontier, each)
            for each, members in enumerate(sets):
                near = sorted((away[node], tie, node) for node, tie in members.items() if node in away)
                if near:
                    weight = float(np.float32(1 / (near[0][0] + 1)))
                    held.setdefault(root, []).append(((near[0][2],), weight, [float(each)]))
        name = schema.types[number]
        chosen[f"{name}__anchors__{name}"] = held
    return chosen


@pytest.mark.parametrize("schema", [None, KNOWN, BIPARTITE], ids=["payments", "one type", "one relation"])
def test_anchors_equal_their_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: Any) -> None:
    monkeypatch.setattr(anchors, "_ANCHORS_AT_ONCE", 60)
    tables = None if schema is None else random_tables(schema, 3)
    store = payments(tmp_path) if tables is None else write_store(tmp_path / "store", tables, partitions=2)
    made = found(tmp_path, store)
    assert made.instances == defined(Plain(store), 2, 3)
    assert_degrees(made)


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4))
def test_any_anchors_equal_their_definition(
    tmp_path_factory: pytest.TempPathFactory, copies: int, distance: int, seed: int, partitions: int
) -> None:
    folder = tmp_path_factory.mktemp("anchors")
    store = payments(folder, partitions=partitions, seed=seed)
    assert found(folder, store, copies, distance).instances == defined(Plain(store), copies, distance)


def test_anchors_ignore_partition_count(tmp_path: Path) -> None:
    made = [found(tmp_path / str(parts), payments(tmp_path, partitions=parts)).instances for parts in (1, 2, 4)]
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize(("nodes", "sizes"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11)])
def test_there_are_as_many_sizes_as_the_logarithm_of_the_nodes_rounded_up(nodes: int, sizes: int) -> None:
    assert anchors.num_sizes(nodes) == sizes
