"""Retraining: better models are promoted, worse ones are not, and tables that changed too much stop the run."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow import registry
from tests.airflow.running import TRAIN, load, sync
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


def name_of(folder):
    return folder.name.replace("_", "-")[:50]


@pytest.fixture
def retrain(tmp_path, monkeypatch, airflow_db):
    """Return a function that retrains on the tables as they are, with these training keys."""

    def run(**train):
        config = graph_config(tmp_path, train={**TRAIN, **train}, model={"kind": "sage", "hidden": 16, "dropout": 0.0})
        # An asset's name means one place, and these tests share a database.
        config = config.model_copy(update={"name": name_of(tmp_path)})
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
        monkeypatch.setenv("GNNFLOW_RETRAIN_CONFIG", str(file))
        done = load("gnnflow_retrain").test()
        return {ti.task_id: ti for ti in done.get_task_instances()}, (str(tmp_path / "runs"), config.name)

    return run


def test_a_worse_model_does_not_replace_the_champion_and_a_better_one_does(retrain, tmp_path):
    write_graph(tmp_path, num_nodes=240, num_edges=500)
    # labels that a column tells, so that what is trained is better than what is not by more than chance
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    label = pa.array(nodes["label"].to_numpy() % 2)
    pq.write_table(nodes.set_column(nodes.column_names.index("label"), "label", label), tmp_path / "nodes.parquet")
    first, model = retrain(epochs=40, lr=0.02)
    assert first["score"].state == "success"
    assert registry.read_aliases(*model).champion == 1
    worse, _ = retrain(epochs=1, lr=1e-6)
    assert worse["score"].state == "success"
    assert registry.read_aliases(*model).champion == 1
    assert "version 1 stays" in registry.read_aliases(*model).history[-1]["reason"]
    better, _ = retrain(epochs=80, lr=0.02)
    found = registry.read_aliases(*model)
    assert found.champion in {1, 3}
    assert better["score"].state == "success"


def test_tables_that_changed_too_much_stop_the_run_before_training(retrain, tmp_path):
    write_graph(tmp_path, num_nodes=60)
    first, _ = retrain()
    assert first["score"].state == "success"
    write_graph(tmp_path, num_nodes=300)
    second, _ = retrain()
    assert second["guards"].state == "failed"
    assert second["train"].state == "upstream_failed"


def test_a_file_edited_after_its_dag_was_read_trains_though_a_stage_is_skipped(tmp_path, monkeypatch, airflow_db):
    write_graph(tmp_path)
    file = tmp_path / "config.yaml"

    def write(**train):
        config = graph_config(tmp_path, train={**TRAIN, **train}).model_copy(update={"name": name_of(tmp_path)})
        file.write_text(yaml.safe_dump(config.model_dump(mode="json")))

    write()
    monkeypatch.setenv("GNNFLOW_RETRAIN_CONFIG", str(file))
    dag = load("gnnflow_retrain")
    write(source="store")
    run = dag.test()
    states = {ti.task_id: ti.state for ti in run.get_task_instances()}
    assert {task for task, state in states.items() if state != "success"} == {"flat"}
    assert states["flat"] == "skipped"
    assert registry.read_aliases(str(tmp_path / "runs"), name_of(tmp_path)).champion == 1


def test_the_predictions_asset_names_what_to_read(retrain, tmp_path):
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    write_graph(tmp_path)
    retrain()
    with create_session() as session:
        event = session.scalars(select(AssetEvent).order_by(AssetEvent.id.desc())).first()
        assert event is not None
        assert pq.read_table(event.extra["predictions"]).num_rows == event.extra["rows_out"] == 60


def test_dags_of_ones_own_know_the_assets_by_name(retrain, tmp_path):
    from airflow.models.asset import AssetEvent
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG, Asset
    from airflow.utils.session import create_session
    from sqlalchemy import select

    def told():
        with create_session() as session:
            event = session.scalars(select(AssetEvent).order_by(AssetEvent.id.desc())).first()
            return [reference.dag_id for reference in event.asset.scheduled_dags]

    write_graph(tmp_path)
    name = name_of(tmp_path)
    with DAG("acts", schedule=[Asset(f"{name}/predictions")]) as acts:
        EmptyOperator(task_id="act")
    sync(acts)
    retrain()
    assert told() == ["acts"]
    with DAG("loads", schedule=None) as loads:
        EmptyOperator(task_id="load", outlets=[Asset(f"{name}/graph")])
    assert sync(loads).test().state == "success"
    assert told() == ["gnnflow_retrain"]
