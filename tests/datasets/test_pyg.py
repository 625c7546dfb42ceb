import numpy as np
import pytest
import torch

from gnnflow.datasets import TypedGraphTables, from_pyg, from_pyg_graphs, from_pyg_hetero, save_tables
from gnnflow.graph.errors import TableError
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.tables import read_table

pytest.importorskip("torch_geometric", reason="needs gnnflow[pyg]")
from torch_geometric.data import Data, HeteroData

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 3]])


def graph(**attributes):
    return Data(**{"x": torch.arange(8.0).reshape(4, 2), "edge_index": EDGES, **attributes})


def mask(*rows):
    return torch.tensor([row in rows for row in range(4)])


def test_a_graph_becomes_a_node_and_an_edge_table():
    data = graph(
        y=torch.tensor([0, 2, 1, -1]),
        train_mask=mask(0),
        val_mask=mask(1),
        test_mask=mask(2),
        edge_weight=torch.tensor([0.5, 1, 2, 3]),
        edge_attr=torch.ones(4, 3),
    )
    tables = from_pyg(data)
    assert tables.nodes.column_names == ["id", "x", "label", "split"]
    assert tables.nodes["id"].to_pylist() == [0, 1, 2, 3]
    assert to_matrix(tables.nodes["x"]).tolist() == data.x.tolist()
    assert tables.nodes["label"].to_pylist() == [0, 2, 1, -1]
    assert tables.nodes["split"].to_pylist() == ["train", "valid", "test", None]
    assert tables.edges.column_names == ["src", "dst", "weight", "edge_attr"]
    assert [tables.edges["src"].to_pylist(), tables.edges["dst"].to_pylist()] == EDGES.tolist()
    assert tables.edges["weight"].to_pylist() == [0.5, 1, 2, 3]
    assert tables.edges["edge_attr"].type.list_size == 3


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_features_keep_their_width_and_drop_values_that_are_all_one(layout):
    dense = torch.tensor([[0, 1.0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    nodes = from_pyg(graph(x=dense.to_sparse(layout=layout))).nodes
    assert nodes["x_index"].to_pylist() == [[1], [0, 2], [], [1]]
    assert "x_value" not in nodes.column_names
    assert nodes.schema.metadata == {b"feature_dim": b"4"}
    weighted = from_pyg(graph(x=(2 * dense).to_sparse(layout=layout))).nodes
    assert weighted["x_value"].to_pylist() == [[2], [2, 2], [], [2]]


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (torch.tensor([[1], [0], [2], [0]]), [1, 0, 2, 0]),
        (torch.tensor([0.5, 1.5, float("nan"), 2]), [0.5, 1.5, None, 2]),
        (torch.tensor([[1.0, 0], [0, 0], [1, 1], [0, 1]]), [[1, 0], [0, 0], [1, 1], [0, 1]]),
    ],
    ids=["one column", "regression", "several labels"],
)
def test_labels_keep_their_task(y, expected):
    assert from_pyg(graph(y=y)).nodes["label"].to_pylist() == expected


def test_one_of_several_splits_is_chosen_by_column():
    masks = {"train_mask": torch.stack([mask(0), mask(1)], 1), "test_mask": mask(3)}
    assert from_pyg(graph(**masks)).nodes["split"].to_pylist() == ["train", None, None, "test"]
    assert from_pyg(graph(**masks), mask_column=1).nodes["split"].to_pylist() == [None, "train", None, "test"]
    with pytest.raises(TableError, match=r"train mask: has 2 columns.*mask_column to 0\.\.1"):
        from_pyg(graph(**masks), mask_column=2)


def test_other_numbers_keep_their_name_and_reserved_names_move_aside():
    tables = from_pyg(graph(year=torch.arange(4), id=torch.ones(4), name="g", edge_type=torch.tensor([0, 1, 1, 0])))
    assert tables.nodes["year"].to_pylist() == [0, 1, 2, 3]
    assert tables.nodes["attribute_id"].to_pylist() == [1, 1, 1, 1]
    assert "name" not in tables.nodes.column_names
    assert tables.edges["edge_type"].to_pylist() == [0, 1, 1, 0]


def test_nodes_without_features_get_their_degrees():
    nodes = from_pyg(Data(edge_index=EDGES, num_nodes=5)).nodes
    assert np.allclose(np.expm1(nodes["log_in_degree"].to_numpy()), [0, 1, 1, 2, 0], atol=1e-6)
    assert np.allclose(np.expm1(nodes["log_out_degree"].to_numpy()), [1, 1, 1, 1, 0], atol=1e-6)


def test_a_transposed_adjacency_is_turned_around():
    values = torch.tensor([1.0, 2, 3, 4])
    adjacency = torch.sparse_coo_tensor(EDGES.flip(0), values, (4, 4), check_invariants=True)
    tables = from_pyg(Data(x=torch.ones(4, 1), adj_t=adjacency))
    rows = {(row["src"], row["dst"], row["weight"]) for row in tables.edges.to_pylist()}
    assert rows == {(0, 1, 1.0), (1, 2, 2.0), (2, 3, 3.0), (3, 3, 4.0)}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"train_mask": mask(0, 1), "test_mask": mask(1, 2)}, r"1 row\(s\) are in both train and test, the first is 1"),
        ({"train_mask": torch.tensor([0, 1])}, r"train mask: has shape \[2\], expected 4 rows"),
        ({"y": torch.tensor([1])}, "labels the graph, not its nodes"),
        ({"y": torch.tensor([[0.3, 2.0]] * 4)}, "several columns that are not all 0 or 1"),
        ({"x": torch.ones(3, 2)}, r"PyG Data, x: has shape \[3, 2\], expected"),
        ({"x": torch.ones(4, 2, 2)}, "one or two dimensions"),
        ({"edge_index": torch.tensor([[0], [9]]), "num_nodes": 4}, r"edge 0 has the target 9, nodes are 0\.\.3"),
        ({"edge_index": None}, "neither edge_index nor adj_t"),
        ({"edge_weight": torch.ones(3)}, r"weight: has shape \[3\], expected 4 rows"),
    ],
)
def test_what_breaks_the_contract_is_refused_with_its_place(attributes, message):
    with pytest.raises(TableError, match=message):
        from_pyg(graph(**{"num_nodes": 4, **attributes}))


