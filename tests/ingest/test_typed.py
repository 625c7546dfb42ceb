"""A store of several types holds exactly the graph of its tables, as a naive construction of it has it."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.config import GraphConfig
from gnnflow.graph.errors import TableError
from gnnflow.graph.facts import BadRows, FeatureFacts, RowCounts
from gnnflow.graph.schema import Relation
from gnnflow.ingest.subsample import read_subsample
from gnnflow.progress import Silent
from gnnflow.sampling import edge_keys
from gnnflow.storage.columns import id_keys, to_matrix, to_numpy
from gnnflow.storage.graph_store import GraphStore
from tests.budget import examples
from tests.small_graphs import stored_x, write_graph
from tests.typed_graphs import SIZES, ingested, typed_tables, write_tables

HELD = {"account": ["x", "label", "labelled", "split"], "device": [], "merchant": ["x_index"]}


def types_of(tables: dict[str, pa.Table]) -> list[str]:
    return sorted(name for name in tables if "__" not in name)


def naive_order(tables: dict[str, pa.Table], partitions: int) -> dict[tuple[str, Any], int]:
    """Return the dense id of each (type, id): by partition, type and id."""
    nodes = []
    for number, name in enumerate(types_of(tables)):
        ids = tables[name]["id"]
        homes = (id_keys(ids) % np.uint64(partitions)).tolist()
        nodes += [(home, number, node, name) for home, node in zip(homes, ids.to_pylist(), strict=True)]
    return {(name, node): dense for dense, (_, _, node, name) in enumerate(sorted(nodes))}


def naive_edges(tables: dict[str, pa.Table], dense: dict[tuple[str, Any], int], name: str) -> list[dict[str, Any]]:
    """Return a relation's edges with dense ids, sorted, turned round where it is a reverse relation."""
    relation = Relation.parse(name)
    assert relation is not None
    turned = relation.name.startswith("rev_")
    table = tables[str(Relation(relation.target, relation.name[4:], relation.source)) if turned else name]
    rows = table.to_pylist()
    if turned:
        rows = [{**row, "src": row["dst"], "dst": row["src"]} for row in rows]
    for row in rows:
        row["ids"] = (row["dst"], row["src"])
        row["dst"], row["src"] = dense[relation.target, row["dst"]], dense[relation.source, row["src"]]
    rows.sort(key=lambda row: (row["dst"], row["src"]))
    seen: Counter[tuple[int, int]] = Counter()
    for row in rows:
        row["occurrence"] = seen[row["dst"], row["src"]]
        seen[row["dst"], row["src"]] += 1
    return rows


def check_edges(store: GraphStore, tables: dict[str, pa.Table], dense: dict[tuple[str, Any], int]) -> None:
    """Assert that every relation's in-edges, their columns and the degrees they give are those of the tables."""
    num_nodes, graph = len(dense), store.schema
    held = pa.concat_tables([pa.table(_degree_columns(store, partition)) for partition in range(store.num_partitions)])
    for number, relation in enumerate(graph.relations):
        found = pa.concat_tables([_edges(store, partition, number) for partition in range(store.num_partitions)])
        rows = naive_edges(tables, dense, str(relation))
        assert found["dst"].to_pylist() == [row["dst"] for row in rows]
        assert found["src"].to_pylist() == [row["src"] for row in rows]
        dst_ids, src_ids = (pa.array([row["ids"][side] for row in rows]) for side in (0, 1))
        occurrence = np.array([row["occurrence"] for row in rows])
        keys = edge_keys(id_keys(dst_ids), id_keys(src_ids), occurrence, relation=str(relation))
        assert np.array_equal(to_numpy(found["edge_key"]), keys)
        for column in ("weight", "amount"):
            stored = "attributes" if column == "amount" else column
            assert (stored in found.column_names) == (column in rows[0])
        weights = np.array([row.get("weight", 1) for row in rows])
        if "weight" in rows[0]:
            assert np.array_equal(to_numpy(found["weight"]), weights.astype(np.float32))
        if "amount" in rows[0]:
            assert to_matrix(found["attributes"])[:, 0].tolist() == [row["amount"] for row in rows]
        dst, src = np.array([row["dst"] for row in rows]), np.array([row["src"] for row in rows])
        for name, expected in (
            ("in_degree", np.bincount(dst, minlength=num_nodes)),
            ("out_degree", np.bincount(src, minlength=num_nodes)),
            ("in_weight", np.bincount(dst, weights, minlength=num_nodes)),
        ):
            assert np.allclose(to_matrix(held[name], np.float64)[:, number], expected, rtol=1e-6)
        facts = store.facts.relations[number]
        assert (facts.name, facts.num_edges) == (str(relation), len(rows))
        assert facts.max_in_degree == np.bincount(dst).max()
        assert sum(facts.degree_bins) == SIZES[relation.target]


