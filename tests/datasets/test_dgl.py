"""DGL's wheels do not install beside the torch this project pins, so a stand-in takes its place.

`StandIn` has the attributes and methods of the documented `dgl.DGLGraph` that the import uses, with their documented
behaviour, the order of `edges()` included: by edge id only where asked for.
"""

from types import SimpleNamespace

import pytest
import torch

from gnnflow.datasets import from_dgl, from_dgl_hetero
from gnnflow.graph.errors import TableError


class View:
    """`graph.nodes` and `graph.edges`: indexed by type for data; edges are also called for their ends."""

    def __init__(self, stored, ends=None):
        self._stored, self._ends = stored, ends

    def __getitem__(self, kind):
        return SimpleNamespace(data=self._stored[kind])

    def __call__(self, form="uv", order="eid", etype=None):
        u, v = self._ends[etype]
        assert form == "uv"
        if order == "eid":
            return u, v
        by_ends = torch.argsort(u * 1000 + v)
        return u[by_ends], v[by_ends]


class StandIn:
    def __init__(self, nodes, edges):
        self._counts = {kind: count for kind, (count, _) in nodes.items()}
        self.ntypes, self.canonical_etypes = list(nodes), list(edges)
        self.is_homogeneous = len(nodes) == len(edges) == 1
        self.nodes = View({kind: data for kind, (_, data) in nodes.items()})
        self.edges = View(
            {kind: data for kind, (_, data) in edges.items()}, {kind: ends for kind, (ends, _) in edges.items()}
        )

    def num_nodes(self, ntype):
        return self._counts[ntype]


ENDS = torch.tensor([2, 0, 1]), torch.tensor([0, 1, 2])


def single(node_data, edge_data):
    return StandIn({"_N": (3, node_data)}, {("_N", "_E", "_N"): (ENDS, edge_data)})


def test_a_graph_becomes_tables_with_edge_data_beside_its_edge():
    graph = single(
        {
            "feat": torch.eye(3),
            "label": torch.tensor([1, 0, 1]),
            "train_mask": torch.tensor([True, False, False]),
            "val_mask": torch.tensor([False, True, False]),
            "year": torch.tensor([3, 4, 5]),
            "_ID": torch.arange(3),
        },
        {"w": torch.tensor([0.2, 0.5, 1.0]), "feat": torch.tensor([[2.0], [0.0], [1.0]])},
    )
    tables = from_dgl(graph)
    assert tables.nodes.column_names == ["id", "x", "year", "label", "split"]
    assert tables.nodes["split"].to_pylist() == ["train", "valid", None]
    assert tables.edges["src"].to_pylist() == [2, 0, 1]
    assert tables.edges["edge_attr"].to_pylist() == [[2.0], [0.0], [1.0]]
    assert tables.edges["weight"].to_pylist() == pytest.approx([0.2, 0.5, 1.0])


def test_a_graph_without_data_gets_its_degrees_as_features():
    assert from_dgl(single({}, {})).nodes.column_names == ["id", "log_in_degree", "log_out_degree"]


def test_overlapping_masks_are_refused():
    everything = torch.ones(3, dtype=torch.bool)
    with pytest.raises(TableError, match="in both train and test"):
        from_dgl(single({"train_mask": everything, "test_mask": everything}, {}))


def test_a_heterograph_becomes_a_table_per_type_and_relation():
    relation = ("user", "buys", "item")
    nodes = {"user": (3, {"feature": torch.ones(3, 2)}), "item": (3, {"labels": torch.tensor([0, 1, 0])})}
    graph = StandIn(nodes, {relation: (ENDS, {}), ("item", "bought-by", "user"): (ENDS[::-1], {})})
    tables = from_dgl_hetero(graph)
    assert tables.nodes["user"].column_names == ["id", "x"]
    assert tables.nodes["item"].column_names == ["id", "label"]
    assert tables.edges["user__buys__item"].to_pydict() == {"src": [2, 0, 1], "dst": [0, 1, 2]}
    assert tables.edges["item__bought-by__user"].to_pydict() == {"src": [0, 1, 2], "dst": [2, 0, 1]}
    with pytest.raises(TableError, match="from_dgl_hetero"):
        from_dgl(graph)


def dgl_library(nodes, edges):
    dgl = pytest.importorskip("dgl", reason="DGL is not installed")
    graph = dgl.heterograph(
        {relation: ends for relation, (ends, _) in edges.items()}, {kind: count for kind, (count, _) in nodes.items()}
    )
    for kind, (_, data) in nodes.items():
        graph.nodes[kind].data.update(data)
    for relation, (_, data) in edges.items():
        graph.edges[relation].data.update(data)
    return graph


@pytest.mark.parametrize("build", [StandIn, dgl_library])
def test_a_heterograph_comes_back_from_its_tables_as_it_was(build):
    nodes = {
        "item": (3, {}),  # no features
        "user": (3, {"feat": torch.randn(3, 2), "label": torch.tensor([1, 0, -1])}),
    }
    edges = {
        ("user", "buys", "item"): (ENDS, {"weight": torch.tensor([0.5, 1, 2]), "feat": torch.randn(3, 4)}),
        ("user", "follows", "user"): ((ENDS[1], ENDS[0]), {}),
    }
    tables = from_dgl_hetero(build(nodes, edges))
    back_nodes = {kind: (table.num_rows, node_data(table)) for kind, table in tables.nodes.items()}
    back_edges = {tuple(name.split("__")): (ends(table), edge_data(table)) for name, table in tables.edges.items()}
    assert equal(back_nodes["item"], nodes["item"])
    assert equal(back_nodes["user"], nodes["user"])
    assert all(equal(back_edges[relation], edges[relation]) for relation in edges)
    again = from_dgl_hetero(build(back_nodes, back_edges))
    assert (again.nodes, again.edges) == (tables.nodes, tables.edges)


def ends(table):
    return torch.tensor(table["src"].to_pylist()), torch.tensor(table["dst"].to_pylist())


def node_data(table):
    return columns(table, {"x": "feat", "label": "label"})


def edge_data(table):
    return columns(table, {"edge_attr": "feat", "weight": "weight"})


def columns(table, names):
    return {name: torch.tensor(table[ours].to_pylist()) for ours, name in names.items() if ours in table.column_names}


def equal(one, other):
    (first, data), (second, held) = one, other
    same = first == second if isinstance(first, int) else all(map(torch.equal, first, second))
    return same and data.keys() == held.keys() and all(torch.equal(data[name], held[name]) for name in data)
