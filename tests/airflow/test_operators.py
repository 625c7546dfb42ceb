"""Whole runs through `dag.test()`: stages in the task's own process."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.stages import pipeline
from tests.airflow.running import TRAIN, form_of, load
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


def test_a_bad_key_fails_before_any_stage_runs(dag, tmp_path):
    write_graph(tmp_path)
    run = dag.test(run_conf=form_of(graph_config(tmp_path, train=TRAIN), **{"train.epoch": 3}))
    assert run.state == "failed"
    assert not (tmp_path / "runs" / "artifacts").exists()