def _degree_columns(store: GraphStore, partition: int) -> dict[str, Any]:
    parts = [
        store.nodes(partition, ["in_degree", "out_degree", "in_weight"], node_type=number)
        for number in range(store.schema.num_types)
    ]
    degrees, held = pa.concat_tables(parts).combine_chunks(), store.degrees(partition)
    assert np.array_equal(to_matrix(degrees["in_degree"], np.int64), held.in_degree)
    return {name: degrees[name] for name in degrees.column_names}


def _edges(store: GraphStore, partition: int, relation: int) -> pa.Table:
    facts = store.facts.relations[relation]
    columns = ["weight"] if facts.has_weight else []
    columns += ["attributes"] if facts.attribute_width else []
    return store.edges(partition, ["dst", "src", "edge_key", *columns], relation=relation)


def check_nodes(store: GraphStore, tables: dict[str, pa.Table], dense: dict[tuple[str, Any], int]) -> None:
    """Assert that every type's nodes lie where they should, with their features, labels and splits."""
    for number, name in enumerate(types_of(tables)):
        columns = [
            "id",
            "node",
            "key",
            *{"account": ["x", "label", "labelled", "split"], "merchant": ["x_index"]}.get(name, []),
        ]
        parts = [store.nodes(partition, columns, node_type=number) for partition in range(store.num_partitions)]
        for partition, part in enumerate(parts):
            rows = store.book.rows(partition, number)
            start = store.book.start(partition)
            assert part["node"].to_pylist() == list(range(start + rows.start, start + rows.stop))
            assert set(store.book.type_of(to_numpy(part["node"])).tolist()) <= {number}
        found = pa.concat_tables(parts)
        assert [dense[name, node] for node in found["id"].to_pylist()] == found["node"].to_pylist()
        assert len(found) == SIZES[name] == store.facts.types[number].num_nodes
        assert np.array_equal(to_numpy(found["key"]), id_keys(found["id"]))
        given = tables[name].take(pc.index_in(found["id"], value_set=tables[name]["id"].cast(found["id"].type)))
        if name == "account":
            assert np.array_equal(stored_x(found["x"]), to_matrix(given["x"]))
            assert found["label"].to_pylist() == given["label"].to_pylist()
        if name == "merchant":
            assert found["x_index"].to_pylist() == given["x_index"].to_pylist()


