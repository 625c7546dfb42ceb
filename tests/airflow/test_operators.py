"""Whole runs through `dag.test()`: stages in the task's own process."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.stages import pipeline
from gnnflow_airflow.reasons import REASON
from tests.airflow.running import TRAIN, Quiet, form_of, load
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def dag(airflow_db):
    return load("gnnflow_pipeline")


def test_a_run_from_the_form_gives_the_predictions_of_the_command_line(dag, tmp_path):
    write_graph(tmp_path)
    config = graph_config(tmp_path, train=TRAIN)
    expected = pipeline.run_quietly(config.model_copy(update={"workspace": str(tmp_path / "cli")}))
    run = dag.test(run_conf=form_of(config))
    assert run.state == "success"
    latest = json.loads((tmp_path / "runs/runs/small/latest.json").read_text())["run"]
    assert pq.read_table(f"{latest}/predictions").equals(pq.read_table(expected.predictions))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"graph.nodes": "${PLANTED_SECRET}"}, "holds a variable"),
        ({"cluster.kind": "address", "cluster.address": "tcp://127.0.0.1:1"}, "comes from the connection"),
        ({"workspace": None, "settings": "workspace: s3://${PLANTED_SECRET}/runs"}, "holds a variable"),
        (
            {"cluster.kind": "address", "settings": "cluster: {address: 'tcp://127.0.0.1:1'}"},
            "comes from the connection",
        ),
        ({"model.kind": "my_layers:Own"}, "GNNFLOW_MODULES"),
        ({"train.lr": 0}, "train.lr"),
    ],
)
def test_what_a_person_may_not_ask_for_is_said_by_the_first_task(tmp_path, monkeypatch, changed, told):
    from airflow.sdk.exceptions import AirflowFailException

    from gnnflow_airflow.prepare import PrepareOperator

    monkeypatch.setenv("PLANTED_SECRET", "the-value-itself")
    write_graph(tmp_path)
    params = form_of(graph_config(tmp_path, train=TRAIN), **changed)
    with pytest.raises(AirflowFailException, match=told) as refused:
        PrepareOperator(task_id="prepare").execute({"params": params, "ti": Quiet()})
    assert "the-value-itself" not in str(refused.value)


def test_a_text_of_the_form_stays_what_was_typed(tmp_path, monkeypatch):
    from gnnflow_airflow.prepare import PrepareOperator
    from gnnflow_airflow.reading import read_config

    monkeypatch.setenv("PLANTED_SECRET", "the-value-itself")
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    pq.write_table(nodes.rename_columns({"x": "${PLANTED_SECRET}"}), tmp_path / "nodes.parquet")
    params = form_of(graph_config(tmp_path, train=TRAIN), **{"graph.features": ["${PLANTED_SECRET}"]})
    kept = PrepareOperator(task_id="prepare").execute({"params": params})
    assert read_config(kept).graph.features == ("${PLANTED_SECRET}",)


def test_a_prepared_config_is_read_as_it_was_written_and_is_named_by_all_of_its_content(tmp_path):
    from gnnflow.config import config_from_dict
    from gnnflow.graph.errors import ConfigError
    from gnnflow_airflow.reading import keep_config, read_config

    graph = {"nodes": "/n.parquet", "edges": "/e.parquet", "features": ["${x}", "$${x}", "${x"]}
    config = config_from_dict(
        {
            "name": "small",
            "workspace": str(tmp_path),
            "graph": {**graph, "columns": {"${x}": {"kind": "numerical"}}},
        }
    )
    uri = keep_config(config)
    assert read_config(uri) == config
    # of 16 digits two contents that share them are found in minutes, and whoever fills in a form knows its own
    assert re.search(r"-[0-9a-f]{64}\.yaml$", uri)
    Path(uri).write_bytes(Path(uri).read_bytes() + b"\n")
    with pytest.raises(ConfigError, match="was changed since a task prepared it"):
        read_config(uri)


def test_a_config_that_is_not_utf_8_is_said_by_the_first_task(tmp_path):
    from airflow.sdk.exceptions import AirflowFailException

    from gnnflow_airflow.prepare import PrepareOperator

    file = tmp_path / "config.yaml"
    file.write_bytes("name: café".encode("latin-1"))
    with pytest.raises(AirflowFailException, match=r"config\.yaml: is not UTF-8 text"):
        PrepareOperator(task_id="prepare", config=str(file)).execute({"ti": Quiet()})


def test_a_link_is_that_of_the_longest_prefix_that_is_a_folder_above(monkeypatch):
    from gnnflow_airflow.links import web_address

    rules = "s3://data=http://a s3://data/eu=http://eu s3://data-eu/=http://b/ /srv=http://srv"
    monkeypatch.setenv("GNNFLOW_LINKS", rules)
    found = {
        "s3://data/x": "http://a/x",
        "s3://data": "http://a",
        "s3://data/eu/x": "http://eu/x",
        "s3://data/eure": "http://a/eure",
        "s3://data-eu/x": "http://b/x",
        "s3://data-us/x": "",  # a browser opens neither buckets nor folders
        "/srv2/x": "",
        "http://dashboard:8787/status": "http://dashboard:8787/status",
    }
    assert {uri: web_address(uri) for uri in found} == found


def test_overrides_and_workspace_of_a_task_read_no_variables(tmp_path, monkeypatch):
    from gnnflow.graph.errors import ConfigError
    from gnnflow_airflow.reading import read_config

    monkeypatch.setenv("PLANTED_SECRET", "the-value-itself")
    file = tmp_path / "config.yaml"
    file.write_text("{name: small, graph: {nodes: n.parquet, edges: e.parquet}}")
    for typed in ({"overrides": ["name=${PLANTED_SECRET}"]}, {"workspace": "${PLANTED_SECRET}"}):
        with pytest.raises(ConfigError, match="holds a variable"):
            read_config(str(file), **typed)


def test_relative_paths_become_those_of_the_first_task(tmp_path, monkeypatch):
    from gnnflow_airflow.prepare import PrepareOperator
    from gnnflow_airflow.reading import read_config

    write_graph(tmp_path)
    monkeypatch.chdir(tmp_path)
    params = {"name": "small", "workspace": "here", "graph.nodes": "nodes.parquet", "graph.edges": "edges.parquet"}
    kept = PrepareOperator(task_id="prepare").execute({"params": params})
    monkeypatch.chdir("/")
    config = read_config(kept)
    assert config.workspace == str(tmp_path / "here")
    assert (config.graph.nodes, config.graph.edges) == (
        str(tmp_path / "nodes.parquet"),
        str(tmp_path / "edges.parquet"),
    )


def test_paths_of_a_file_are_seen_from_its_folder_by_path_and_by_values(tmp_path, monkeypatch):
    import yaml

    from gnnflow_airflow.prepare import PrepareOperator
    from gnnflow_airflow.reading import read_config

    (tmp_path / "conf").mkdir()
    write_graph(tmp_path)
    file = tmp_path / "conf" / "small.yaml"
    file.write_text(
        f"{{name: small, workspace: {tmp_path}/runs, graph: {{nodes: ../nodes.parquet, edges: ../edges.parquet}}}}"
    )
    monkeypatch.chdir("/")
    by_path = PrepareOperator(task_id="path", config=str(file))
    by_values = PrepareOperator(task_id="values", values=yaml.safe_load(file.read_text()), source=str(file))
    kept = {task.execute({"params": {}}) for task in (by_path, by_values)}
    assert len(kept) == 1  # named by their content
    assert read_config(kept.pop()).graph.nodes == str(tmp_path / "nodes.parquet")


def test_tasks_run_as_a_service_and_leave_the_environment_as_it_was(tmp_path, monkeypatch):
    import os

    from gnnflow_airflow.service import as_service

    monkeypatch.delenv("GNNFLOW_SERVICE", raising=False)
    with as_service():
        assert os.environ["GNNFLOW_SERVICE"] == "1"
    assert "GNNFLOW_SERVICE" not in os.environ
    monkeypatch.setenv("GNNFLOW_SERVICE", "0")
    with as_service():
        assert os.environ["GNNFLOW_SERVICE"] == "0"
    assert os.environ["GNNFLOW_SERVICE"] == "0"


def test_a_mapped_task_reads_its_own_link(monkeypatch):
    from gnnflow_airflow.links import DashboardLink
    from gnnflow_airflow.stages import IngestOperator

    class MappedInstance:
        """As Airflow answers: every sibling's value, unless an index is named."""

        map_index = 1

        def xcom_pull(self, *, key, map_indexes=None):
            values = ["http://first", "http://second"]
            return values if map_indexes is None else values[map_indexes]

        def xcom_push(self, *, key, value):
            """Keep nothing."""

    operator = IngestOperator(task_id="ingest", config="unread")
    operator.execute_complete({"ti": MappedInstance(), "outlet_events": {}}, {"kind": "finished", "rows_out": 3})
    link = DashboardLink()
    assert link.get_link(operator, ti_key=None) == "http://second"


