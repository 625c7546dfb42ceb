"""Random walks: what they select equals a plain definition, whatever the partitions and the way they are walked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config.neighbors_section import WalkNeighbors
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.neighbors import walks
from tests.neighbors.selections import SEED, Found, Plain, assert_degrees, payments, select
from tests.typed_stores import BIPARTITE, KNOWN, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

SECTION = WalkNeighbors(walks=7, length=4, top_k=5)
NUMBERS = st.integers(1, 9)


def found(folder: Path, store: Any, section: WalkNeighbors = SECTION, **options: Any) -> Found:
    return select(walks.run_rounds, section, store, folder, **options)


def defined(plain: Plain, section: WalkNeighbors) -> dict[str, dict[Any, list[tuple[Any, ...]]]]:
    """The definition: walk by walk and step by step."""
    types = plain.store.schema.types
    leads = set(plain.store.schema.target_types)
    chosen: dict[str, dict[Any, list[tuple[Any, ...]]]] = {f"{types[t]}__walks__{types[t]}": {} for t in leads}
    for root, key in plain.keys.items():
        if root[0] not in leads:
            continue
        word = combine(np.array([key]), seed_word("walks", SEED))
        visits: dict[Any, int] = {}
        for walk in range(section.walks):
            at = root
            for step in range(section.length):
                edges = plain.in_edges[at]
                if not edges:
                    break
                draw = int(mix(word ^ np.uint64(walk * section.length + step))[0])
                at = edges[((draw >> 32) * len(edges)) >> 32][1]
                if at != root and at[0] == root[0]:
                    visits[at] = visits.get(at, 0) + 1
        kept = sorted(visits.items(), key=lambda each: -each[1])[: section.top_k]
        total = sum(times for _, times in kept)
        if kept:
            name = f"{types[root[0]]}__walks__{types[root[0]]}"
            chosen[name][root] = [((node,), float(np.float32(times / total)), None) for node, times in kept]
    return chosen


@pytest.mark.parametrize("whole_bytes", [0, walks.WHOLE_BYTES], ids=["from owner to owner", "alone"])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("schema", [None, KNOWN, BIPARTITE], ids=["payments", "one type", "one relation"])
def test_walks_equal_their_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: Any, native: bool, whole_bytes: int
) -> None:
    if not native:
        monkeypatch.setattr("gnnflow.native.walks.core", lambda: None)
        monkeypatch.setattr(walks, "_FEW_VISITS", 100)
    tables = None if schema is None else random_tables(schema, 3)
    store = payments(tmp_path) if tables is None else write_store(tmp_path / "store", tables, partitions=2)
    made = found(tmp_path, store, whole_bytes=whole_bytes)
    assert made.instances == defined(Plain(store), SECTION)
    assert made.result.num_edges == sum(len(each) for held in made.instances.values() for each in held.values())
    assert_degrees(made)


@settings(max_examples=15, deadline=None)
@given(st.builds(WalkNeighbors, walks=NUMBERS, length=NUMBERS, top_k=NUMBERS), st.integers(0, 3), st.integers(1, 4))
def test_any_walks_equal_their_definition(
    tmp_path_factory: pytest.TempPathFactory, section: WalkNeighbors, seed: int, partitions: int
) -> None:
    folder = tmp_path_factory.mktemp("walks")
    store = payments(folder, partitions=partitions, seed=seed)
    assert found(folder, store, section).instances == defined(Plain(store), section)


def test_walks_ignore_partition_count(tmp_path: Path) -> None:
    made = [found(tmp_path / str(parts), payments(tmp_path, partitions=parts)).instances for parts in (1, 2, 4)]
    assert made[0] == made[1] == made[2]


def test_both_ways_of_walking_write_the_same_bytes(tmp_path: Path) -> None:
    store = payments(tmp_path)
    alone, routed = (found(tmp_path / str(most), store, whole_bytes=most) for most in (walks.WHOLE_BYTES, 0))
    assert [entry.sha256 for entry in alone.result.files] == [entry.sha256 for entry in routed.result.files]


def test_shares_of_visits_add_up_to_one(tmp_path: Path) -> None:
    made = found(tmp_path, payments(tmp_path))
    for held in made.instances.values():
        for root, listed in held.items():
            weights = [weight for _, weight, _ in listed]
            assert np.isclose(sum(weights), 1)
            assert weights == sorted(weights, reverse=True)
            assert all(leaves != (root,) for leaves, *_ in listed)
            assert len(listed) <= SECTION.top_k


def test_every_in_edge_is_as_likely_as_any_other(tmp_path: Path) -> None:
    store = payments(tmp_path, hub=None)
    plain = Plain(store)
    section = WalkNeighbors(walks=1000, length=1, top_k=1000)
    made = found(tmp_path, store, section)
    name = "account__walks__account"
    for root, listed in made.instances[name].items():
        own = [each for _, each, _ in plain.in_edges[root] if each[0] == root[0] and each != root]
        for leaves, weight, _ in listed:
            share = own.count(leaves[0]) / len(own)
            # visits are binomial: five standard deviations at the least number of walks that were kept
            assert abs(weight - share) < 5 * np.sqrt(share * (1 - share) / 100) + 1e-6
