"""One DAG per YAML file: shared stages, a comparison, and errors that stay with their file."""

from __future__ import annotations

import csv
import html
import json
import logging
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.config.experiments import read_experiment
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


def lineage_of_comparison(monkeypatch):
    """Return what Airflow will hear of the comparison's lineage; a DAG's test runs copies of its tasks."""
    from gnnflow_airflow.compare import CompareOperator

    execute, told = CompareOperator.execute, []

    def executed(self, context):
        outcome = execute(self, context)
        told.append(self.get_openlineage_facets_on_complete(None))
        return outcome

    monkeypatch.setattr(CompareOperator, "execute", executed)
    return told


def test_an_experiment_ends_with_a_comparison(tmp_path, monkeypatch, airflow_db):
    written(tmp_path, "layers", seeds=2)
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    dag = load("gnnflow_experiments.layers")
    stages = [task.rpartition(".")[2].partition("-")[0] for task in dag.task_ids]
    assert {stage: stages.count(stage) for stage in ("ingest", "select", "flat", "train")} == {
        "ingest": 1,
        "select": 1,
        "flat": 1,
        "train": 4,
    }
    told = lineage_of_comparison(monkeypatch)
    assert dag.test().state == "success"
    (table,) = tmp_path.glob("runs/comparisons/small/*/runs.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {(row["kind"], row["seed"]) for row in rows} == {("gcn", "0"), ("gcn", "1"), ("sage", "0"), ("sage", "1")}
    variants = list(csv.DictReader(table.with_name("comparison.csv").read_text().splitlines()))
    assert [row["seeds"] for row in variants] == ["2", "2"]
    assert float(variants[0]["valid.accuracy"]) >= float(variants[1]["valid.accuracy"])
    assert "is best of 2 variants" in table.with_name("comparison.html").read_text()
    assert table.with_name("comparison.svg").read_text().startswith("<svg")
    links = re.findall(r'href="([^"]+/report.html)"', table.with_name("comparison.html").read_text())
    reports = {(table.parent / unquote(link)).resolve() for link in links}
    assert reports == {Path(row["uri"], "report.html").resolve() for row in rows}
    assert {read.name for read in told[0].inputs} == {row["uri"] for row in rows}
    assert {made.name for made in told[0].outputs} == {str(file) for file in table.parent.iterdir()}
    assert all(report.is_file() for report in reports)


def tree(group):
    """Return what Airflow's page shows of a group, in its order: names of tasks, and of groups with their own."""
    return {
        (child.group_display_name or child.group_id if is_group else child.task_display_name): is_group and tree(child)
        for child in group.topological_sort()
        for is_group in [hasattr(child, "children")]
    }


def served(dag):
    """Return a DAG as Airflow's server has it: read from the database, where names are sorted."""
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag), sort_keys=True)))


def grid(tmp_path, monkeypatch, **changed):
    from airflow.dag_processing.dagbag import DagBag

    written(tmp_path, "grid", **changed)
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    return DagBag(REPOSITORY / "dags" / "gnnflow_experiments.py").dags["gnnflow_experiments.grid"]


def test_groups_have_the_labels_of_the_comparison_in_the_order_of_the_file(tmp_path, monkeypatch, airflow_db):
    axes = {"model": [{"kind": "sage"}, {"kind": "gat", "heads": 4}], "neighbors.sampling.fanout": [[9, 5], [5, 5]]}
    changed = {"matrix": axes, "seeds": [3, 1], "neighbors": {"sampling": {"kind": "uniform", "fanout": [1, 1]}}}
    shown = tree(served(grid(tmp_path, monkeypatch, **changed)).task_group)
    raw = yaml.safe_load((tmp_path / "experiments" / "grid.yaml").read_text())
    rows = read_experiment(raw, source="grid.yaml").rows
    variants = list(dict.fromkeys(row.variant for row in rows))
    assert list(shown) == ["prepare", "before training", *variants, "compare"]
    assert list(shown["prepare"]) == [row.label for row in rows]
    own = {"train": False, "infer": False, "run": False}
    assert all(shown[variant] == {"seed 3": own, "seed 1": own} for variant in variants)
    assert list(shown[variants[0]]) == ["seed 3", "seed 1"]
    each = [f"(fanout=[{fanout}], seed {seed})" for fanout in ("9, 5", "5, 5") for seed in (3, 1)]
    stages = [name for name in shown["before training"] if not name.startswith("prepared")]
    assert stages == ["ingest", *(f"{stage} {named}" for stage in ("select", "flat") for named in each)]
    # all runs share ingest, two models each of the other stages
    prepared = [name for name in shown["before training"] if name not in stages]
    assert sorted(prepared) == sorted(["prepared", *(f"prepared {named}" for named in each)])


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ({"model.kind": ["gcn"]}, {"model.kind": ["gcn", "sage"]}),
        ({"model.kind": ["gcn", "sage"], "train.lr": [0.1]}, {"model.kind": ["gcn", "sage"], "train.lr": [0.1, 0.01]}),
        ([{"model.kind": "gcn"}], [{"model.kind": "gcn"}, {"train.lr": 0.01, "model.layers": 1}]),
        ([{"name": "a b", "seed": 4}], [{"name": "a b", "seed": 4}, {"name": "a.b", "seed": 5}]),
    ],
)
def test_ids_of_tasks_stay_where_a_variant_is_added(tmp_path, monkeypatch, airflow_db, before, added):
    first = set(grid(tmp_path, monkeypatch, matrix=before).task_ids)
    assert first < set(grid(tmp_path, monkeypatch, matrix=added).task_ids)


