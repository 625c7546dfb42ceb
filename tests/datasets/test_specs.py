import os
import re
import sys
import urllib.error
import urllib.request

import pytest
import yaml

from gnnflow.config import GraphConfig
from gnnflow.datasets import import_graph, import_spec
from gnnflow.graph.errors import ConfigError, GnnflowError, StorageError, TableError
from gnnflow.ingest.tables import sources_of, tables_of
from gnnflow.storage.tables import read_table
from tests.command_line import run_cli


@pytest.fixture(scope="module")
def pyg():
    return pytest.importorskip("torch_geometric.datasets", reason="needs gnnflow[pyg]")


@pytest.fixture(scope="module")
def networkx():
    return pytest.importorskip("networkx", reason="needs gnnflow[networkx]")


def _schema_of(nodes, edges):
    config = GraphConfig(nodes=nodes, edges=edges)
    return tables_of(*sources_of(config, targets=None), config, targets=None).nodes[0].schema


def test_an_imported_graph_is_what_ingest_reads(pyg, tmp_path):
    nodes, edges = import_graph("pyg:KarateClub", out=str(tmp_path))
    schema = _schema_of(nodes, edges)
    assert (schema.id_type, schema.feature_width, schema.label_kind, schema.has_split) == ("int64", 34, "single", True)
    assert read_table(edges).num_rows == 156


def test_options_reach_the_data_set_and_typed_graphs_get_a_file_each(pyg, tmp_path):
    written = import_graph("pyg:FakeHeteroDataset", out=str(tmp_path), options={"avg_num_nodes": "20"})
    nodes = {uri.removeprefix(f"{tmp_path}/nodes/"): uri for uri in written if "/nodes/" in uri}
    assert sorted(nodes) == ["v0.parquet", "v1.parquet", "v2.parquet"]
    assert read_table(nodes["v0.parquet"]).num_rows < 100
    edges = [uri.removeprefix(f"{tmp_path}/edges/") for uri in written if "/edges/" in uri]
    assert len(edges) == 6  # PyG's default number of edge types
    assert all(re.fullmatch(r"v\d__e\d__v\d\.parquet", name) for name in edges)


def test_a_data_set_in_splits_becomes_one_graph_with_a_split_column(pyg, monkeypatch):
    class Inductive(pyg.FakeDataset):
        def __init__(self, root: str, split: str = "train"):
            super().__init__(num_graphs={"train": 3, "val": 1, "test": 2}[split], avg_num_nodes=10, task="node")

    monkeypatch.setattr(pyg, "PPI", Inductive)
    nodes = import_spec("pyg:PPI").nodes
    assert list(dict.fromkeys(nodes["split"].to_pylist())) == ["train", "valid", "test"]
    assert nodes["id"].to_pylist() == list(range(nodes.num_rows))
    with pytest.raises(TableError, match="holds 2 graphs"):
        import_spec("pyg:PPI/test")


def test_a_failed_download_says_what_to_do(pyg, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(TableError, match=r"could not get the data set .*no route.*raw files into"):
        import_spec("pyg:Amazon/Photo", options={"root": str(tmp_path)})


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("pyg:Planetoit/Cora", {}, "has no class 'Planetoit'. Did you mean Planetoid"),
        ("pyg:Planetoid", {}, "needs name. Write pyg:Planetoid/NAME"),
        ("pyg:KarateClub/Zachary", {}, "1 arguments given, the class takes 0"),
        ("pyg:KarateClub", {"mask_colum": "1"}, "no option 'mask_colum'. Did you mean 'mask_column'"),
        ("pyg:KarateClub", {"mask_column": "last"}, "mask_column is 'last'"),
        ("pyg:FakeDataset", {"num_graphs": "3", "avg_num_nodes": "5"}, "holds 3 graphs"),
    ],
)
def test_a_data_set_that_cannot_be_had_is_refused_with_the_way_out(pyg, spec, options, message):
    with pytest.raises(GnnflowError, match=message):
        import_spec(spec, options=options)


def test_an_argument_the_data_set_refuses_is_reported(pyg, tmp_path):
    with pytest.raises(ConfigError, match="PyG refused it"):
        import_spec("pyg:Planetoid/Cora/everything", options={"root": str(tmp_path)})


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'gnnflow\[pyg\]'"):
        import_spec("pyg:KarateClub")


