"""One DAG per YAML file: shared stages, a comparison, and errors that stay with their file."""

from __future__ import annotations

import csv
import html
import logging

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.stages import pipeline
from gnnflow.storage.run_folder import read_run
from gnnflow_airflow.reading import read_config
from gnnflow_airflow.reasons import REASON
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
    written(tmp_path, "layers", seeds=2)
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    dag = load("gnnflow_experiments.layers")
    assert sorted(task for task in dag.task_ids if task.startswith(("ingest", "select", "flat", "train"))) == [
        "flat_1",
        "ingest_1",
        "select_1",
        "train_1",
        "train_2",
        "train_3",
        "train_4",
    ]
    assert dag.test().state == "success"
    (table,) = tmp_path.glob("runs/comparisons/small/*/runs.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {(row["kind"], row["seed"]) for row in rows} == {("gcn", "0"), ("gcn", "1"), ("sage", "0"), ("sage", "1")}
    variants = list(csv.DictReader(table.with_name("comparison.csv").read_text().splitlines()))
    assert [row["seeds"] for row in variants] == ["2", "2"]
    assert float(variants[0]["valid.accuracy"]) >= float(variants[1]["valid.accuracy"])
    assert "is best of 2 variants" in table.with_name("comparison.html").read_text()
    assert table.with_name("comparison.svg").read_text().startswith("<svg")


class Instance:
    """A task of a DAG run whose every task parses the file anew: it finds what earlier ones told."""

    dag_id = run_id = "of this test"

    def __init__(self, told, task_id):
        self.told, self.task_id = told, task_id

    def xcom_push(self, *, key, value):
        self.told[self.task_id, key] = value

    def xcom_pull(self, *, task_ids, key="return_value", map_indexes=-1):
        return self.told.get((task_ids, key))

    def get_task_breadcrumbs(self, dag_id, run_id):
        return self.told.get("ended", [])


def execute(told, *tasks):
    """Run tasks of the experiment as its file is now."""
    dag = load("gnnflow_experiments.edited")
    for task in tasks:
        told[task, "return_value"] = dag.get_task(task).execute({"ti": Instance(told, task)})


@pytest.fixture
def edited(tmp_path, monkeypatch, airflow_db):
    """Return a function that writes the experiment with these kinds of layers."""
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    return lambda *kinds: written(tmp_path, "edited", matrix={"model.kind": list(kinds)})


def test_runs_are_called_what_they_were_when_prepared_though_the_file_was_edited(tmp_path, edited):
    told = {}
    edited("gcn", "sage")
    execute(told, "prepare_1", "prepare_2")
    for number in (1, 2):
        config = read_config(told[f"prepare_{number}", "return_value"])
        told[f"run_{number}", "return_value"] = {"run": pipeline.run_quietly(config).uri}
    edited("sage", "gcn")
    execute(told, "compare")
    (table,) = tmp_path.glob("runs/comparisons/small/*/runs.csv")
    rows = {row["run"]: row["uri"] for row in csv.DictReader(table.read_text().splitlines())}
    assert set(rows) == {"kind=gcn", "kind=sage"}
    assert all(read_run(uri)["config"]["model"]["kind"] == label.removeprefix("kind=") for label, uri in rows.items())


def test_runs_that_are_gone_fail_the_comparison_readably(tmp_path, edited):
    from airflow.sdk.exceptions import AirflowFailException

    told = {("run_1", "return_value"): {"run": str(tmp_path / "runs/runs/small/gone")}}
    edited("gcn", "sage")
    execute(told, "prepare_1")
    with pytest.raises(AirflowFailException, match=r"runs/small/gone: this run is not complete\. Run"):
        execute(told, "compare")


@pytest.mark.parametrize(
    ("kinds", "after"),
    [
        (("gcn",), ()),
        (("gcn", "sage", "gin"), ()),
        (("gcn", "sage", "gin"), ("prepare_3",)),
        (("gcn", "gin"), ("prepare_2",)),
    ],
)
def test_runs_that_are_not_of_one_experiment_are_not_compared(edited, kinds, after):
    from airflow.sdk.exceptions import AirflowFailException

    told = {}
    edited("gcn", "sage")
    execute(told, "prepare_1", "prepare_2")
    edited(*kinds)
    with pytest.raises(AirflowFailException, match="was edited"):
        execute(told, *after, "compare")


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


def test_a_second_file_of_a_name_is_its_own_import_error(tmp_path, monkeypatch, airflow_db):
    from airflow.dag_processing.dagbag import DagBag
    from airflow.dag_processing.processor import _serialize_dags

    written(tmp_path, "fraud")
    written(tmp_path, "other")
    (tmp_path / "experiments" / "other.yaml").rename(tmp_path / "experiments" / "fraud.yml")
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    dags, errors = _serialize_dags(DagBag(REPOSITORY / "dags" / "gnnflow_experiments.py"), logging.getLogger("test"))
    assert [dag.dag_id for dag in dags] == ["gnnflow_experiments.fraud"]
    assert list(errors) == ["experiments/fraud.yml"]
    assert "another file already has this DAG" in errors["experiments/fraud.yml"]


def test_a_run_that_fails_is_listed_with_its_error_and_fails_the_experiment_of_compared_runs(
    tmp_path, monkeypatch, airflow_db
):
    written(tmp_path, "lrs", matrix={"train": [{"lr": 0.01}, {"lr": 1e30, "optimizer": "sgd"}]})
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    monkeypatch.setenv("GNNFLOW_RETRIES", "0")
    run = load("gnnflow_experiments.lrs").test()
    assert run.state == "failed"
    compare = run.get_task_instance("compare")
    assert compare.xcom_pull(task_ids="compare")["runs"] == 1
    error = compare.xcom_pull(task_ids="train_2", key=REASON)
    assert "train.lr" in error
    assert compare.xcom_pull(task_ids="compare", key=REASON) is None
    (table,) = tmp_path.glob("runs/comparisons/small/*/runs.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["run"] for row in rows] == ["lr=0.01", "lr=1e+30 optimizer=sgd"]
    assert [bool(row["uri"]) for row in rows] == [True, False]
    assert [row["failed"] for row in rows] == ["", f"train_2: {error}"]
    assert f"failed: train_2: {error}" in html.unescape(table.with_name("comparison.html").read_text())


def test_an_experiment_of_which_nothing_completes_tells_every_error_at_once(edited):
    from airflow.sdk.exceptions import AirflowFailException

    told = {("train_1", REASON): "train: diverged"}
    edited("gcn", "sage")
    execute(told, "prepare_1", "prepare_2")
    states = {"prepare_1": "success", "train_1": "failed", "run_1": "upstream_failed", "run_2": "failed"}
    told["ended"] = [{"task_id": task, "map_index": -1, "state": state} for task, state in states.items()]
    with pytest.raises(AirflowFailException) as refused:
        execute(told, "compare")
    assert str(refused.value).splitlines()[1:] == [
        "  kind=gcn: train_1: train: diverged",
        "  kind=sage: run_2: told no error (killed, marked failed, or not begun); see its log",
    ]