def test_fifty_variants_are_fifty_groups_whose_stages_keep_to_a_pool(tmp_path, monkeypatch, airflow_db):
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS_POOL", "graphs")
    lrs = [round(0.001 * number, 3) for number in range(1, 51)]
    dag = grid(tmp_path, monkeypatch, matrix={"train.lr": lrs}, seeds=2)
    shown = tree(served(dag).task_group)
    assert list(shown) == ["prepare", "before training", *(f"lr={lr}" for lr in lrs), "compare"]
    pools = {task.pool for task in dag.tasks if getattr(task, "stage", None)}
    assert pools == {"graphs"}
    assert {task.pool for task in dag.tasks if not getattr(task, "stage", None)} == {"default_pool"}


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
        prepared = dict.fromkeys((key[0] for key in self.told if key[-1] == "return_value"), "success")
        states = prepared | self.told.get("states", {})
        return [{"task_id": task, "map_index": -1, "state": state} for task, state in states.items()]


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


def test_runs_that_are_gone_fail_the_comparison_readably(tmp_path, edited):
    from airflow.sdk.exceptions import AirflowFailException

    told = {("001-kind-gcn.run", "return_value"): {"run": str(tmp_path / "runs/runs/small/gone")}}
    edited("gcn", "sage")
    execute(told, "prepare.001-kind-gcn")
    with pytest.raises(AirflowFailException, match=r"runs/small/gone: this run is not complete\. Run"):
        execute(told, "compare")


@pytest.mark.parametrize(
    ("kinds", "after"),
    [
        (("gcn",), ()),
        (("gcn", "sage", "gin"), ()),
        (("gcn", "sage", "gin"), ("prepare.003-kind-gin",)),
        (("gcn", "gin"), ("prepare.002-kind-gin",)),
        (("sage", "gcn"), ()),  # none of its tasks has run
    ],
)
def test_runs_that_are_not_of_one_experiment_are_not_compared(edited, kinds, after):
    from airflow.sdk.exceptions import AirflowFailException

    told = {}
    edited("gcn", "sage")
    execute(told, "prepare.001-kind-gcn", "prepare.002-kind-sage")
    edited(*kinds)
    with pytest.raises(AirflowFailException, match="was edited"):
        execute(told, *after, "compare")


def test_runs_that_were_all_prepared_again_after_an_edit_are_compared(tmp_path, edited):
    """As where a person mends the file of a killed experiment and clears its run, which keeps tasks of the old file."""
    from airflow.sdk.exceptions import AirflowFailException

    told = {("001-kind-gcn.run", "return_value"): {"run": str(tmp_path / "runs/runs/small/gone")}}
    edited("gcn", "sage")
    execute(told, "prepare.001-kind-gcn", "prepare.002-kind-sage")
    edited("gcn", "gin")
    execute(told, "prepare.001-kind-gcn", "prepare.002-kind-gin")
    with pytest.raises(AirflowFailException, match=r"runs/small/gone: this run is not complete"):
        execute(told, "compare")


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


