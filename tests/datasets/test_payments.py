import hashlib
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from gnnflow.datasets import CLASSES, import_graph, payments, pieces, write_payments, write_typed_payments
from gnnflow.graph.errors import ConfigError, Interrupted, StorageError
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.filesystem import list_names, read_bytes
from gnnflow.storage.tables import read_table
from gnnflow.storage.writing import write_atomic


@pytest.fixture(scope="module")
def graph():
    return payments(num_nodes=20_000, num_edges=200_000, seed=0)


@pytest.fixture(scope="module")
def endpoints(graph):
    ids = graph.nodes["id"].combine_chunks()
    return tuple(pc.index_in(graph.edges[end], ids).to_numpy() for end in ("src", "dst"))


def test_tables_have_the_sizes_asked_for_and_every_endpoint_is_a_node(graph, endpoints):
    assert (graph.nodes.num_rows, graph.edges.num_rows) == (20_000, 200_000)
    assert pc.count_distinct(graph.nodes["id"]).as_py() == 20_000
    assert all(np.isfinite(end).all() for end in endpoints)
    assert (endpoints[0] != endpoints[1]).all()


def test_attributes_are_finite_and_weights_positive(graph):
    for name in ("amount", "hour_sin", "hour_cos", "weight"):
        assert np.isfinite(graph.edges[name].to_numpy()).all()
    assert graph.edges["weight"].to_numpy().min() >= 1


def test_only_merchants_are_hubs_and_a_few_pass_a_thousand_payments(graph, endpoints):
    in_degree = np.bincount(endpoints[1], minlength=20_000)
    merchant = pc.starts_with(graph.nodes["id"], "MER-").to_numpy()
    assert 3 <= (in_degree > 1000).sum() <= 20
    assert in_degree[~merchant].max() < 100
    assert in_degree[~merchant].min() >= 4


def test_hubs_are_within_two_hops_of_people(graph, endpoints):
    merchant = pc.starts_with(graph.nodes["id"], "MER-").to_numpy()
    assert (merchant[endpoints[0]] & ~merchant[endpoints[1]]).sum() > 1000


def test_four_fifths_of_the_people_are_labelled_and_split_60_20_20(graph):
    label, split = graph.nodes["label"], graph.nodes["split"]
    assert pc.all(pc.equal(pc.is_valid(label), pc.is_valid(split))).as_py()
    labelled = len(label) - label.null_count
    assert labelled == pytest.approx(0.8 * 18_000, rel=0.02)
    shares = {row["values"]: row["counts"] / labelled for row in split.drop_null().value_counts().to_pylist()}
    assert shares == pytest.approx({"train": 0.6, "valid": 0.2, "test": 0.2}, abs=0.02)
    assert set(pc.unique(label.drop_null()).to_pylist()) == set(range(len(CLASSES)))


@pytest.mark.slow
def test_edge_attributes_and_neighbours_together_solve_what_neither_solves_alone(graph, endpoints):
    src, dst = endpoints
    x = to_matrix(graph.nodes["x"])
    attributes = np.stack([graph.edges[name].to_numpy() for name in ("amount", "hour_sin", "hour_cos")], 1)
    # What a trained attention does: dwell on payments that are large and nightly.
    attention = np.exp(2 * attributes[:, 0] + 4 * attributes[:, 2])
    even = np.ones(len(src))
    alone = _accuracy(graph, x)
    neighbours = _accuracy(graph, np.hstack([x, _average(x[src], dst, even)]))
    attended = _accuracy(graph, np.hstack([x, _average(np.hstack([x[src], attributes]), dst, attention)]))
    assert alone < 0.68
    assert alone + 0.05 < neighbours < 0.8
    assert attended > 0.93


def _average(rows, dst, share):
    total = np.maximum(np.bincount(dst, share, minlength=20_000), 1e-9)
    return np.stack([np.bincount(dst, share * column, minlength=20_000) for column in rows.T], 1) / total[:, None]


def _accuracy(graph, features):
    label = graph.nodes["label"].fill_null(-1).to_numpy()
    split = np.array(graph.nodes["split"].to_pylist(), dtype=object)
    train, test = split == "train", split == "test"
    classifier = HistGradientBoostingClassifier(max_iter=40, random_state=0)
    with threadpool_limits(1):  # its threads wait for each other actively, which crawls on a busy machine
        return classifier.fit(features[train], label[train]).score(features[test], label[test])


