"""Whole runs through `dag.test()`: stages in the task's own process."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.stages import pipeline
from tests.airflow.conftest import REPOSITORY
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

TRAIN = {"epochs": 3, "batch_size": 16, "threads": 1}


@pytest.fixture
def dag(airflow_db):
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    bag = DagBag(REPOSITORY / "dags")
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name="testing"))
    sync_bag_to_db(bag, "testing", None)
    return bag.dags["gnnflow_pipeline"]


def form_of(config):
    """Return a config as the form's flat values."""
    graph = config.graph
    return {
        "name": config.name,
        "workspace": config.workspace,
        "graph.nodes": graph.nodes,
        "graph.edges": graph.edges,
        "graph.partitions": graph.partitions,
        "cluster.kind": "synchronous",
        **{f"train.{key}": value for key, value in TRAIN.items()},
    }


def test_a_run_from_the_form_gives_the_predictions_of_the_command_line(dag, tmp_path):
    write_graph(tmp_path)
    config = graph_config(tmp_path, train=TRAIN)
    expected = pipeline.run_quietly(config.model_copy(update={"workspace": str(tmp_path / "cli")}))
    run = dag.test(run_conf=form_of(config))
    assert run.state == "success"
    latest = json.loads((tmp_path / "runs/runs/small/latest.json").read_text())["run"]
    assert pq.read_table(f"{latest}/predictions").equals(pq.read_table(expected.predictions))


def test_a_bad_key_fails_before_any_stage_runs(dag, tmp_path):
    write_graph(tmp_path)
    run = dag.test(run_conf={**form_of(graph_config(tmp_path, train=TRAIN)), "train.epoch": 3})
    assert run.state == "failed"
    assert not (tmp_path / "runs" / "artifacts").exists()