@settings(max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 10**6), partitions=st.integers(1, 5), reverse=st.booleans())
def test_the_store_holds_the_graph_of_its_tables(seed: int, partitions: int, reverse: bool) -> None:
    tables = typed_tables(seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        graph = write_tables(Path(folder), tables, row_group_size=50)
        store, _ = ingested(Path(folder), {**graph, "partitions": partitions, "reverse_edges": reverse})
        dense = naive_order(tables, partitions)
        assert store.schema.num_relations == (6 if reverse else 3)
        check_nodes(store, tables, dense)
        check_edges(store, tables, dense)
    facts = store.facts
    assert (facts.target, facts.id_type, facts.labelled) == ("account", "int64", SIZES["account"])
    assert facts.splits == {"none": 10, "train": 10, "valid": 10, "test": 10}
    assert facts.features == FeatureFacts("dense", 3, has_value=False)
    assert [each.features and each.features.kind for each in facts.types] == ["dense", None, "sparse"]
    assert facts.tables["nodes/device"] == RowCounts(13, 13, 0)
    assert facts.tables["edges/account__uses__device"] == RowCounts(120, 120, 0)


def test_several_relations_of_one_type_are_a_typed_graph(tmp_path: Path) -> None:
    every = typed_tables(seed=5)
    tables = {name: every[name] for name in ("account", "account__sends__account")}
    tables["account__trusts__account"] = typed_tables(seed=5, num_edges=50)["account__sends__account"]
    graph = {**write_tables(tmp_path, tables), "edge_features": [], "target": None, "reverse_edges": True}
    store, _ = ingested(tmp_path, graph)
    assert (store.schema.num_types, store.schema.num_relations, store.facts.target) == (1, 4, "account")
    check_nodes(store, tables, naive_order(tables, 3))
    check_edges(store, tables, naive_order(tables, 3))


@settings(max_examples=examples(4), deadline=None)
@given(seed=st.integers(0, 10**6), reverse=st.booleans())
def test_the_bytes_ignore_row_order_and_chunks(seed: int, reverse: bool) -> None:
    tables = typed_tables(seed=seed, parallel=False)
    rng, digests, columns = np.random.default_rng(seed), set(), set()
    for size in (1 << 20, 7):
        with tempfile.TemporaryDirectory() as folder:
            graph = write_tables(Path(folder), tables, row_group_size=size)
            store, manifest = ingested(Path(folder), {**graph, "reverse_edges": reverse})
        digests.add(manifest.digest)
        columns.add(store.facts.columns)
        tables = {name: table.take(rng.permutation(len(table))) for name, table in tables.items()}
    assert len(digests) == len(columns) == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_maps_of_one_entry_have_the_bytes_of_paths(tmp_path: Path, reverse: bool) -> None:
    write_graph(tmp_path, hub=3)
    paths: dict[str, Any] = {"nodes": str(tmp_path / "nodes.parquet"), "edges": str(tmp_path / "edges.parquet")}
    shared = {"partitions": 3, "reverse_edges": reverse}
    maps = {
        "nodes": {"paper": paths["nodes"]},
        "edges": {"paper__cites__paper": paths["edges"]},
        "features": {"paper": ["x"]},
        "edge_features": {"paper__cites__paper": ["amount", "hour"]},
        "target": "paper",
    }
    store, manifest = ingested(tmp_path / "a", {**paths, "edge_features": ["amount", "hour"], **shared})
    other, again = ingested(tmp_path / "b", {**maps, **shared})
    assert manifest.digest == again.digest
    assert store.facts == other.facts
    assert [entry.name for entry in manifest.files] == [entry.name for entry in again.files]


def test_a_map_of_features_says_what_each_type_has(tmp_path: Path) -> None:
    graph = write_tables(tmp_path, typed_tables())
    maps = {"features": {"merchant": ["x"], "device": []}, "edge_features": {"account__pays__merchant": ["amount"]}}
    store, _ = ingested(tmp_path, {**graph, **maps})
    assert [each.features for each in store.facts.types] == [None, None, FeatureFacts("sparse", 9, has_value=False)]
    assert store.facts.features == FeatureFacts("dense", 0, has_value=False)
    assert [each.attribute_width for each in store.facts.relations] == [1, 0, 0]


def test_each_type_is_scaled_by_its_own_moments(tmp_path: Path) -> None:
    tables = typed_tables()
    merchants = tables["merchant"].drop_columns(["x_index"])
    tables["merchant"] = merchants.append_column("x", pa.array(np.arange(25, dtype=np.float32) * 1000))
    store, _ = ingested(tmp_path, {**write_tables(tmp_path, tables), "normalize": "standard"})
    for number in (0, 2):
        parts = [store.nodes(partition, ["x"], node_type=number) for partition in range(3)]
        x = stored_x(pa.concat_tables(parts)["x"])
        assert np.allclose(x.mean(0), 0, atol=1e-5)
        assert np.allclose(x.std(0), 1, atol=1e-4)
    names = [column.name for column in store.facts.columns]
    assert names == ["account: x[0]", "account: x[1]", "account: x[2]", "merchant: x"]


def test_bad_rows_are_set_aside_by_type_and_relation(tmp_path: Path) -> None:
    tables = typed_tables(parallel=False)
    tables["device"] = pa.concat_tables([tables["device"], tables["device"].slice(0, 2)])
    uses = tables["account__uses__device"]
    lost = pa.table({"src": [1, 10**6], "dst": ["no such device", "device 0"]}, schema=uses.schema)
    tables["account__uses__device"] = pa.concat_tables([uses, lost])
    graph = {**write_tables(tmp_path, tables), "on_bad_rows": "quarantine", "max_bad_rows": 1}
    store, manifest = ingested(tmp_path, graph)
    counts = store.facts.tables
    twice = BadRows("id", "id appears more than once", 2)
    unknown = [
        BadRows("dst", "dst is not an id of the node table of device", 1),
        BadRows("src", "src is not an id of the node table of account", 1),
    ]
    assert counts["nodes/device"] == RowCounts(15, 13, 2, (twice,))
    assert counts["edges/account__uses__device"] == RowCounts(len(uses) + 2, len(uses), 2, tuple(unknown))
    assert all(each.rows_quarantined == 0 for name, each in counts.items() if "device" not in name)
    names = [entry.name for entry in manifest.files if entry.name.startswith("quarantine/")]
    assert all("nodes-device-sort-" in name or "edges-account__uses__device-" in name for name in names)
    reasons = [text for name in names for text in pq.read_table(tmp_path / "store" / name)["reason"].to_pylist()]
    assert sorted(reasons) == [
        "dst is not an id of the node table of device",
        *["id appears more than once"] * 2,
        "src is not an id of the node table of account",
    ]


def test_an_error_names_the_table_of_the_type(tmp_path: Path) -> None:
    tables = typed_tables()
    tables["device"] = pa.concat_tables([tables["device"], tables["device"].slice(0, 2)])
    with pytest.raises(TableError, match=r"device\.parquet.*id appears more than once"):
        ingested(tmp_path, write_tables(tmp_path, tables))


def test_ids_of_text_files_are_integers_type_by_type(tmp_path: Path) -> None:
    tables = {name: table for name, table in typed_tables(seed=3).items() if "merchant" not in name}
    graph = write_tables(tmp_path, tables)
    from_parquet, _ = ingested(tmp_path / "a", {**graph, "edge_features": []})
    for name in ("device", "account__uses__device", "account__sends__account"):
        pa_csv.write_csv(tables[name], tmp_path / f"{name}.csv")
        held = graph["edges" if "__" in name else "nodes"]
        held[name] = held[name].replace(".parquet", ".csv")
    from_csv, _ = ingested(tmp_path / "b", {**graph, "edge_features": []})
    for number in range(2):
        ids = [store.nodes(1, ["id"], node_type=number)["id"] for store in (from_parquet, from_csv)]
        assert ids[0].to_pylist() == ids[1].to_pylist()
        assert pa.types.is_integer(ids[1].type) == (number == 0)


def test_ids_of_an_edge_table_have_the_type_of_the_node_table(tmp_path: Path) -> None:
    tables = typed_tables()
    uses = tables["account__uses__device"]
    tables["account__uses__device"] = uses.set_column(1, "dst", pa.array(np.arange(len(uses))))
    words = r"uses__device\.parquet.*'dst' holds int64 ids, 'id' of the node table of device holds"
    with pytest.raises(TableError, match=words):
        ingested(tmp_path, write_tables(tmp_path, tables))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("features", ["y", "z"], "no node table has any of the columns y, z"),
        ("edge_features", ["amount", "hour"], "no edge table has a column 'hour'"),
        ("features", {"device": ["x"]}, r"device\.parquet.*has no column 'x'"),
        ("edge_features", {"account__uses__device": ["amount"]}, r"uses__device\.parquet.*has no column 'amount'"),
        ("label", "kind", r"account\.parquet.*has no column 'kind'"),
    ],
)
def test_columns_that_no_table_has_are_refused(tmp_path: Path, key: str, value: Any, words: str) -> None:
    with pytest.raises(TableError, match=words):
        ingested(tmp_path, {**write_tables(tmp_path, typed_tables()), key: value})


