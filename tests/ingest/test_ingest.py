"""The graph store holds exactly the graph of the tables, whatever the partitions, files and row order."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.facts import BadRows, GraphFacts, RowCounts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import GraphStore
from tests.small_graphs import graph_config, stored_x, write_graph

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.stages.base import ArtifactResult


def ingest_config(folder: Path, **sections: Any) -> ArtifactResult:
    return make_artifact(StageContext.of(graph_config(folder, **sections)), "ingest")


def whole(result: ArtifactResult) -> tuple[pa.Table, pa.Table]:
    """Return all nodes and all edges of a store, edges with the users' ids."""
    store = GraphStore.of(result.artifact, result.manifest)
    parts = range(store.num_partitions)
    nodes = pa.concat_tables(
        [store.nodes(p, ["id", "node", "key", "in_degree", "out_degree", "in_weight", "split", "x"]) for p in parts]
    )
    edges = pa.concat_tables([store.edges(p, ["dst", "src", "edge_key", *store.edge_columns]) for p in parts])
    for side in ("src", "dst"):
        edges = edges.append_column(f"{side}_id", nodes["id"].take(edges[side]))
    return nodes, edges


def edge_multiset(edges: pa.Table, src: str, dst: str) -> list[tuple[Any, ...]]:
    weight = pc.cast(edges["weight"], pa.float32()).to_pylist()
    return sorted(zip(edges[src].to_pylist(), edges[dst].to_pylist(), weight, strict=True))


@pytest.mark.table(3)
@pytest.mark.parametrize("string_ids", [False, True])
@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_the_store_holds_the_tables_graph(tmp_path: Path, partitions: int, string_ids: bool) -> None:
    write_graph(tmp_path, string_ids=string_ids)
    result = ingest_config(tmp_path, graph={"partitions": partitions})
    nodes, edges = whole(result)
    table_nodes, table_edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    assert nodes["node"].to_pylist() == list(range(len(table_nodes)))
    assert sorted(nodes["id"].to_pylist()) == sorted(table_nodes["id"].to_pylist())
    assert edge_multiset(edges, "src_id", "dst_id") == edge_multiset(table_edges, "src", "dst")
    order = pc.index_in(nodes["id"], value_set=table_nodes["id"].cast(nodes["id"].type).combine_chunks())
    assert np.array_equal(stored_x(nodes["x"]), to_matrix(table_nodes["x"].take(order)))
    dst, src = edges["dst"].to_numpy(), edges["src"].to_numpy()
    assert np.array_equal(nodes["in_degree"].to_numpy(), np.bincount(dst, minlength=len(nodes)))
    assert np.array_equal(nodes["out_degree"].to_numpy(), np.bincount(src, minlength=len(nodes)))
    weight = np.bincount(dst, edges["weight"].to_numpy(), minlength=len(nodes))
    assert np.allclose(nodes["in_weight"].to_numpy(), weight, atol=1e-5)


def test_edge_keys_ignore_partition_count(tmp_path: Path) -> None:
    write_graph(tmp_path)
    keys = []
    for partitions in (1, 4):
        _, edges = whole(ingest_config(tmp_path, graph={"partitions": partitions}))
        rows = zip(*(edges[name].to_pylist() for name in ("src_id", "dst_id", "weight", "edge_key")), strict=True)
        keys.append(sorted(rows))
    assert keys[0] == keys[1]
    assert len({row[3] for row in keys[0]}) == len(keys[0])


def test_edges_lie_sorted_by_destination(tmp_path: Path) -> None:
    write_graph(tmp_path, hub=4)
    result = ingest_config(tmp_path)
    store = GraphStore.of(result.artifact, result.manifest)
    for partition in range(store.num_partitions):
        table = store.edges(partition, ["dst", "src"])
        pairs = list(zip(table["dst"].to_pylist(), table["src"].to_pylist(), strict=True))
        assert pairs == sorted(pairs)
        assert set(store.book.owner(table["dst"].to_numpy())) <= {partition}