# Stands for Airflow's own script, which cannot be imported again.
SCRIPT = """
if __name__ != "__main__":
    raise SystemExit("a worker imported the script of its task")
import sys
from gnnflow_airflow.stages import IngestOperator
print("rows", IngestOperator(task_id="ingest", config=sys.argv[1]).execute({"outlet_events": {}})["rows_out"])
"""


@pytest.mark.parametrize("as_module", [False, True])
def test_workers_of_a_task_do_not_import_the_script_it_runs_in(tmp_path, as_module):
    write_graph(tmp_path)
    local = {"kind": "local", "workers": 1}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(graph_config(tmp_path, cluster=local).model_dump(mode="json")))
    (tmp_path / "script.py").write_text(SCRIPT)
    asked = [sys.executable, *(["-m", "script"] if as_module else [str(tmp_path / "script.py")]), str(file)]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, timeout=200, check=False)
    assert "rows 460" in done.stdout, done.stderr


def test_everything_wrong_with_the_form_is_told_at_once_before_any_stage_runs(dag, tmp_path):
    write_graph(tmp_path)
    wrong = {"train.epoch": 3, "train.lr": "much", "train.optimizer": 3, "graph.features": 7, "train.epochs": "-3"}
    run = dag.test(run_conf=form_of(graph_config(tmp_path, train=TRAIN), **wrong))
    assert run.state == "failed"
    assert {ti.state for ti in run.get_task_instances() if ti.task_id != "prepare"} == {"upstream_failed"}
    told = run.get_task_instance("prepare").xcom_pull(task_ids="prepare", key=REASON)
    assert told.startswith("5 keys are wrong:")
    assert all(key in told for key in wrong)
    assert "schema" not in told
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"graph.nodes": "/nowhere/n.parquet", "graph.edges": "/nowhere/e.parquet"}, ("/nowhere/n", "/nowhere/e")),
        ({"graph.label": "fraud", "graph.src": "payer"}, ("'fraud'", "'payer'")),
        ({"graph.split": "part"}, ("'part'",)),
        ({"graph.nodes": None}, ("graph.nodes: required but missing",)),
        ({"train.device": "cuda"}, ("train.device: cuda is not allowed",)),
    ],
)
def test_what_would_stop_the_run_is_told_by_the_first_task(tmp_path, monkeypatch, changed, told):
    from airflow.sdk.exceptions import AirflowFailException

    from gnnflow_airflow.prepare import PrepareOperator

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # where there is a GPU too
    write_graph(tmp_path)
    params = form_of(graph_config(tmp_path, train=TRAIN), **changed)
    with pytest.raises(AirflowFailException) as refused:
        PrepareOperator(task_id="prepare").execute({"params": params, "ti": Quiet()})
    assert all(each in str(refused.value) for each in told)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("nodes", "file", "folder"),
    [
        ("home/airflow.db#connection", "airflow.db", "Airflow's home"),
        ("home/airflow.db#none", "airflow.db#none", "Airflow's home"),
        ("file://home/airflow.cfg", "airflow.cfg", "Airflow's home"),
        ("home/x/../*.csv", "users.csv", "Airflow's home"),
        ("tables", "users.csv", "Airflow's home"),
        ("home/dags/more/of.csv", "of.csv", "Airflow's folder of DAGs"),
        ("linked.csv", "of.csv", "Airflow's folder of DAGs"),
    ],
)
def test_no_table_is_read_from_airflows_own_files(tmp_path, monkeypatch, nodes, file, folder):
    from gnnflow.graph.errors import ConfigError
    from gnnflow_airflow.reading import read_config

    home = tmp_path / "home"
    (home / "dags" / "more").mkdir(parents=True)
    (home / "x").mkdir()
    (tmp_path / "tables").mkdir()
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(home / "dags"))
    with contextlib.closing(sqlite3.connect(home / "airflow.db")) as database:
        database.execute("create table connection (id, password)")
    for name in ("airflow.cfg", "users.csv", "dags/more/of.csv"):
        (home / name).write_text("id,password\n1,planted\n")
    (tmp_path / "tables" / "part.csv").symlink_to(home / "users.csv")
    (tmp_path / "linked.csv").symlink_to(home / "dags" / "more" / "of.csv")
    scheme, mark, path = nodes.rpartition("://")
    graph = {"nodes": {"user": f"{scheme}{mark}{tmp_path}/{path}"}, "edges": {"user__x__user": "s3://a/b"}}
    values = {"name": "small", "workspace": str(tmp_path / "runs"), "graph": {**graph, "target": "user"}}
    with pytest.raises(ConfigError, match=r"^graph\.nodes: .* reads .*, which lies in") as refused:
        read_config(values)
    assert f"/{file}, which lies in {folder} {home}" in str(refused.value)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(tmp_path / "other" / "dags"))
    assert read_config(values)