def test_a_bucket_that_does_not_answer_breaks_no_experiment_and_no_form(tmp_path, monkeypatch, airflow_db):
    import runpy

    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    written(tmp_path, "fraud")
    storage = fsspec.filesystem("memory")
    storage.pipe("/experiments-here/fraud.yaml", (tmp_path / "experiments" / "fraud.yaml").read_bytes())
    for name, value in {"EXPERIMENTS": "memory://experiments-here", "CONFIGS": "memory://experiments-here"}.items():
        monkeypatch.setenv(f"GNNFLOW_{name}", value)
    monkeypatch.setenv("GNNFLOW_MODELS_COPIES", str(tmp_path / "copies"))
    monkeypatch.setenv("GNNFLOW_MODELS_SECONDS", "0")

    def parse():
        made = {
            file: runpy.run_path(str(REPOSITORY / "dags" / f"gnnflow_{file}.py"))
            for file in ("experiments", "pipeline")
        }
        return "gnnflow_experiments.fraud" in made["experiments"], "config" in made["pipeline"]["dag"].params

    def unreachable(*_, **__):
        raise OSError(110, "timed out")

    try:
        assert parse() == (True, True)
        with monkeypatch.context() as lost:
            for method in ("ls", "info", "_open", "cat_file", "exists"):
                lost.setattr(MemoryFileSystem, method, unreachable)
            assert parse() == (True, True)
    finally:
        storage.rm("/experiments-here", recursive=True)


def test_a_name_of_a_file_that_airflow_does_not_take_breaks_no_other(tmp_path, monkeypatch, airflow_db):
    from airflow.dag_processing.dagbag import DagBag
    from airflow.dag_processing.processor import _serialize_dags

    written(tmp_path, "fraud")
    experiments = tmp_path / "experiments"
    text = (experiments / "fraud.yaml").read_text()
    for name in ("fraud (1).yaml", f"{'x' * 245}.yaml"):
        (experiments / name).write_text(text)
    (experiments / "fraud [1].yaml").write_text("name: [")
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(experiments))
    dags, errors = _serialize_dags(DagBag(REPOSITORY / "dags" / "gnnflow_experiments.py"), logging.getLogger("test"))
    assert {dag.dag_id[:40] for dag in dags} == {
        "gnnflow_experiments.fraud__1_",
        "gnnflow_experiments.fraud",
        f"gnnflow_experiments.{'x' * 20}",
    }
    assert list(errors) == ["experiments/fraud [1].yaml"]


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
    error = compare.xcom_pull(task_ids="002-lr-1e30-optimizer-sgd.train", key=REASON)
    assert error.startswith("train: ")
    assert "train.lr" in error
    assert compare.xcom_pull(task_ids="compare", key=REASON) is None
    (table,) = tmp_path.glob("runs/comparisons/small/*/runs.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["run"] for row in rows] == ["lr=0.01", "lr=1e+30 optimizer=sgd"]
    assert [bool(row["uri"]) for row in rows] == [True, False]
    assert [row["failed"] for row in rows] == ["", error]
    assert f"failed: {error}" in html.unescape(table.with_name("comparison.html").read_text())


def test_a_run_that_prepare_refuses_stops_no_other(tmp_path, monkeypatch, airflow_db):
    """Two are refused: one with tables of its own, and the first one, whose stages the other runs share."""
    matrix = [{"train.metric": "rmse"}, {"model.kind": "gcn"}, {"graph.features": ["nowhere"]}, {"model.kind": "sage"}]
    written(tmp_path, "columns", matrix=matrix)
    monkeypatch.setenv("GNNFLOW_EXPERIMENTS", str(tmp_path / "experiments"))
    run = load("gnnflow_experiments.columns").test()
    assert run.state == "failed"
    (table,) = tmp_path.glob("runs/comparisons/small/*/runs.csv")
    rows = {row["run"]: row["failed"] for row in csv.DictReader(table.read_text().splitlines())}
    assert rows.pop("kind=gcn") == rows.pop("kind=sage") == ""
    metric, columns = rows["metric=rmse"], rows['features=["nowhere"]']
    assert metric.startswith("metric=rmse: train.metric: ")
    assert columns.startswith('features=["nowhere"]: ')
    assert "nowhere" in columns.partition(": ")[2]
    assert "nowhere" not in metric
    assert "rmse" not in columns


def test_an_experiment_of_which_nothing_completes_tells_every_error_at_once(edited):
    from airflow.sdk.exceptions import AirflowFailException

    told = {("001-kind-gcn.train", REASON): "train: diverged"}
    edited("gcn", "sage")
    execute(told, "prepare.001-kind-gcn", "prepare.002-kind-sage")
    told["states"] = {
        "001-kind-gcn.train": "failed",
        "001-kind-gcn.run": "upstream_failed",
        "002-kind-sage.run": "failed",
    }
    with pytest.raises(AirflowFailException) as refused:
        execute(told, "compare")
    assert str(refused.value).splitlines()[1:] == [
        "  kind=gcn: train: diverged",
        "  kind=sage: run: told no error (killed, marked failed, or not begun); see its log",
    ]
