"""Selection among the in-edges of several relations: each relation is sampled by itself, with its own fan-outs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gnnflow.graph.errors import ConfigError
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.direct import SelectJob, SelectResult, run_rounds
from gnnflow.neighbors.selected import Neighbors
from gnnflow.sampling import priorities
from gnnflow.storage.columns import to_numpy
from tests.fanouts import sampling_of
from tests.graphfeature.random_graphs import assert_same
from tests.typed_stores import KNOWN, PAYMENTS, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.storage.graph_store import GraphStore

KEPT = (2, 1, 5, 3, 4)
"""The most in-edges kept of a node in each relation of the payments graph."""


def select(store: GraphStore, folder: Path, kind: Any, kept: Any, threshold: int = 10**6) -> SelectResult:
    job = SelectJob(str(folder / "selected"), store, kind, kept, 5, threshold)
    return run_rounds(job, RoundRunner(str(folder / "select"), Synchronous()))


def selected(store: GraphStore, folder: Path, kind: Any, fanouts: Any, threshold: int = 10**6) -> Neighbors:
    """Return the neighbours that a config with these fan-outs selects, with seed 5."""
    if fanouts is None:
        return Neighbors(store)
    select(store, folder, kind, sampling_of(fanouts, kind).most, threshold)
    return Neighbors(store, str(folder / "selected"), sampling_of(fanouts, kind))


@pytest.mark.table(4)
@pytest.mark.parametrize("threshold", [1, 4, 10**6])
@pytest.mark.parametrize("kind", ["uniform", "weighted", "top_k"])
def test_each_node_keeps_the_first_edges_of_each_relation(tmp_path: Path, kind: Any, threshold: int) -> None:
    store = write_store(tmp_path / "store", random_tables(PAYMENTS, 1, hub=2), partitions=3)
    result = select(store, tmp_path, kind, KEPT, threshold)
    neighbors = Neighbors(store, str(tmp_path / "selected"), sampling_of((KEPT,), kind))
    total = 0
    for partition in range(3):
        edges = neighbors.in_edges(partition)
        total += edges.num_edges
        for relation, kept in enumerate(KEPT):
            columns = store.edge_columns_of(relation)
            table = store.edges(partition, ["dst", "src", "edge_key", *columns], relation=relation)
            weight = to_numpy(table["weight"]) if "weight" in columns else np.ones(table.num_rows, np.float32)
            keys = to_numpy(table["edge_key"])
            order = priorities(keys, kind=kind, seed=5, weight=None if kind == "uniform" else weight)
            dst = to_numpy(table["dst"]) - store.book.start(partition)
            own = edges.relation(relation)
            for row in range(store.book.size(partition)):
                mine = np.flatnonzero(dst == row)
                mine = mine[np.lexsort((keys[mine], order[mine]))][:kept]
                held = slice(*own.offsets[row : row + 2])
                assert own.sources[held].tolist() == to_numpy(table["src"])[mine].tolist()
                assert own.weight is not None
                assert own.weight[held].tolist() == weight[mine].tolist()
    assert total == result.num_edges
    assert (result.num_hubs > 0) == (threshold < 10**6)


@pytest.mark.table(2)
@pytest.mark.parametrize("kind", ["uniform", "weighted", "top_k"])
def test_hubs_change_no_byte(tmp_path: Path, kind: Any) -> None:
    store = write_store(tmp_path / "store", random_tables(PAYMENTS, 7, hub=2), partitions=3)
    split, whole = (select(store, tmp_path / str(most), kind, KEPT, most) for most in (1, 10**6))
    assert [(each.name, each.sha256) for each in split.files] == [(each.name, each.sha256) for each in whole.files]
    assert len(whole.files) == 15
    assert split.num_edges == whole.num_edges


def sampled(folder: Path, partitions: int) -> list[tuple[int, int, int]]:
    """Every kept edge as (relation, id of its target, id of its source)."""
    store = write_store(folder / "store", random_tables(PAYMENTS, 3), partitions=partitions)
    neighbors = selected(store, folder, "uniform", (KEPT,))
    ids = np.empty(store.facts.num_nodes, np.int64)
    for partition in range(partitions):
        for number in range(3):
            table = store.nodes(partition, ["id", "node"], node_type=number)
            ids[to_numpy(table["node"])] = to_numpy(table["id"])
    found = []
    for partition in range(partitions):
        edges = neighbors.in_edges(partition)
        for relation in range(5):
            own = edges.relation(relation)
            dst = np.repeat(np.arange(own.num_targets) + store.book.start(partition), own.lengths)
            found += [(relation, *pair) for pair in zip(ids[dst].tolist(), ids[own.sources].tolist(), strict=True)]
    return sorted(found)


def test_the_sample_ignores_partition_count(tmp_path: Path) -> None:
    assert sampled(tmp_path / "one", 1) == sampled(tmp_path / "five", 5)


def test_fan_outs_nest(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", random_tables(PAYMENTS, 4), partitions=2)
    small = (1, 1, 2, 3, 2)
    few, many = (selected(store, tmp_path / str(kept[0]), "uniform", (kept,)) for kept in (small, KEPT))
    for partition in range(2):
        nodes = np.arange(store.book.size(partition))
        edges = many.in_edges(partition)
        picked = edges.prefix(nodes, limit=small)
        assert_same(edges.take(picked.positions, offsets=picked.offsets), few.in_edges(partition))


def test_relations_of_equal_ends_are_sampled_apart(tmp_path: Path) -> None:
    tables = random_tables(KNOWN, 5)
    same = tables.__class__(KNOWN, tables.ids, (tables.ends[1],) * 2, (None, None), (None, None), 5)
    store = write_store(tmp_path / "store", same, partitions=1)
    edges = selected(store, tmp_path, "uniform", (2,)).in_edges(0)
    assert edges.relation(0).lengths.tolist() == edges.relation(1).lengths.tolist()
    assert edges.relation(0).sources.tolist() != edges.relation(1).sources.tolist()


def test_weighted_sampling_needs_weights_in_some_relation(tmp_path: Path) -> None:
    tables = random_tables(KNOWN, 5)
    bare = tables.__class__(KNOWN, tables.ids, tables.ends, (None, None), (None, None), 5)
    store = write_store(tmp_path / "store", bare, partitions=1)
    with pytest.raises(ConfigError, match="the graph has none"):
        select(store, tmp_path, "weighted", 2)


def test_the_most_that_is_kept_is_the_largest_of_all_hops() -> None:
    assert sampling_of((3, 7)).most == 7
    assert sampling_of(((3, 1), (2, 4))).most == (3, 4)