def _digest(folder):
    parts = [f"{folder}/nodes.parquet", *(f"{folder}/edges/{name}" for name in list_names(f"{folder}/edges"))]
    return [hashlib.sha256(read_bytes(part)).hexdigest() for part in parts]


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        write_payments(str(tmp_path / name), num_nodes=500, num_edges=3000, seed=seed)
    assert _digest(tmp_path / "a") == _digest(tmp_path / "b")
    assert _digest(tmp_path / "a") != _digest(tmp_path / "c")


def test_files_hold_the_rows_of_the_graph_in_memory(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 1000)
    nodes, edges = write_payments("memory://payments-rows", num_nodes=200, num_edges=2500, seed=1)
    graph = payments(num_nodes=200, num_edges=2500, seed=1)
    parts = [read_table(f"{edges}/{name}") for name in list_names(edges)]
    assert [part.num_rows for part in parts] == [1000, 1000, 500]
    assert read_table(nodes).equals(graph.nodes)
    assert [row for part in parts for row in part.to_pylist()] == graph.edges.to_pylist()


def test_a_smaller_graph_replaces_a_larger_one(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 1000)
    write_payments(str(tmp_path), num_nodes=200, num_edges=2500)
    _, edges = write_payments(str(tmp_path), num_nodes=200, num_edges=900)
    assert list_names(edges) == ["part-00000.parquet"]


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_stopped_one_leaves_nothing_and_the_graph_that_was_there(tmp_path, monkeypatch, place):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 1000)
    folder = str(tmp_path) if place == "local" else "memory://stopped"
    write_payments(folder, num_nodes=200, num_edges=2500)
    before, left = _digest(folder), list_names(folder)

    def piece(number, edges):
        if number:
            raise Interrupted(2)
        return pa.table({"src": ["a"] * len(edges), "dst": ["b"] * len(edges)})

    with pytest.raises(Interrupted):
        pieces.write_pieces(folder, pieces.Pieces(pa.table({"id": ["a", "b"]}), 2500, piece))
    assert _digest(folder) == before
    assert list_names(folder) == left


def test_what_a_killed_one_left_is_no_part_of_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 1000)
    for name in ("_edges/part-00009.parquet", "edges/.part-00000.parquet.0a.tmp"):
        write_atomic(str(tmp_path / name), b"half")
    _, edges = write_payments(str(tmp_path), num_nodes=200, num_edges=1500)
    assert list_names(edges) == ["part-00000.parquet", "part-00001.parquet"]
    assert list_names(str(tmp_path)) == ["edges", "nodes.parquet"]


def _write_csv(out):
    write_atomic(f"{out}.csv", b"src,dst\n1,2\n")
    return import_graph(f"csv:{out}.csv", out=out)


@pytest.mark.parametrize("first", ["payments", "typed", "csv"])
@pytest.mark.parametrize("second", ["payments", "typed", "csv"])
def test_a_graph_of_other_tables_is_not_replaced_in_part(tmp_path, first, second):
    sizes = {"num_nodes": 200, "num_edges": 900}
    writers = {
        "payments": partial(write_payments, **sizes),
        "typed": partial(write_typed_payments, **sizes),
        "csv": _write_csv,
    }
    out = tmp_path / "graph"
    writers[first](str(out))
    before = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    if first == second:
        writers[second](str(out))
    else:
        with pytest.raises(StorageError, match=r"graph: holds '.*\.parquet', which belongs to another graph"):
            writers[second](str(out))
    assert before == {path: path.read_bytes() for path in out.rglob("*.parquet")}


def test_files_of_others_are_left_alone(tmp_path):
    write_atomic(str(tmp_path / "edges" / "mine.parquet"), b"mine")
    with pytest.raises(StorageError, match=r"mine\.parquet"):
        write_payments(str(tmp_path), num_nodes=200, num_edges=900)
    assert read_bytes(str(tmp_path / "edges" / "mine.parquet")) == b"mine"


def test_too_small_a_network_is_refused_with_its_limit():
    with pytest.raises(ConfigError, match="num_nodes: 20 is below the minimum of 100"):
        payments(num_nodes=20)
