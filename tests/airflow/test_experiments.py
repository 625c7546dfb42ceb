"""One DAG per YAML file: shared stages, a comparison, and errors that stay with their file."""

from __future__ import annotations

import csv
import logging

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.graph.errors import ConfigError
from gnnflow_airflow.experiments import read_experiment
from gnnflow_airflow.reading import read_raw
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


def test_runs_share_the_stages_whose_keys_are_equal(tmp_path):
    values = written(tmp_path, "layers")
    gcn, sage = read_experiment(values, source="layers.yaml").variants
    assert gcn.key("ingest") == sage.key("ingest")
    assert gcn.key("select") == sage.key("select")
    assert gcn.key("flat") == sage.key("flat")
    assert gcn.key("train") != sage.key("train")
    assert gcn.key("run") != sage.key("run")


def test_a_map_in_the_matrix_sets_keys_that_only_its_kind_has(tmp_path):
    matrix = {"model": [{"kind": "gcn"}, {"kind": "gat", "heads": 4}], "seed": [0, 1]}
    variants = read_experiment(
        written(tmp_path, "heads", matrix=matrix, model={"hidden": 16}), source="heads.yaml"
    ).variants
    assert [run.label for run in variants] == [
        "kind=gcn seed=0",
        "kind=gcn seed=1",
        "kind=gat heads=4 seed=0",
        "kind=gat heads=4 seed=1",
    ]
    assert variants[2].values["model"] == {"hidden": 16, "kind": "gat", "heads": 4}
    assert "matrix" not in variants[2].values
    assert {run.config.model.hidden for run in variants} == {16}
    assert variants[2].config.model.heads == 4


def test_the_payments_experiment_names_each_of_its_runs():
    source = str(REPOSITORY / "configs" / "experiments" / "payments.yaml")
    experiment = read_experiment(read_raw(source), source=source)
    assert [run.label for run in experiment.variants] == [
        "kind=gcn seed=0",
        "kind=sage seed=0",
        "kind=gat_e heads=4 seed=0",
    ]


@pytest.mark.parametrize(
    "matrix",
    [{"seed": [0, 0]}, {"model": [{"kind": "gcn"}, {"kind": "gcn"}]}, {"train": [{"lr": 0.1}, {}, {}]}],
)
def test_runs_that_cannot_be_told_apart_are_refused(tmp_path, matrix):
    with pytest.raises(ConfigError, match="matrix has two runs"):
        read_experiment(written(tmp_path, "layers", matrix=matrix), source="layers.yaml")


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


@pytest.mark.parametrize("matrix", [["gcn"], {"model.kind": "gcn"}, {"model.kind": []}, {"seed": list(range(101))}])
def test_a_matrix_that_is_none_is_refused(tmp_path, matrix):
    with pytest.raises(ConfigError, match="matrix"):
        read_experiment(written(tmp_path, "layers", matrix=matrix), source="layers.yaml")
