"""`graph.degree_features`: two columns of features, which follow from the edges of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import Config, config_from_dict
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.narrow import NarrowRows
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_rows
from gnnflow.storage.graph_store import GraphStore
from tests import typed_graphs
from tests.ingest.test_links import LINK, ingested
from tests.small_graphs import graph_config, stored_x, write_graph
from tests.typed_graphs import typed_tables, write_tables

NAMES = ("log1p(in_degree)", "log1p(out_degree)")
ON: dict[str, Any] = {"degree_features": True}


def store_of(config: Config) -> GraphStore:
    """The store that ingest makes."""
    made = make_artifact(StageContext.of(config), "ingest")
    return GraphStore.of(made.artifact, made.manifest)


def rows_by_id(store: GraphStore, *, node_type: int = 0) -> dict[Any, np.ndarray]:
    """The features of the nodes of a type, by id."""
    tables = [store.nodes(part, ["id", "x"], node_type=node_type) for part in range(store.num_partitions)]
    ids = [name for table in tables for name in table["id"].to_pylist()]
    return dict(zip(ids, np.concatenate([stored_x(table["x"]) for table in tables]), strict=True))


def degrees_by_hand(ids: list[Any], tables: list[tuple[pa.Table, str]]) -> np.ndarray:
    """log1p of how often each id is among these columns of edge tables [N]."""
    listed = [name for table, column in tables for name in table[column].to_pylist()]
    return np.log1p([listed.count(name) for name in ids]).astype(np.float32)


def test_the_columns_are_the_logarithms_of_both_degrees_after_the_scaled_ones(tmp_path: Path) -> None:
    write_graph(tmp_path, hub=3)
    plain = rows_by_id(store_of(graph_config(tmp_path, graph={"normalize": "standard"})))
    store = store_of(graph_config(tmp_path, graph={"normalize": "standard", **ON}))
    rows, edges = rows_by_id(store), pq.read_table(tmp_path / "edges.parquet")
    ids = list(plain)
    found = np.stack([rows[name] for name in ids])
    np.testing.assert_array_equal(found[:, :5], np.stack([plain[name] for name in ids]))
    np.testing.assert_array_equal(found[:, 5], degrees_by_hand(ids, [(edges, "dst")]))
    np.testing.assert_array_equal(found[:, 6], degrees_by_hand(ids, [(edges, "src")]))
    assert store.facts.features.width == 7
    assert store.facts.columns_read["nodes"] == ("x", *NAMES)


def test_they_are_the_same_bytes_for_any_number_of_partitions(tmp_path: Path) -> None:
    write_graph(tmp_path)
    one, many = (rows_by_id(store_of(graph_config(tmp_path, graph={**ON, "partitions": each}))) for each in (1, 5))
    assert {name: row.tobytes() for name, row in one.items()} == {name: row.tobytes() for name, row in many.items()}


def test_a_typed_graph_adds_up_relations_and_a_type_without_columns_has_these_alone(tmp_path: Path) -> None:
    tables = typed_tables()
    graph = {**write_tables(tmp_path, tables), "degree_features": {"account": True, "device": True}}
    store, _ = typed_graphs.ingested(tmp_path, graph)
    pays, sends, uses = (
        tables[name] for name in ("account__pays__merchant", "account__sends__account", "account__uses__device")
    )
    accounts, devices = rows_by_id(store), rows_by_id(store, node_type=1)
    ids = list(accounts)
    found = np.stack([accounts[name] for name in ids])
    np.testing.assert_array_equal(found[:, 3], degrees_by_hand(ids, [(sends, "dst")]))
    out = [(pays, "src"), (sends, "src"), (uses, "src")]
    np.testing.assert_array_equal(found[:, 4], degrees_by_hand(ids, out))
    ids = list(devices)
    found = np.stack([devices[name] for name in ids])
    np.testing.assert_array_equal(found, np.stack([degrees_by_hand(ids, [(uses, "dst")]), np.zeros(len(ids))], 1))
    of_types = store.facts.features_of_types
    assert [None if each is None else (each.kind, each.width) for each in of_types] == [
        ("dense", 5),
        ("dense", 2),
        ("sparse", 9),
    ]


def test_ids_of_edge_tables_alone_get_them_too(tmp_path: Path) -> None:
    tables = typed_tables()
    graph = {**write_tables(tmp_path, tables), "degree_features": {"device": True}}
    graph["nodes"]["device"] = None
    rows = rows_by_id(typed_graphs.ingested(tmp_path, graph)[0], node_type=1)
    ids = list(rows)
    into = degrees_by_hand(ids, [(tables["account__uses__device"], "dst")])
    np.testing.assert_array_equal(np.stack([rows[name] for name in ids])[:, 0], into)


def test_a_held_out_edge_does_not_count(tmp_path: Path) -> None:
    write_graph(tmp_path)
    store, edges, pairs = ingested(graph_config(tmp_path, **LINK, graph=ON))
    rows = rows_by_id(store)
    assert pairs["test"]
    ids, messages = (
        list(rows),
        pa.table(dict(zip(("src", "dst"), map(pa.array, zip(*edges, strict=True)), strict=True))),
    )
    found = np.stack([rows[name] for name in ids])
    np.testing.assert_array_equal(found[:, 5], degrees_by_hand(ids, [(messages, "dst")]))
    np.testing.assert_array_equal(found[:, 6], degrees_by_hand(ids, [(messages, "src")]))


def test_rows_of_fewer_bytes_hold_them_and_their_errors(tmp_path: Path) -> None:
    write_graph(tmp_path)
    exact = rows_by_id(store_of(graph_config(tmp_path, graph=ON)))
    made = make_artifact(StageContext.of(graph_config(tmp_path, graph={**ON, "storage": "float16"})), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    form = store.facts.features.narrow
    assert isinstance(form, NarrowRows)
    for part in range(store.num_partitions):
        table = store.nodes(part, ["id", "x"])
        expected = np.stack([exact[name] for name in table["id"].to_pylist()])
        np.testing.assert_array_equal(form.decode(to_rows(table["x"])), expected.astype(np.float16))
    assert made.facts(GraphFacts).column_errors["nodes"].names[-2:] == NAMES


def test_steps_between_ends_that_are_not_known_are_refused(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with pytest.raises(ConfigError, match=r"degree_features.*graph.storage is int8"):
        graph_config(tmp_path, graph={**ON, "storage": "int8"})


def test_sparse_features_are_refused_with_the_types_that_can_have_them(tmp_path: Path) -> None:
    graph = {**write_tables(tmp_path, typed_tables()), **ON}
    with pytest.raises(TableError, match=r"'x' of the node table of merchant is sparse.*\{TYPE: true\}"):
        typed_graphs.ingested(tmp_path, graph)


def test_only_a_graph_that_asks_for_them_has_them_in_its_fingerprint(tmp_path: Path) -> None:
    write_graph(tmp_path)
    assert "degree_features" not in graph_config(tmp_path).model_dump()["graph"]
    assert graph_config(tmp_path, graph=ON).model_dump()["graph"]["degree_features"] is True


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    graph = {**write_tables(tmp_path, typed_tables()), "degree_features": {"devise": True}}
    with pytest.raises(ConfigError, match="devise"):
        config_from_dict({"name": "typed", "workspace": str(tmp_path / "runs"), "graph": graph})


def test_nodes_of_one_type_need_no_other_columns(tmp_path: Path) -> None:
    write_graph(tmp_path)
    graph = {
        "nodes": {"node": str(tmp_path / "nodes.parquet")},
        "edges": {"node__joins__node": str(tmp_path / "edges.parquet")},
        "features": {"node": []},
    }
    rows = rows_by_id(store_of(graph_config(tmp_path, graph={**graph, **ON})))
    edges, ids = pq.read_table(tmp_path / "edges.parquet"), list(rows)
    found = np.stack([rows[name] for name in ids])
    np.testing.assert_array_equal(found[:, 0], degrees_by_hand(ids, [(edges, "dst")]))
    assert found.shape[1] == len(NAMES)
