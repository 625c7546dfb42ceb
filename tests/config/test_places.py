"""A path in a config's file means a place beside the file; one that a caller says, a place in the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnflow.api.configs import Given
from gnnflow.config import Config, load_config
from gnnflow.config.experiments import read_experiment
from gnnflow.config.places import path_from
from gnnflow.graph.errors import GnnflowError
from gnnflow.stages.first_look import first_look, refuse_first
from tests.small_graphs import write_graph

PLAIN = "name: one\ngraph: {nodes: ../nodes.csv, edges: tables/edges/}\n"
TYPED = """
name: two
graph:
  nodes: {user: users.csv, item: /all/items.csv, tag: null}
  edges:
    user__buys__item: ${PLACE:-../orders}/orders.csv
    user__likes__item: {table: likes.csv, src: user, dst: item}
    item__in__tag: {table: item, src: id, dst: tag}
  target: item
"""


def tables_of(config: Config) -> list[str]:
    graph = config.graph
    return [*graph.node_tables.values(), *graph.edge_tables.values()]


@pytest.mark.parametrize(
    ("source", "nodes", "edges"),
    [
        ("x.yaml", "../nodes.csv", "tables/edges/"),
        ("configs/x.yaml", "nodes.csv", "configs/tables/edges/"),
        ("/a/b/x.yaml", "/a/nodes.csv", "/a/b/tables/edges/"),
        ("s3://bucket/conf/x.yaml", "s3://bucket/nodes.csv", "s3://bucket/conf/tables/edges/"),
        ("s3://bucket/x.yaml", "s3://bucket/nodes.csv", "s3://bucket/tables/edges/"),
        ("gs://bucket/conf/sub/x.yaml", "gs://bucket/conf/nodes.csv", "gs://bucket/conf/sub/tables/edges/"),
        ("file:///a/b/x.yaml", "file:///a/nodes.csv", "file:///a/b/tables/edges/"),
        ("", "../nodes.csv", "tables/edges/"),
    ],
)
def test_tables_are_seen_from_the_files_folder(source, nodes, edges):
    assert tables_of(load_config(PLAIN, source=source)) == [nodes, edges]


def test_every_form_of_a_typed_table_is_placed_and_a_types_name_is_not():
    config = load_config(TYPED, source="conf/x.yaml", environment={"PLACE": "more"})
    assert config.graph.node_tables == {"user": "conf/users.csv", "item": "/all/items.csv", "tag": ""}
    assert [*config.graph.edge_tables.values()] == ["/all/items.csv", "conf/more/orders.csv", "conf/likes.csv"]
    assert config.workspace == "runs"


def test_what_the_command_line_says_is_seen_from_the_working_directory():
    one = load_config(PLAIN, source="conf/x.yaml", overrides=["graph.edges=own/edges"])
    assert tables_of(one) == ["nodes.csv", "own/edges"]
    two = load_config(
        TYPED, source="conf/x.yaml", overrides=["graph.nodes={user: u.csv, tag: t}", "graph.nodes.item=i"]
    )
    assert two.graph.node_tables == {"user": "u.csv", "item": "i", "tag": "t"}


def test_an_experiments_runs_see_their_files_paths_and_the_command_lines():
    raw = {
        "name": "three",
        "graph": {"nodes": "n.csv", "edges": "e.csv"},
        "matrix": {"graph.edges": ["a.csv", "../b.csv"]},
    }
    found = read_experiment(raw, source="conf/x.yaml", overrides=["graph.nodes=own.csv"])
    assert [tables_of(run.config) for run in found.runs] == [["own.csv", "conf/a.csv"], ["own.csv", "b.csv"]]
    assert found.source == "conf/x.yaml"


def test_messages_keep_the_names_of_variables():
    with pytest.raises(GnnflowError, match=r"\$\{PLACE\}/n\?token=") as raised:
        load_config(
            "name: x\ngraph: {nodes: '${PLACE}/n?token=abcdefgh12345678', edges: e}\n",
            source="conf/x.yaml",
            environment={"PLACE": "hidden-value"},
        )
    assert "hidden-value" not in str(raised.value)


def test_a_path_of_the_working_directory_is_written_as_the_file_reads_it():
    assert path_from("a/b.csv", "config.yaml") == "a/b.csv"
    assert path_from("a/b.csv", "a/conf/x.yaml") == "../b.csv"
    assert path_from("/a/b.csv", "a/conf/x.yaml") == "/a/b.csv"
    assert path_from("s3://a/b.csv", "a/conf/x.yaml") == "s3://a/b.csv"


def test_a_missing_table_is_named_whole_with_the_path_that_was_meant(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("conf").mkdir()
    Path("nodes.csv").write_text("id,x,label,split\n1,0.5,0,train\n2,0.1,1,valid\n")
    Path("conf/x.yaml").write_text("name: x\ngraph: {nodes: nodes.csv, edges: edges.csv}\n")
    read = Given("conf/x.yaml").read()
    told = {error.where: error for error in first_look(read).stops}
    assert told[f"{tmp_path}/conf/nodes.csv"].fix.endswith(f"for {tmp_path}/nodes.csv write ../nodes.csv.")
    assert "write" not in told[f"{tmp_path}/conf/edges.csv"].fix
    with pytest.raises(GnnflowError, match=r"write \.\./nodes\.csv"):
        refuse_first(read)


def test_a_run_is_the_same_whichever_way_its_tables_are_named(tmp_path: Path, monkeypatch):
    write_graph(tmp_path)
    (tmp_path / "conf").mkdir()
    text = "name: small\ngraph: {{nodes: {0}nodes.parquet, edges: {0}edges.parquet}}\n"
    (tmp_path / "conf" / "x.yaml").write_text(text.format("../"))
    (tmp_path / "x.yaml").write_text(text.format(f"{tmp_path}/"))
    monkeypatch.chdir(tmp_path)
    plain = {"name": "small", "graph": {"nodes": "nodes.parquet", "edges": "edges.parquet"}}
    given = [Given("conf/x.yaml"), Given(f"{tmp_path}/conf/x.yaml"), Given("x.yaml"), Given(plain)]
    given += [
        Given("conf/x.yaml", overrides=["graph.nodes=nodes.parquet"]),
        Given("conf/x.yaml", nodes="nodes.parquet"),
    ]
    runs = {refuse_first(each.read()).uri for each in given}
    monkeypatch.chdir("conf")
    runs.add(refuse_first(Given("x.yaml", workspace="../runs").read()).uri)
    assert len(runs) == 1
