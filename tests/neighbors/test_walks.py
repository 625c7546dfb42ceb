"""Random walks: what they select equals a plain definition, whatever the partitions and the way they are walked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config.neighbors_section import WalkNeighbors
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.hashing import combine, mix, seed_word
from gnnflow.native.walks import occurrences
from gnnflow.neighbors import walk_steps, walks
from gnnflow.neighbors.walk_steps import begins
from tests.budget import examples
from tests.neighbors.selections import SEED, Found, Plain, assert_degrees, payments, select
from tests.typed_stores import BIPARTITE, KNOWN, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

SECTION = WalkNeighbors(walks=7, length=4, top_k=5)
WEIGHTED = WalkNeighbors(walks=7, length=4, top_k=5, by="weight")
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
                edges = plain.in_edges[at] if section.by == "uniform" else plain.weighted_in_edges[at]
                if not edges:
                    break
                draw = int(mix(word ^ np.uint64(walk * section.length + step))[0]) >> 32
                at = edges[(draw * len(edges)) >> 32 if section.by == "uniform" else place_by_weight(edges, draw)][1]
                if at != root and at[0] == root[0]:
                    visits[at] = visits.get(at, 0) + 1
        kept = sorted(visits.items(), key=lambda each: -each[1])[: section.top_k]
        total = sum(times for _, times in kept)
        if kept:
            name = f"{types[root[0]]}__walks__{types[root[0]]}"
            chosen[name][root] = [((node,), float(np.float32(times / total)), None) for node, times in kept]
    return chosen


def place_by_weight(edges: list[tuple[int, Any, float]], draw: int) -> int:
    """The last edge whose part of 2^32 begins at or before the draw."""
    largest = max(weight for *_, weight in edges)
    whole = [max(round(weight / largest * 2**31), 1) for *_, weight in edges]
    begins = [sum(whole[:place]) / sum(whole) * 2**32 for place in range(len(whole))]
    return max(place for place, begin in enumerate(begins) if int(begin) <= draw)


@pytest.mark.table(2)
@pytest.mark.parametrize("section", [SECTION, WEIGHTED], ids=["uniform", "by weight"])
@pytest.mark.parametrize(
    "way",
    [(True, walks.WHOLE_BYTES), (False, walks.WHOLE_BYTES), (False, 0)],
    ids=["alone, native", "alone", "from owner to owner"],
)
@pytest.mark.parametrize("schema", [None, KNOWN, BIPARTITE], ids=["payments", "one type", "one relation"])
def test_walks_equal_their_definition(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    schema: Any,
    way: tuple[bool, int],
    section: WalkNeighbors,
) -> None:
    native, whole_bytes = way
    if not native:
        monkeypatch.setattr("gnnflow.native.walks.core", lambda: None)
        monkeypatch.setattr(walk_steps, "_FEW_VISITS", 100)
    tables = None if schema is None else random_tables(schema, 3)
    store = payments(tmp_path) if tables is None else write_store(tmp_path / "store", tables, partitions=2)
    made = found(tmp_path, store, section, whole_bytes=whole_bytes)
    assert made.instances == defined(Plain(store), section)
    assert made.result.num_edges == sum(len(each) for held in made.instances.values() for each in held.values())
    assert_degrees(made)


@settings(max_examples=examples(15), deadline=None)
@given(st.builds(WalkNeighbors, walks=NUMBERS, length=NUMBERS, top_k=NUMBERS), st.integers(0, 3), st.integers(1, 4))
def test_any_walks_equal_their_definition(
    tmp_path_factory: pytest.TempPathFactory, section: WalkNeighbors, seed: int, partitions: int
) -> None:
    folder = tmp_path_factory.mktemp("walks")
    store = payments(folder, partitions=partitions, seed=seed)
    assert found(folder, store, section).instances == defined(Plain(store), section)


@pytest.mark.parametrize("section", [SECTION, WEIGHTED], ids=["uniform", "by weight"])
def test_walks_ignore_partition_count(tmp_path: Path, section: WalkNeighbors) -> None:
    stores = {parts: payments(tmp_path, partitions=parts) for parts in (1, 2, 4)}
    made = [found(tmp_path / str(parts), store, section).instances for parts, store in stores.items()]
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("section", [SECTION, WEIGHTED], ids=["uniform", "by weight"])
def test_both_ways_of_walking_write_the_same_bytes(tmp_path: Path, section: WalkNeighbors) -> None:
    store = payments(tmp_path)
    alone, routed = (found(tmp_path / str(most), store, section, whole_bytes=most) for most in (walks.WHOLE_BYTES, 0))
    assert [entry.sha256 for entry in alone.result.files] == [entry.sha256 for entry in routed.result.files]


def test_the_native_core_and_numpy_write_the_same_bytes_by_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = payments(tmp_path)
    files = [found(tmp_path / "native", store, WEIGHTED).result.files]
    monkeypatch.setattr("gnnflow.native.walks.core", lambda: None)
    files.append(found(tmp_path / "numpy", store, WEIGHTED).result.files)
    assert [each.sha256 for each in files[0]] == [each.sha256 for each in files[1]]


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


def test_by_weight_an_in_edge_is_as_likely_as_its_weight(tmp_path: Path) -> None:
    store = payments(tmp_path, hub=None)
    plain = Plain(store)
    section = WalkNeighbors(walks=1000, length=1, top_k=1000, by="weight")
    made, apart = found(tmp_path, store, section), 0
    for root, listed in made.instances["account__walks__account"].items():
        edges = [(node, weight) for _, node, weight in plain.weighted_in_edges[root] if node[0] == root[0]]
        own = [(node, weight) for node, weight in edges if node != root]
        for leaves, weight, _ in listed:
            share = sum(each for node, each in own if node == leaves[0]) / sum(each for _, each in own)
            even = sum(node == leaves[0] for node, _ in own) / len(own)
            # visits are binomial: five standard deviations at the least number of walks that were kept
            assert abs(weight - share) < 5 * np.sqrt(share * (1 - share) / 100) + 1e-6
            apart += abs(weight - even) > 5 * np.sqrt(even * (1 - even) / 100)
    assert apart  # equal chances would not have given these


def test_by_weight_no_walk_goes_along_an_edge_of_weight_0(tmp_path: Path) -> None:
    tables = random_tables(KNOWN, 3)
    weights = tables.weights[0]
    assert weights is not None
    nothing = replace(tables, weights=(np.where(np.arange(len(weights)) % 2, weights, 0), *tables.weights[1:]))
    store = write_store(tmp_path / "store", nothing, partitions=2)
    made = found(tmp_path, store, WEIGHTED)
    assert made.instances == defined(Plain(store), WEIGHTED)
    assert made.instances != found(tmp_path / "all", write_store(tmp_path / "plain", tables, partitions=2), WEIGHTED)


def test_walks_by_weight_of_a_graph_without_weights_are_refused(tmp_path: Path) -> None:
    tables = random_tables(KNOWN, 3)
    store = write_store(tmp_path / "store", replace(tables, weights=(None, None)), partitions=2)
    with pytest.raises(ConfigError, match=r"neighbors.by.*the graph has none"):
        found(tmp_path, store, WEIGHTED)


@given(st.lists(st.lists(st.floats(2.0**-100, 2.0**100, width=32), max_size=6), max_size=5))
def test_parts_of_a_row_depend_on_its_own_weights_alone(rows: list[list[float]]) -> None:
    offsets = np.cumsum([0, *map(len, rows)])
    made = begins(offsets, np.array([each for row in rows for each in row], np.float32))
    for place, row in enumerate(rows):
        own = made[offsets[place] : offsets[place + 1]]
        alone = begins(np.array([0, len(row)]), np.array(row, np.float32))
        np.testing.assert_array_equal(own, alone)
        assert not len(row) or own[0] == 0
        assert np.all(np.diff(own.astype(np.int64)) >= 0)


@given(st.lists(st.integers(0, 9), max_size=40))
def test_occurrences_are_counted_of_either_width(nodes: list[int]) -> None:
    counted = [occurrences(np.array(nodes, dtype), 10).tolist() for dtype in (np.int32, np.int64)]
    assert counted == [[nodes.count(each) for each in range(10)]] * 2


def test_a_node_outside_of_the_graph_is_not_counted() -> None:
    with pytest.raises(IndexError, match="not in the graph"):
        occurrences(np.array([0, 3], np.int32), 3)
