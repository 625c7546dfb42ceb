"""One DAG per YAML file: shared stages, a comparison, and errors that stay with their file."""

from __future__ import annotations

import csv
import logging

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from tests.airflow.running import TRAIN, load
from tests.conftest import REPOSITORY
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


def written(folder, name, **changed):
    """Write a small graph's experiment and return its values."""
    write_graph(folder)
    config = graph_config(folder, train=TRAIN).model_dump(mode="json", include={"name", "workspace", "graph", "train"})
    values = {**config, "cluster": {"kind": "synchronous"}, "matrix": {"model.kind": ["gcn", "sage"]}, **changed}
    experiments = folder / "experiments"
    experiments.mkdir(exist_ok=True)
    (experiments / f"{name}.yaml").write_text(yaml.safe_dump(values))
    return values


def test_an_experiment_ends_with_a_comparison(tmp_path, monkeypatch, airflow_db):
    written(tmp_path, "layers")
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    dag = load("gnnflow_experiments.layers")
    assert sorted(task for task in dag.task_ids if task.startswith(("ingest", "select", "flat", "train"))) == [
        "flat_1",
        "ingest_1",
        "select_1",
        "train_1",
        "train_2",
    ]
    assert dag.test().state == "success"
    (table,) = tmp_path.glob("runs/comparisons/small/*/comparison.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["run"] for row in rows} == {"kind=gcn", "kind=sage"}
    assert float(rows[0]["valid.accuracy"]) >= float(rows[1]["valid.accuracy"])
    assert "is best of 2 runs" in table.with_name("comparison.html").read_text()
    assert table.with_name("comparison.svg").read_text().startswith("<svg")


def test_a_broken_file_is_its_own_import_error(tmp_path, monkeypatch, airflow_db):
    from airflow.dag_processing.dagbag import DagBag
    from airflow.dag_processing.processor import _serialize_dags

    written(tmp_path, "good")
    written(tmp_path, "bad", matrix={"model.kind": ["gcm"]})
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    bag = DagBag(REPOSITORY / "dags" / "gnnflow_experiments.py")
    assert bag.import_errors == {}
    dags, errors = _serialize_dags(bag, logging.getLogger("test"))
    assert [dag.dag_id for dag in dags] == ["gnnflow_experiments.good"]
    assert list(errors) == ["experiments/bad.yaml"]
    assert "gcm" in errors["experiments/bad.yaml"]


def test_a_run_that_fails_is_listed_and_the_others_are_compared(tmp_path, monkeypatch, airflow_db):
    written(tmp_path, "lrs", matrix={"train": [{"lr": 0.01}, {"lr": 1e30, "optimizer": "sgd"}]})
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    monkeypatch.setenv("GNNFLOW_RETRIES", "0")
    load("gnnflow_experiments.lrs").test()
    (table,) = tmp_path.glob("runs/comparisons/small/*/comparison.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["run"] for row in rows] == ["lr=0.01", "lr=1e+30 optimizer=sgd"]
    assert [bool(row["uri"]) for row in rows] == [True, False]
    assert "failed: see the log of its tasks" in table.with_name("comparison.html").read_text()
