import json

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.datasets import from_networkx, import_spec
from gnnflow.graph.errors import TableError

networkx = pytest.importorskip("networkx", reason="needs gnnflow[networkx]")


def friends(kind=networkx.Graph):
    graph = kind()
    graph.add_node("ann", age=31, place=[0.5, 1.0], club="chess", split="train")
    graph.add_node("bob", age=42, place=[1.5, 0.0], club="go", split="test")
    graph.add_node("cid", age=23, place=[2.5, 0.0])
    graph.add_edge("ann", "bob", weight=2, since=1999)
    graph.add_edge("bob", "cid", weight=1, since=2001)
    graph.add_edge("cid", "cid", weight=5, since=2020)
    return graph


def pairs(table):
    return sorted(zip(table["src"].to_pylist(), table["dst"].to_pylist(), table["weight"].to_pylist(), strict=True))


def test_undirected_edges_go_both_ways_and_self_loops_once():
    edges = from_networkx(friends(), label="club").edges
    forward = [("ann", "bob", 2.0), ("bob", "cid", 1.0), ("cid", "cid", 5.0)]
    assert pairs(edges) == sorted([*forward, ("bob", "ann", 2.0), ("cid", "bob", 1.0)])
    assert sorted(edges["since"].to_pylist()) == [1999, 1999, 2001, 2001, 2020]


def test_directed_edges_keep_their_direction_and_parallel_edges_their_number():
    graph = friends(networkx.MultiDiGraph)
    graph.add_edge("ann", "bob", weight=7, since=2005)
    forward = [("ann", "bob", 2.0), ("ann", "bob", 7.0), ("bob", "cid", 1.0), ("cid", "cid", 5.0)]
    assert pairs(from_networkx(graph, label="club").edges) == forward


def test_attributes_become_columns_and_labels_as_text_are_numbered():
    nodes = from_networkx(friends(), label="club").nodes
    assert nodes.column_names == ["id", "age", "place", "label", "split"]
    assert nodes["id"].to_pylist() == ["ann", "bob", "cid"]
    assert nodes["age"].to_pylist() == [31, 42, 23]
    assert nodes["place"].to_pylist() == [[0.5, 1.0], [1.5, 0.0], [2.5, 0.0]]
    assert nodes["label"].to_pylist() == [0, 1, None]
    assert json.loads(nodes.schema.metadata[b"label_classes"]) == ["chess", "go"]
    assert nodes["split"].to_pylist() == ["train", "test", None]


def test_only_named_attributes_are_written():
    tables = from_networkx(friends(), node_attributes=["age"], edge_attributes=[], label="club")
    assert tables.nodes.column_names == ["id", "age", "label", "split"]
    assert tables.edges.column_names == ["src", "dst", "weight"]


def test_integer_ids_stay_integers_and_bare_nodes_get_their_degrees():
    tables = from_networkx(networkx.path_graph(3))
    assert tables.nodes["id"].to_pylist() == [0, 1, 2]
    assert np.expm1(tables.nodes["log_in_degree"].to_numpy()).round(4).tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([2, None, 0], [2, None, 0]),
        ([0.5, 1.0, None], [0.5, 1.0, None]),
        ([[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1], [1, 1]]),
    ],
)
def test_labels_keep_their_task(labels, expected):
    graph = networkx.path_graph(3)
    for node, value in enumerate(labels):
        graph.nodes[node].update({} if value is None else {"label": value})
    assert from_networkx(graph).nodes["label"].to_pylist() == expected


@pytest.mark.parametrize("suffix", ["graphml", "gml"])
def test_attributes_called_like_columns_of_the_tables_stay(tmp_path, suffix):
    graph = networkx.DiGraph()
    graph.add_node("n", id=5, name="x", source=1, target=2, weight=1.5)
    graph.add_edge("n", "n", label="e", name="y", id="e0", weight=2)
    getattr(networkx, f"write_{suffix}")(graph, tmp_path / f"g.{suffix}")
    tables = import_spec(f"networkx:{tmp_path / f'g.{suffix}'}")
    nodes, edges = tables.nodes.to_pylist()[0], tables.edges.to_pylist()[0]
    assert {"id": "n", "name": "x", "source": 1, "target": 2, "attribute_weight": 1.5}.items() <= nodes.items()
    assert edges == {"src": "n", "dst": "n", "attribute_label": "e", "name": "y", "attribute_id": "e0", "weight": 2}


def with_node(**attributes):
    graph = friends()
    graph.add_node("dan", **attributes)
    return graph


def test_numbers_and_text_that_a_node_lacks_are_null():
    graph = with_node(place=[0.0, 0.0], town="Rome", score=0.5)
    nodes = from_networkx(graph, label="club").nodes
    assert (nodes["age"].to_pylist()[-1], nodes["age"].type) == (None, pa.int64())
    assert nodes["town"].to_pylist() == [None] * (nodes.num_rows - 1) + ["Rome"]
    assert nodes["score"].to_pylist() == [None] * (nodes.num_rows - 1) + [0.5]


def with_attributes(**attributes):
    graph = networkx.Graph()
    graph.add_node("a", **attributes)
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (with_node(age=1), r"node 'dan' has no attribute 'place' \(1 are without\)"),
        (with_node(age=1, place=[0.0]), r"node 'dan': attribute 'place' is \[0\.0\], the first is \[0\.5, 1\.0\]"),
        (with_node(age="old", place=[0.0, 0.0]), "node 'dan': attribute 'age' is 'old'"),
        (with_node(age=1, place=[0.0, 0.0], split="dev"), "node 'dan': attribute 'split' is 'dev'"),
        (with_attributes(id=1, attribute_id=2), "two columns would have the name 'attribute_id'"),
        (networkx.Graph([("a", 1)]), "node 1 is int: ids are all integers or all strings"),
        (networkx.grid_2d_graph(2, 2), r"node \(0, 0\) is tuple"),
    ],
)
def test_what_breaks_the_contract_names_its_node(graph, message):
    with pytest.raises(TableError, match=message):
        from_networkx(graph, label="club")