@pytest.mark.parametrize("spec", ["networkx:g.gpickle", "networkx:g.PKL", "pyg-file:cora.pt", "csv:edges.pickle"])
def test_pickles_are_refused_without_being_opened(spec):
    with pytest.raises(TableError, match="unpickling, which runs code"):
        import_spec(spec)


@pytest.mark.parametrize("spec", ["cora", "parquet:x", "pyg:", "dgl:CoraGraphDataset"])
def test_an_unknown_source_lists_the_known_ones(spec):
    with pytest.raises(ConfigError, match="pyg:CLASS/NAME, csv:PATH or networkx:PATH"):
        import_spec(spec)


def test_an_edge_list_takes_its_options_as_text(tmp_path):
    (tmp_path / "e.tsv").write_text("1\t2\t0.5\n2\t3\t1.5\n")
    options = {"sep": "tab", "header": "no", "src": "1", "dst": "0", "weight": "2"}
    tables = import_spec(f"csv:{tmp_path / 'e.tsv'}", options=options)
    assert tables.edges.to_pydict() == {"src": [2, 3], "dst": [1, 2], "weight": [0.5, 1.5]}
    with pytest.raises(ConfigError, match="header is 'maybe'"):
        import_spec(f"csv:{tmp_path / 'e.tsv'}", options={"header": "maybe"})


@pytest.mark.parametrize("suffix", ["graphml", "gml", "edgelist"])
def test_text_formats_of_networkx_keep_the_graph(networkx, tmp_path, suffix):
    graph = networkx.relabel_nodes(networkx.path_graph(4), {node: f"n{node}" for node in range(4)})
    networkx.set_edge_attributes(graph, 2.0, "weight")
    path = tmp_path / f"g.{suffix}"
    getattr(networkx, f"write_{suffix}")(graph, path)
    tables = import_spec(f"networkx:{path}")
    assert tables.nodes["id"].to_pylist() == ["n0", "n1", "n2", "n3"]
    assert tables.edges.num_rows == 6
    assert set(tables.edges["weight"].to_pylist()) == {2.0}


def gml(*labels):
    nodes = [f"node [ id {10 + number} label {label} age {number} ]" for number, label in enumerate(labels)]
    edge = 'edge [ source 10 target 11 label "e" ]'
    return f"graph [ directed 1 {' '.join(node.replace('label None ', '') for node in nodes)} {edge} ]"


@pytest.mark.parametrize(
    ("labels", "ids", "expected"),
    [
        (['"spam"', '"ham"', '"spam"'], [10, 11, 12], [1, 0, 1]),
        (['"spam"', '"ham"', None], [10, 11, 12], [1, 0, None]),
        ([1, 0, 1], [10, 11, 12], [1, 0, 1]),
        ([0.5, 1.5, 2.5], [10, 11, 12], [0.5, 1.5, 2.5]),
        (['"ann"', '"bob"', '"cid"'], ["ann", "bob", "cid"], [0, 1, 2]),
        ([3, 1, 2], [3, 1, 2], [3, 1, 2]),
    ],
)
def test_the_label_of_a_gml_node_stays_and_names_it_where_it_can(networkx, tmp_path, labels, ids, expected):
    (tmp_path / "g.gml").write_text(gml(*labels))
    told = []
    tables = import_spec(f"networkx:{tmp_path / 'g.gml'}", tell=told.append)
    assert tables.nodes.to_pydict() == {"id": ids, "age": [0, 1, 2], "label": expected}
    assert tables.edges.to_pydict() == {"src": ids[:1], "dst": ids[1:2], "attribute_label": ["e"]}
    assert f"ids from {'id' if ids[0] == 10 else 'label'!r}" in told[0]
    assert "label from 'label'; no split; no weight" in told[1]


def test_what_names_the_nodes_of_a_gml_file_can_be_said(networkx, tmp_path):
    (tmp_path / "g.gml").write_text(gml('"ann"', '"bob"', '"ann"'))
    spec = f"networkx:{tmp_path / 'g.gml'}"
    assert import_spec(spec, options={"ids": "age"}).nodes.to_pydict() == {
        "id": [0, 1, 2],
        "age": [0, 1, 2],
        "label": [0, 1, 0],
    }
    assert import_spec(spec, options={"ids": "id", "label": "age"}).nodes.to_pydict() == {
        "id": [10, 11, 12],
        "attribute_label": ["ann", "bob", "ann"],
        "label": [0, 1, 2],
    }
    for name in ("label", "nobody"):
        with pytest.raises(TableError, match=rf"attribute '{name}' does not name the nodes.*--option ids=id"):
            import_spec(spec, options={"ids": name})