@pytest.mark.parametrize(
    ("table", "column", "graph", "fix"),
    [
        ("device", "id", {}, "Call the column 'id' here too, or name this table's own: graph.id: {device: COLUMN}"),
        ("account__uses__device", "dst", {}, "own: graph.dst: {account__uses__device: COLUMN}"),
        (
            "account",
            "age",
            {"features": ["x", "age"]},
            "give graph.features as {type: columns} with those that account has",
        ),
        ("account", "x", {"features": {"account": ["x"]}}, "Set graph.features.account to one of them"),
        ("account", "label", {"label": "label"}, "Set graph.label to one of them"),
    ],
)
def test_a_column_that_one_of_several_tables_lacks_is_told_what_helps(
    tmp_path: Path, table: str, column: str, graph: dict[str, Any], fix: str
) -> None:
    tables = typed_tables()
    held = tables[table]
    tables[table] = held.rename_columns([f"{name}_" if name == column else name for name in held.column_names])
    with pytest.raises(TableError) as caught:
        ingested(tmp_path, {**write_tables(tmp_path, tables), **graph})
    assert caught.value.where.endswith(f"{table}.parquet")
    assert fix in caught.value.fix


def test_a_subsample_says_the_same_of_ids(tmp_path: Path) -> None:
    tables = typed_tables()
    tables["device"] = tables["device"].rename_columns({"id": "serial"})
    config = GraphConfig(**write_tables(tmp_path, tables))
    with pytest.raises(
        TableError, match=r"Call the column 'id' here too, or name this table's own: graph\.id: .device: COLUMN"
    ):
        read_subsample(config, targets=None, smallest=1, largest=10, progress=Silent())


def test_the_only_table_may_call_its_ids_otherwise(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    pq.write_table(nodes.rename_columns({"id": "serial"}), tmp_path / "nodes.parquet")
    graph = {name: str(tmp_path / f"{name}.parquet") for name in ("nodes", "edges")}
    with pytest.raises(TableError, match=r"Set graph\.id to one of them, or write the column"):
        ingested(tmp_path, graph)