def movies():
    data = HeteroData()
    data["movie"].x = torch.ones(3, 2)
    data["movie"].y = torch.tensor([0, 1, 0])
    data["movie"].train_mask = torch.tensor([True, False, True])
    data["actor"].num_nodes = 2
    data["actor", "plays_in", "movie"].edge_index = torch.tensor([[0, 1], [2, 0]])
    data["actor", "plays_in", "movie"].edge_attr = torch.tensor([1.0, 2.0])
    return data


def test_a_typed_graph_becomes_a_table_per_type_and_relation():
    tables = from_pyg_hetero(movies())
    assert tables.nodes["movie"]["split"].to_pylist() == ["train", None, "train"]
    assert tables.nodes["actor"].to_pydict() == {"id": [0, 1]}
    assert tables.edges["actor__plays_in__movie"].to_pydict() == {"src": [0, 1], "dst": [2, 0], "edge_attr": [1.0, 2.0]}


def rebuilt(tables):
    """Return the HeteroData that typed tables hold, from the columns as docs/tables.md describes them."""
    data = HeteroData()
    for kind, table in tables.nodes.items():
        data[kind].num_nodes = len(table)
        if "x" in table.column_names:
            data[kind].x = torch.tensor(to_matrix(table["x"]))
        if "label" in table.column_names:
            data[kind].y = torch.tensor(table["label"].to_pylist())
        if "split" in table.column_names:
            for split, name in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
                data[kind][name] = torch.tensor([value == split for value in table["split"].to_pylist()])
    for relation, table in tables.edges.items():
        store = data[tuple(relation.split("__"))]
        store.edge_index = torch.tensor([table["src"].to_pylist(), table["dst"].to_pylist()])
        if "weight" in table.column_names:
            store.edge_weight = torch.tensor(table["weight"].to_pylist())
        if "edge_attr" in table.column_names:
            store.edge_attr = torch.tensor(to_matrix(table["edge_attr"]))
    return data


