"""A stage that is one row of the table has an operator, a place in DAGs, and lineage; no operator is written for it."""

from __future__ import annotations

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.config.pipelines import PIPELINES, Pipeline
from gnnflow.config.stages import STAGES, STORE, Stage
from gnnflow_airflow.build import stage_tasks
from gnnflow_airflow.lineage import datasets_of
from gnnflow_airflow.reading import read_config
from gnnflow_airflow.stage import StageOperator
from gnnflow_airflow.stages import operator_of
from tests.airflow.running import TRAIN, sync
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

DEGREES = Stage(
    "toy_degrees",
    "Count the in-edges of each node.",
    "tests.airflow.toy_stage:work",
    needs=(STORE,),
    keys=lambda config: {"partitions": config.graph.partitions},
)


@pytest.fixture(autouse=True)
def with_degrees(monkeypatch):
    """Add the row, and a strategy that has it."""
    monkeypatch.setitem(STAGES, DEGREES.name, DEGREES)
    stages = ("ingest", DEGREES.name)
    monkeypatch.setitem(PIPELINES, "toy", Pipeline(stages, source="", execution="minibatch"))


def run_dag(dag_id, folder, *, strategy):
    """Ingest a small graph and count its in-edges in a DAG; return the tasks by name, and the config's file."""
    from airflow.sdk import DAG

    write_graph(folder)
    config = graph_config(folder, train={**TRAIN, "strategy": strategy})
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    with DAG(dag_id, schedule=None) as dag:
        stage_tasks(("ingest", DEGREES.name), config=str(file))
    run = sync(dag).test()
    assert run.state == "success"
    return {ti.task_id: ti for ti in run.get_task_instances()}, str(file)


def test_a_row_of_the_table_has_an_operator():
    operator = operator_of(DEGREES.name)
    assert issubclass(operator, StageOperator)
    assert (operator.__name__, operator.stage, operator.__doc__) == (
        "ToyDegreesOperator",
        "toy_degrees",
        "Count the in-edges of each node.",
    )


def test_its_task_runs_after_the_stages_before_it_and_lineage_names_what_it_read_and_wrote(tmp_path, airflow_db):
    tasks, file = run_dag("with_degrees", tmp_path, strategy="toy")
    outcome = tasks[DEGREES.name].xcom_pull(task_ids=DEGREES.name)
    assert (outcome["stage"], outcome["rows_out"]) == (DEGREES.name, 60)
    inputs, outputs = datasets_of(DEGREES.name, read_config(file), outcome)
    store = tasks["ingest"].xcom_pull(task_ids="ingest")
    assert [(read.uri, read.rows) for read in inputs] == [(store["artifact"], store["rows_out"])]
    assert [(made.uri, made.rows) for made in outputs] == [(outcome["artifact"], 60)]
    assert [name for name, _ in outputs[0].columns] == ["in_degree"]


def test_it_is_skipped_where_the_strategy_does_not_have_it(tmp_path, airflow_db):
    tasks, _ = run_dag("without_degrees", tmp_path, strategy="mini-batch")
    assert {name: task.state for name, task in tasks.items()} == {"ingest": "success", DEGREES.name: "skipped"}