def test_attributes_called_like_ends_make_no_header_of_an_edge(networkx, tmp_path):
    (tmp_path / "g.edgelist").write_text("a b {'source': 1, 'target': 2}\n")
    assert import_spec(f"networkx:{tmp_path / 'g.edgelist'}").edges.num_rows == 2


def test_an_edge_list_can_be_directed(networkx, tmp_path):
    (tmp_path / "g.edgelist").write_text("a b\nb c\n")
    tables = import_spec(f"networkx:{tmp_path / 'g.edgelist'}", options={"directed": "true"})
    assert tables.edges.to_pydict() == {"src": ["a", "b"], "dst": ["b", "c"]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("g.graphml", '<!DOCTYPE x [<!ENTITY a "b">]><graphml/>', "declares a DOCTYPE or entities"),
        ("g.gml", "graph [ node [", "cannot be read by networkx.read_gml"),
        ("g.graphml", "no xml", "cannot be read by networkx.read_graphml"),
        ("g.edgelist", "# c\nsource target\na b\n", "its first line is a header"),
        ("g.edgelist", "a b 0.5 c d\n", "cannot be read by networkx.read_edgelist"),
        ("g.dot", "graph {}", r"is not one of \.graphml, \.gml, \.gexf, "),
    ],
)
def test_files_that_do_not_parse_are_refused(networkx, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(TableError, match=message):
        import_spec(f"networkx:{tmp_path / name}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ""}, "'' is not a separator"),
        ({"sep": "ab"}, "'ab' is not a separator"),
        ({"src": "0", "dst": "0"}, "not different columns"),
        ({"weight": "a"}, "not different columns"),
        ({"src": "9" * 5000}, "has no column"),
    ],
)
def test_odd_options_of_a_csv_are_refused(tmp_path, options, message):
    path = tmp_path / "e.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(GnnflowError, match=message):
        import_graph(f"csv:{path}", out=str(tmp_path / "o"), options=options)


@pytest.mark.timeout(20)
def test_what_is_no_file_is_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "p.csv")
    os.mkfifo(tmp_path / "p.gml")
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    for spec in (f"csv:{tmp_path}/p.csv", f"networkx:{tmp_path}/p.gml", f"csv:{tmp_path}"):
        with pytest.raises(StorageError, match="not a file"):
            import_graph(spec, out=str(tmp_path / "o"))
    with pytest.raises(StorageError, match="file where a folder is needed"):
        import_graph(f"csv:{tmp_path}/e.csv", out=str(tmp_path / "e.csv"))


def test_the_command_says_what_it_took_for_what(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("account,amount,shop,when\n1,2,3,4\n")
    command = ["import", f"csv:{path}", "--out", str(tmp_path / "o")]
    assert "account, amount, shop, when. Give --ends SRC,DST" in run_cli(command).message
    shown = run_cli([*command, "--ends", "account,shop", "--option", "time=when"])
    assert "ends account -> shop; types account, shop; relations account__to__shop" in shown.err
    assert "weight none; time when; attributes amount" in shown.err
    graph = GraphConfig(**yaml.safe_load(shown.out)["graph"], target="account__to__shop")
    assert [read_table(uri).num_rows for uri in graph.node_tables.values()] == [1, 1]


@pytest.mark.parametrize("ends", ["a", "a,", "a,b,c"])
def test_ends_are_two_names(tmp_path, ends):
    shown = run_cli(["import", "csv:e.csv", "--out", str(tmp_path), "--ends", ends])
    assert "does not name two columns. Write --ends SRC,DST" in shown.message


def test_ids_of_an_edge_list_arrive_letter_by_letter(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("a,b\n0x33,1e5\n2,NA\n")
    _, edges = import_graph(f"csv:{path}", out=str(tmp_path / "o"))
    assert read_table(edges).to_pydict() == {"src": ["0x33", "2"], "dst": ["1e5", "NA"]}