def shops():
    data = HeteroData()
    data["user"].x = torch.randn(4, 3)
    data["user"].y = torch.tensor([0, 1, 0, -1])
    for split, row in (("train_mask", 0), ("val_mask", 1), ("test_mask", 2)):
        data["user"][split] = mask(row)
    data["item"].x = torch.randn(2, 5)
    data["device"].num_nodes = 3
    data["user", "buys", "item"].edge_index = torch.tensor([[3, 0, 0], [1, 0, 0]])
    data["user", "buys", "item"].edge_weight = torch.tensor([0.5, 2.0, 1.0])
    data["user", "buys", "item"].edge_attr = torch.randn(3, 2)
    data["item", "rev_buys", "user"].edge_index = torch.tensor([[1, 0], [3, 0]])
    data["user", "buys", "device"].edge_index = torch.tensor([[1], [2]])
    return data


def test_a_typed_graph_comes_back_from_its_files_as_it_was(tmp_path):
    data = shops()
    uris = save_tables(from_pyg_hetero(data), str(tmp_path))
    read = {uri.removeprefix(f"{tmp_path}/").removesuffix(".parquet"): read_table(uri) for uri in uris}
    nodes = {name.removeprefix("nodes/"): table for name, table in read.items() if name.startswith("nodes/")}
    edges = {name.removeprefix("edges/"): table for name, table in read.items() if name.startswith("edges/")}
    back = rebuilt(TypedGraphTables(nodes, edges))
    assert (back.node_types, back.edge_types) == (data.node_types, data.edge_types)
    assert [store.num_nodes for store in back.node_stores] == [store.num_nodes for store in data.node_stores]
    for before in (*data.node_stores, *data.edge_stores):
        after = back[before._key]
        for key, value in before.items():
            assert value == after[key] if key == "num_nodes" else torch.equal(value, after[key])


def test_a_type_known_by_its_edges_alone_is_refused_with_what_to_set():
    data = movies()
    data["actor", "knows", "critic"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(TableError, match=r"nodes 'critic' whose number is not known. Set data\['critic'\].num_nodes"):
        from_pyg_hetero(data)


def test_each_kind_of_graph_names_the_function_for_it():
    with pytest.raises(TableError, match="from_pyg_hetero"):
        from_pyg(movies())
    with pytest.raises(TableError, match="from_pyg for Data"):
        from_pyg_hetero(graph())


@pytest.mark.filterwarnings("ignore:There exist type names")  # PyG's own word on double underscores
@pytest.mark.parametrize("name", ["a/b", "a__b", "a_", "_a"])
def test_a_type_or_relation_that_is_no_file_name_is_refused(name):
    data = movies()
    data["actor", name, "movie"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(TableError, match=f"'{name}' cannot be part of a file name"):
        from_pyg_hetero(data)
    data = movies()
    data[name].num_nodes = 1
    with pytest.raises(TableError, match=f"'{name}' cannot be part of a file name"):
        from_pyg_hetero(data)


def test_many_graphs_join_into_one_without_edges_between_them():
    one = graph(y=torch.tensor([0, 1, 0, 1]))
    tables = from_pyg_graphs({"train": [one, one], "test": [one]})
    assert tables.nodes["id"].to_pylist() == list(range(12))
    assert tables.nodes["split"].to_pylist() == ["train"] * 8 + ["test"] * 4
    assert tables.edges["src"].to_pylist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert tables.edges["dst"].to_pylist() == [1, 2, 3, 3, 5, 6, 7, 7, 9, 10, 11, 11]