def test_a_table_in_a_folder_within_airflows_home_is_read(tmp_path, monkeypatch):
    from gnnflow_airflow.prepare import PrepareOperator

    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    (tmp_path / "tables").mkdir()
    write_graph(tmp_path / "tables")
    params = form_of(graph_config(tmp_path / "tables", train=TRAIN))
    assert PrepareOperator(task_id="prepare").execute({"params": params, "ti": Quiet()})


def test_devices_of_a_cluster_are_its_own_matter_and_columns_are_not(tmp_path, monkeypatch):
    from airflow.sdk.exceptions import AirflowFailException

    from gnnflow_airflow.prepare import PrepareOperator

    write_graph(tmp_path)
    params = form_of(graph_config(tmp_path, train=TRAIN), **{"train.device": "cuda", "model.kind": "gcn"})
    monkeypatch.setenv("AIRFLOW_CONN_NOBODY", "dask://127.0.0.1:1")
    prepare = PrepareOperator(task_id="prepare", dask_conn_id="nobody")
    assert prepare.execute({"params": params, "ti": Quiet()})
    with pytest.raises(AirflowFailException, match="'fraud'") as refused:
        prepare.execute({"params": {**params, "graph.label": "fraud"}, "ti": Quiet()})
    assert "train.device" not in str(refused.value)
