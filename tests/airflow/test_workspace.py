"""Where runs of Airflow's tasks lie: never by accident among Airflow's own files, and by default in one place."""

from __future__ import annotations

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from airflow.sdk.exceptions import AirflowFailException

from gnnflow_airflow.places import list_places
from gnnflow_airflow.prepare import PrepareOperator
from gnnflow_airflow.reading import config_of, read_chosen, read_config
from gnnflow_airflow.stages import IngestOperator
from tests.airflow.conftest import HOME
from tests.airflow.running import Quiet, form_of
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """A small graph's form, in a process that Airflow started in its home, as its image does."""
    write_graph(tmp_path)
    monkeypatch.delenv("GNNFLOW_WORKSPACE", raising=False)
    (HOME / "dags").mkdir(exist_ok=True)
    monkeypatch.chdir(HOME / "dags")
    return form_of(graph_config(tmp_path))


@pytest.mark.parametrize("typed", ["runs", "./x/../runs", "../runs", None, "file://runs"])
def test_a_relative_workspace_among_airflows_files_is_refused_by_the_first_task(at_home, typed):
    with pytest.raises(AirflowFailException, match=r"Airflow's (home|folder of DAGs)") as refused:
        PrepareOperator(task_id="prepare").execute({"params": {**at_home, "workspace": typed}, "ti": Quiet()})
    assert str(HOME) in str(refused.value)
    assert "GNNFLOW_WORKSPACE" in str(refused.value)
    assert not list(HOME.glob("**/runs"))


@pytest.mark.parametrize("place", ["relative elsewhere", "absolute among Airflow's files"])
def test_other_workspaces_are_taken_as_they_are(at_home, tmp_path, monkeypatch, place):
    if place == "relative elsewhere":
        monkeypatch.chdir(tmp_path)
    typed = "here" if place == "relative elsewhere" else str(HOME / "meant")
    kept = PrepareOperator(task_id="prepare").execute({"params": {**at_home, "workspace": typed}, "ti": Quiet()})
    assert read_config(kept).workspace == str(tmp_path / "here" if place == "relative elsewhere" else HOME / "meant")


def test_a_chosen_file_without_a_workspace_is_no_reason_to_refuse_the_form(at_home, tmp_path):
    """The file's own workspace would be refused, and the form names another."""
    (tmp_path / "small.yaml").write_text("{name: small, graph: {nodes: n.parquet, edges: e.parquet}}")
    (tmp_path / "named.yaml").write_text("{name: small, workspace: here, graph: {nodes: n.parquet, edges: e.parquet}}")
    assert "workspace" not in read_chosen("small.yaml", folder=str(tmp_path))
    assert read_chosen("named.yaml", folder=str(tmp_path))["workspace"] == "here"


def test_one_variable_is_the_default_of_configs_forms_operators_and_pages(at_home, tmp_path, monkeypatch):
    place = str(tmp_path / "default")
    monkeypatch.setenv("GNNFLOW_WORKSPACE", place)
    monkeypatch.delenv("GNNFLOW_WORKSPACES", raising=False)
    form = {key: value for key, value in at_home.items() if key != "workspace"}
    kept = PrepareOperator(task_id="prepare").execute({"params": {**form, "workspace": None}, "ti": Quiet()})
    assert kept.startswith(f"{place}/configs/")
    file = tmp_path / "bare.yaml"
    file.write_text("{name: small, graph: {nodes: nodes.parquet, edges: edges.parquet}}")
    values = {"name": "small", "graph": {"nodes": form["graph.nodes"], "edges": form["graph.edges"]}}
    assert config_of(values).workspace == read_config(str(file)).workspace == place
    outcome = IngestOperator(task_id="ingest", config=str(file)).execute({"outlet_events": {}, "ti": Quiet()})
    assert outcome["artifact"].startswith(f"{place}/artifacts/")
    assert list_places()["default"].uri == place
