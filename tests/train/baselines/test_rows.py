"""Rows of baselines against a plain reading of the tables: draws, columns and averages of in-neighbours."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from gnnflow.config import config_from_dict
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.baselines import rows
from gnnflow.train.baselines.rows import draw_rows, neighbor_columns, own_columns
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path


def store_of(folder: Path, partitions: int) -> GraphStore:
    made = make_artifact(StageContext.of(graph_config(folder, graph={"partitions": partitions})), "ingest")
    return GraphStore.of(made.artifact, made.manifest)


def ids_of(store: GraphStore, nodes: np.ndarray) -> list[int]:
    every = [store.nodes(part, ["id"])["id"].to_pylist() for part in range(store.num_partitions)]
    ids = list(chain.from_iterable(every))
    return [ids[node] for node in nodes]


def test_a_draw_is_the_same_nodes_in_any_number_of_partitions(tmp_path: Path) -> None:
    write_graph(tmp_path)
    drawn = []
    for partitions in (1, 3):
        store = store_of(tmp_path, partitions)
        found = draw_rows(store, "train", most=7, seed=0)
        drawn.append(dict(zip(ids_of(store, found.nodes), found.labels.tolist(), strict=True)))
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 7
    table = pq.read_table(tmp_path / "nodes.parquet")
    held_rows = {row["id"]: row for row in table.select(["id", "split", "label"]).to_pylist()}
    assert all(held_rows[node]["split"] == "train" for node in drawn[0])
    assert all(held_rows[node]["label"] == held for node, held in drawn[0].items())


@pytest.mark.parametrize("gathered", [1, 4_000_000])
def test_columns_are_the_nodes_own_and_the_averages_of_their_in_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gathered: int
) -> None:
    """In pieces of one edge too, with a node that has no in-edge and a hub of which all edges are averaged."""
    monkeypatch.setattr(rows, "_GATHERED", gathered)
    monkeypatch.setattr(rows, "MOST_NEIGHBORS", 1000)
    write_graph(tmp_path, hub=4, num_edges=90)
    store = store_of(tmp_path, 3)
    nodes = np.arange(0, store.book.num_nodes, 2)
    table, edges = (pq.read_table(tmp_path / name) for name in ("nodes.parquet", "edges.parquet"))
    own = dict(zip(table["id"].to_pylist(), to_matrix(table["x"]), strict=True))
    sources: dict[int, list[int]] = {}
    for src, dst in zip(edges["src"].to_pylist(), edges["dst"].to_pylist(), strict=True):
        sources.setdefault(dst, []).append(src)
    ids = ids_of(store, nodes)
    assert np.array_equal(own_columns(store, nodes), np.array([own[node] for node in ids]))
    missing = np.full(5, np.nan)
    means = [np.mean([own[src] for src in sources[node]], axis=0) if node in sources else missing for node in ids]
    found = neighbor_columns(store, nodes)
    assert np.allclose(found[:, :-1], means, atol=1e-6, equal_nan=True)
    assert found[:, -1].tolist() == [len(sources.get(node, [])) for node in ids]
    assert np.isnan(found[:, 0]).any()


def test_a_hub_averages_so_many_in_edges_and_its_degree_counts_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MOST_NEIGHBORS", 3)
    write_graph(tmp_path, hub=4)
    store = store_of(tmp_path, 3)
    nodes = np.arange(store.book.num_nodes)
    kept = [rows._kept_edges(store, part, nodes[run], 0) for part, run in rows._runs(store, nodes)]
    assert max(int(np.bincount(each.rows).max()) for each in kept) == 3
    assert max(int(each.degrees.max()) for each in kept) > 100


def test_each_relation_of_a_typed_graph_has_its_own_averages(tmp_path: Path) -> None:
    """Of sparse rows without values too; a relation from a type without features adds nothing."""
    tables = typed_tables()
    graph = {**write_tables(tmp_path, tables), "target": "account", "reverse_edges": True, "partitions": 3}
    config = {"name": "typed", "workspace": str(tmp_path / "runs"), "graph": graph, "cluster": {"kind": "synchronous"}}
    made = make_artifact(StageContext.of(config_from_dict(config)), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    target = store.facts.target_type
    tables_of = [store.nodes(part, ["id", "node"], node_type=target) for part in range(store.num_partitions)]
    ids = {row["node"]: row["id"] for table in tables_of for row in table.to_pylist()}
    nodes = np.array(sorted(ids))
    names = [str(store.schema.relations[number]) for number in rows.neighbor_relations(store)]
    assert sorted(names) == ["account__rev_sends__account", "account__sends__account", "merchant__rev_pays__account"]
    found = np.split(neighbor_columns(store, nodes), np.cumsum(widths_of(store))[:-1], axis=1)
    merchants = tables["merchant"].to_pylist()
    sparse = {row["id"]: np.bincount(row["x_index"], minlength=9) for row in merchants}
    pays = tables["account__pays__merchant"]
    sources: dict[int, list[int]] = {}
    for account, merchant in zip(pays["src"].to_pylist(), pays["dst"].to_pylist(), strict=True):
        sources.setdefault(account, []).append(merchant)
    width = store.facts.features_of_types[store.schema.types.index("merchant")].width
    for node, row in zip(nodes.tolist(), found[names.index("merchant__rev_pays__account")], strict=True):
        own = sources.get(ids[node], [])
        assert row[-1] == len(own)
        if own:
            assert np.allclose(row[:-1], np.mean([sparse[each][:width] for each in own], axis=0), atol=1e-6)


def widths_of(store: GraphStore) -> list[int]:
    kinds = store.facts.features_of_types
    return [kinds[store.schema.source_types[number]].width + 1 for number in rows.neighbor_relations(store)]
