"""A cluster for one run: started, used through deferral, gone afterwards; and what lineage says of a stage."""

from __future__ import annotations

import re
import socket
import tempfile
from urllib.parse import urlsplit

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow_airflow.lineage import datasets_of
from gnnflow_airflow.reasons import REASON
from tests.airflow.live.services import wait_for
from tests.airflow.running import TRAIN, sync
from tests.conftest import REPOSITORY
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


def test_stages_defer_to_a_cluster_that_lives_as_long_as_the_run(tmp_path, airflow_db, monkeypatch):
    # Dask takes a minute to end its process, which then removes the folder of its log.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    from airflow.sdk import DAG

    from gnnflow_airflow.build import stage_tasks
    from gnnflow_airflow.cluster import StartClusterOperator, StopClusterOperator

    write_graph(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(graph_config(tmp_path, train=TRAIN).model_dump(mode="json")))
    address = "{{ ti.xcom_pull(task_ids='start') }}"
    with DAG("with_cluster", schedule=None) as dag:
        start = StartClusterOperator(task_id="start", workers=2).as_setup()
        tasks = stage_tasks(("ingest", "select", "flat"), config=str(file), cluster_address=address, poll_seconds=1)
        stop = StopClusterOperator(task_id="stop", address=address).as_teardown(setups=start)
        start >> tasks["ingest"]
        tasks["flat"] >> stop
    run = sync(dag).test()
    assert run.state == "success"
    found = {ti.task_id: ti for ti in run.get_task_instances()}
    assert found["flat"].xcom_pull(task_ids="flat")["rows_out"] == 45
    started = urlsplit(found["start"].xcom_pull(task_ids="start"))
    wait_for("the cluster's end", lambda: is_refused(started.hostname, started.port))


def test_the_cluster_of_the_docs_is_started_by_its_class_and_closed_by_its_process(tmp_path, airflow_db, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("GNNFLOW_MODULES", "distributed")
    write_graph(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(graph_config(tmp_path).model_dump(mode="json")))
    page = (REPOSITORY / "docs" / "airflow.md").read_text()
    example = next(each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "cluster_options" in each)
    held = {}
    exec(example.replace("s3://bucket/configs/fraud.yaml", str(file)), held)
    run = sync(held["start"].dag).test()
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert states == {"start_cluster": "success", "ingest": "success", "stop_cluster": "success"}
    wait_for("its process's end", lambda: not list(tmp_path.glob("gnnflow-cluster-*")))


def test_a_cluster_whose_class_may_not_be_imported_is_refused_in_its_words(tmp_path, monkeypatch):
    from airflow.sdk.exceptions import AirflowException

    from gnnflow_airflow.cluster import StartClusterOperator

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    start = StartClusterOperator(task_id="start", kind="distributed:LocalCluster")
    with pytest.raises(AirflowException, match="module 'distributed' may not be imported here"):
        start.execute({})


def is_refused(host, port):
    try:
        socket.create_connection((host, port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_lineage_of_guards_and_score_names_the_last_store_the_selection_and_the_version(tmp_path):
    from gnnflow import registry
    from gnnflow.config.stages import retraining_chain
    from gnnflow.stages.base import StageContext
    from gnnflow.stages.running import run_stage

    def retrain():
        context = StageContext.of(graph_config(tmp_path, train=TRAIN))
        return context, {stage: run_stage(context, stage).summary() for stage in retraining_chain(context.config)}

    write_graph(tmp_path, num_nodes=60, seed=0)
    _, first = retrain()
    write_graph(tmp_path, num_nodes=60, seed=1)
    context, second = retrain()
    inputs, _ = datasets_of("guards", context.config, second["guards"])
    assert [read.uri for read in inputs] == [second["ingest"]["artifact"], first["ingest"]["artifact"]]
    assert [read.rows for read in inputs] == [second["ingest"]["rows_out"], first["ingest"]["rows_out"]]

    registry.promote(context.config.workspace, "small", 1, reason="by hand")  # another run's model scores
    for scored in (second["score"], run_stage(context, "score").summary()):
        version = registry.read_version(context.config.workspace, "small", scored["version"])
        inputs, outputs = datasets_of("score", context.config, scored)
        assert [read.uri for read in inputs] == [
            second["ingest"]["artifact"],
            second["select"]["artifact"],
            version.uri,
        ]
        assert outputs[0].uri == scored["predictions"]


def test_lineage_counts_rows_and_columns(tmp_path):

    from gnnflow.stages.base import StageContext
    from gnnflow.stages.running import run_stage
    from gnnflow_airflow.lineage import lineage_of

    write_graph(tmp_path)
    config = graph_config(tmp_path)
    outcome = run_stage(StageContext.of(config), "ingest").summary()
    inputs, outputs = datasets_of("ingest", config, outcome)
    assert [(data.rows, len(data.columns)) for data in inputs] == [(60, 4), (400, 5)]
    assert outputs[0].rows == outcome["rows_out"]
    pytest.importorskip("airflow.providers.openlineage")
    told = lineage_of("ingest", config, outcome)
    assert told.inputs[1].inputFacets["dataQualityMetrics"].rowCount == 400
    assert [field.name for field in told.inputs[1].facets["schema"].fields][:2] == ["src", "dst"]
    assert told.outputs[0].namespace == "file"


def test_a_mapped_stage_that_fails_fails_the_run_though_the_teardown_after_it_succeeds(tmp_path, airflow_db):
    from airflow.sdk import DAG

    from gnnflow_airflow.cluster import StopClusterOperator
    from gnnflow_airflow.stages import IngestOperator

    write_graph(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(graph_config(tmp_path).model_dump(mode="json")))
    with DAG("mapped", schedule=None) as dag:
        ingest = IngestOperator.partial(task_id="ingest", config=str(file), retries=0)
        stop = StopClusterOperator(task_id="stop", address="").as_teardown()
        ingest.expand(overrides=[["graph.partitions=2"], ["graph.partitions=-1"]]) >> stop
    run = sync(dag).test()
    assert run.state == "failed"
    states = {(ti.task_id, ti.map_index): ti.state for ti in run.get_task_instances()}
    assert states == {("ingest", 0): "success", ("ingest", 1): "failed", ("stop", -1): "success"}
    assert "graph.partitions" in run.get_task_instance("ingest", map_index=1).xcom_pull(
        task_ids="ingest", map_indexes=1, key=REASON
    )