def test_rows_in_are_rows_out_and_quarantined(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes, edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    label = nodes["label"].to_numpy().copy()
    label[3] = -7
    repeated = nodes.set_column(2, "label", pa.array(label)).slice(0, 6)
    pq.write_table(
        pa.concat_tables([nodes.set_column(2, "label", pa.array(label)), repeated]), tmp_path / "nodes.parquet"
    )
    weight = edges["weight"].to_numpy().copy()
    weight[[1, 2]] = -1
    src = edges["src"].to_numpy().copy()
    src[10] = 10**6
    broken = edges.set_column(0, "src", pa.array(src)).set_column(2, "weight", pa.array(weight))
    pq.write_table(broken, tmp_path / "edges.parquet")
    result = ingest_config(tmp_path, graph={"on_bad_rows": "quarantine", "max_bad_rows": 1})
    counts = result.facts(GraphFacts).tables
    # the row with the bad label stands twice, and five others do
    repeated_ids = BadRows("id", "id appears more than once", 5, labelled=5)
    labels = BadRows("label", "label out of range: allowed is -1 (unlabelled) or more", 2, labelled=2)
    assert counts["nodes"] == RowCounts(66, 59, 7, (repeated_ids, labels), labelled_in=66)
    dropped = nodes["id"].to_numpy()[3]
    dangling = int(np.sum((src == dropped) | (edges["dst"].to_numpy() == dropped) | (src == 10**6) | (weight < 0)))
    assert (counts["edges"].rows_in, counts["edges"].rows_out) == (400, 400 - dangling)
    by_reason = {(each.column, each.reason): each.rows for each in counts["edges"].reasons}
    assert by_reason["weight", "weight is negative"] == 2
    assert by_reason["src", "src is not an id of the node table"] >= 1
    assert sum(by_reason.values()) == counts["edges"].rows_quarantined == dangling
    assert sorted(by_reason.values(), reverse=True) == list(by_reason.values())
    held = [pq.read_table(file) for file in result_files(result, "quarantine/")]
    reasons = [reason for table in held for reason in table["reason"].to_pylist()]
    assert len(reasons) == result.manifest.rows_quarantined == 7 + dangling
    assert sum("more than once" in reason for reason in reasons) == 5
    assert all(str(tmp_path) in file for table in held for file in table["file"].to_pylist())


def result_files(result: ArtifactResult, prefix: str) -> list[str]:
    return [f"{result.artifact}/{entry.name}" for entry in result.manifest.files if entry.name.startswith(prefix)]


def test_reversed_edges_are_added_once(tmp_path: Path) -> None:
    write_graph(tmp_path)
    _, edges = whole(ingest_config(tmp_path, graph={"reverse_edges": True}))
    given = pq.read_table(tmp_path / "edges.parquet")
    src, dst, weight = (given[name].to_numpy() for name in ("src", "dst", "weight"))
    proper = src != dst
    expected = sorted(
        [
            *zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True),
            *zip(dst[proper].tolist(), src[proper].tolist(), weight[proper].tolist(), strict=True),
        ]
    )
    assert edge_multiset(edges, "src_id", "dst_id") == expected


def test_standard_features_have_zero_mean_and_unit_variance(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes, _ = whole(ingest_config(tmp_path, graph={"normalize": "standard"}))
    x = stored_x(nodes["x"])
    assert np.allclose(x.mean(0), 0, atol=1e-5)
    assert np.allclose(x.std(0), 1, atol=1e-4)


def test_csv_gives_the_same_graph_as_parquet(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes, edges = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    flat = {f"x{column}": to_matrix(nodes["x"])[:, column] for column in range(5)}
    nodes = nodes.drop_columns(["x"])
    for name, values in flat.items():
        nodes = nodes.append_column(name, pa.array(values))
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    from_parquet = ingest_config(tmp_path, graph={"features": list(flat)})
    pa_csv.write_csv(nodes, tmp_path / "nodes.csv")
    pa_csv.write_csv(edges, tmp_path / "edges.csv")
    paths = {"nodes": str(tmp_path / "nodes.csv"), "edges": str(tmp_path / "edges.csv"), "features": list(flat)}
    assert ingest_config(tmp_path, graph=paths).digest == from_parquet.digest
    zipped = tmp_path / "nodes.csv.gz"
    zipped.write_bytes(gzip.compress((tmp_path / "nodes.csv").read_bytes()))
    assert ingest_config(tmp_path, graph={**paths, "nodes": str(zipped)}).digest == from_parquet.digest


def test_the_same_work_is_not_done_twice(tmp_path: Path) -> None:
    write_graph(tmp_path)
    first, second = ingest_config(tmp_path), ingest_config(tmp_path)
    assert not first.reused
    assert second.reused
    assert first.digest == second.digest
    write_graph(tmp_path, seed=1)
    assert not ingest_config(tmp_path).reused
