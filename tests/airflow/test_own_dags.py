"""DAGs that others write: each example of the documentation runs, and what it says of groups, configs and events holds.

Cheaper tests read no DAG file as Airflow does, and know neither templates, default arguments nor asset events.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow.graph.errors import ConfigError, GnnflowError
from gnnflow.stages import pipeline
from gnnflow_airflow.reading import read_config
from gnnflow_airflow.task_group import GnnflowTaskGroup
from tests.airflow.running import TRAIN, sync
from tests.conftest import REPOSITORY
from tests.small_graphs import write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

DATE = datetime(2026, 3, 1, tzinfo=UTC)
STAGES = ["ingest", "select", "flat", "train", "infer", "run"]
EVERY = ["ingest", "partition", "select", "flat", "baselines", "train", "infer", "run"]


@pytest.fixture
def bank(tmp_path, airflow_db):
    """Return the folder that stands for the bucket of the examples: tables, and a config."""
    for folder in (tmp_path, tmp_path / f"{DATE:%Y-%m-%d}"):
        write_graph(folder)
    graph = {"nodes": str(tmp_path / "nodes.parquet"), "edges": str(tmp_path / "edges.parquet"), "partitions": 3}
    values = {"name": "fraud", "workspace": str(tmp_path / "runs"), "graph": graph, "train": TRAIN}
    (tmp_path / "fraud.yaml").write_text(yaml.safe_dump({**values, "cluster": {"kind": "synchronous"}}))
    return tmp_path


def examples(page):
    return re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


def dags_of(text, folder):
    """Return the DAGs of a file with this text, as Airflow reads it, by their ids."""
    from airflow.dag_processing.dagbag import DagBag

    file = folder / "example.py"
    file.write_text(text.replace("s3://bank", str(folder)))
    bag = DagBag(file)
    assert not bag.import_errors
    return {dag_id: sync(dag) for dag_id, dag in bag.dags.items()}


def states_of(run):
    return {ti.task_id: ti.state for ti in run.get_task_instances()}


def events_of(name):
    """Return what the events of an asset carry, the oldest first."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        events = session.scalars(select(AssetEvent).order_by(AssetEvent.id))
        return [event.extra for event in events if event.asset.name == name]


def test_every_example_of_the_page_runs(bank):
    ran = {}
    for text in examples("own-dags.md"):
        for dag_id, dag in dags_of(text, bank).items():
            run = dag.test(logical_date=DATE)
            assert run.state == "success", dag_id
            ran[dag_id] = states_of(run)
    assert list(ran) == ["fraud", "fraud_weekly", "mules", "asked", "embed", "stages", "announce", "act"]
    skipped = {dag_id: [task for task, state in held.items() if state == "skipped"] for dag_id, held in ran.items()}
    assert {dag_id: sorted(tasks, reverse=True) for dag_id, tasks in skipped.items() if tasks} == {
        "fraud_weekly": ["retrain.partition", "retrain.baselines"],
        "asked": ["gnnflow.partition", "gnnflow.baselines"],
    }
    (event,) = events_of("fraud/scores")
    assert event["version"] == 1


def test_the_examples_of_airflow_md_act_on_each_others_assets(bank):
    from airflow.sdk import DAG, Asset, task

    predictions = Asset("quickstart/predictions")
    with DAG("scores", schedule=None) as scores:

        @task(outlets=[predictions])
        def score(*, outlet_events):
            outlet_events[predictions].extra["predictions"] = "here"

        score()

    text = next(each for each in examples("airflow.md") if "act_on_payments" in each)
    dags = dags_of(text, bank)
    for dag in (dags["load_payments"], sync(scores), dags["act_on_payments"]):
        assert dag.test(logical_date=DATE).state == "success", dag.dag_id


def test_the_chain_of_the_page_trains_though_a_stage_is_skipped(bank):
    values = yaml.safe_load((bank / "fraud.yaml").read_text())
    values["train"]["source"] = "store"
    (bank / "fraud.yaml").write_text(yaml.safe_dump(values))
    (text,) = (each for each in examples("own-dags.md") if 'DAG("stages"' in each)
    run = dags_of(text, bank)["stages"].test()
    assert states_of(run) == {"ingest": "success", "flat": "skipped", "train": "success"}


def test_an_asset_has_an_event_for_each_result_that_is_not_its_latest_whoever_made_it(bank):
    """The seed decides the result of the run and not that of ingest."""
    from airflow.sdk import DAG, Asset

    file = str(bank / "fraud.yaml")
    pipeline.run_quietly(read_config(file))  # as a try that was killed before its task ended
    with DAG("again", schedule=None) as dag:
        group = GnnflowTaskGroup(config=file, outlets=[Asset("once"), Asset.ref(name="once too")])
        group.tasks["ingest"].outlets.append(Asset("once too"))
    sync(dag)
    counts = []
    for changed in ("seed=0", "seed=0", "seed=1", "seed=0"):
        group.prepare.overrides = [changed]
        assert dag.test().state == "success"
        counts.append([len(events_of(name)) for name in ("once", "once too")])
    assert counts == [[1, 2], [1, 2], [2, 3], [3, 4]]


def test_a_group_has_the_stages_of_its_config(bank):
    from airflow.sdk import DAG

    file = str(bank / "fraud.yaml")
    values = yaml.safe_load((bank / "fraud.yaml").read_text())
    stored = {**values, "train": {"source": "store", "baselines": "all"}}
    dated = {**values, "workspace": "/data/{{ ds }}"}
    with DAG("groups", schedule=None):
        found = {
            name: list(GnnflowTaskGroup(group_id=name, **options).tasks)
            for name, options in {
                "file": {"config": file},
                "dict": {"config": stored},
                "text": {"config": yaml.safe_dump(values), "overrides": ["train={strategy: global-batch}"]},
                "dated": {"config": dated},
                "typed": {"config": file, "overrides": ["train.source={{ params.source }}"]},
                "asked": {"config": "{{ params.config }}", "publish": True},
                "some": {"config": "/nowhere.yaml", "stages": ["ingest", "select"]},
            }.items()
        }
    assert found == {
        "file": STAGES,
        "dict": ["ingest", "select", "baselines", "train", "infer", "run"],
        "text": ["ingest", "select", "train", "infer", "run"],
        "dated": STAGES,
        "typed": EVERY,
        "asked": ["ingest", "guards", *EVERY[1:], "publish", "score"],
        "some": ["ingest", "select"],
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"config": "/nowhere.yaml"}, "no such file"),
        ({"config": {"name": "small"}}, "graph: required"),
        ({"config": 3}, "a int is not a config"),
        ({"config": "{{ params.config }}", "poll": 3}, "poll"),
        ({"config": "/nowhere.yaml", "stages": ["ingest"], "publish": True}, "publish: .* `stages` names all that run"),
    ],
)
def test_a_group_that_cannot_be_is_refused_when_the_dag_is_read(options, told):
    from airflow.sdk import DAG

    with DAG("refused", schedule=None), pytest.raises((GnnflowError, TypeError), match=told):
        GnnflowTaskGroup(**options)


def test_what_a_dag_says_counts_before_the_settings_and_what_a_group_says_before_both(monkeypatch):
    from airflow.sdk import DAG, TaskGroup

    monkeypatch.setenv("GNNFLOW_DASK_CONN_ID", "setting")
    monkeypatch.setenv("GNNFLOW_RETRIES", "5")
    config = "{{ params.config }}"
    with DAG("defaults", schedule=None, default_args={"retries": 1, "owner": "dag", "queue": "dag"}):
        plain = GnnflowTaskGroup("plain", config=config)
        with TaskGroup("outer", default_args={"queue": "outer"}):
            own = GnnflowTaskGroup(
                config=config,
                group_id="own",
                default_args={"owner": "group"},
                pool="graphs",
                dask_conn_id="mine",
                deferrable=False,
                tooltip="mine",
            )
    first, last = plain.tasks["ingest"], own.tasks["run"]
    assert (first.retries, first.owner, first.queue, first.dask_conn_id) == (1, "dag", "dag", "setting")
    assert (last.retries, last.owner, last.queue, last.pool) == (1, "group", "outer", "graphs")
    assert (last.dask_conn_id, last.deferrable, last.poll_seconds) == ("mine", False, 5.0)
    assert (own.prepare.dask_conn_id, own.prepare.pool, own.prepare.retries) == ("mine", "graphs", 1)
    assert (own.tooltip, last.task_id) == ("mine", "outer.own.run")


def test_a_group_that_a_branch_leaves_out_is_skipped_as_a_whole(bank):
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.providers.standard.operators.python import ShortCircuitOperator
    from airflow.sdk import DAG

    with DAG("branch", schedule=None) as dag:
        start = ShortCircuitOperator(
            task_id="start", python_callable=lambda: False, ignore_downstream_trigger_rules=False
        )
        group = GnnflowTaskGroup(config=str(bank / "fraud.yaml"))
        start >> group >> EmptyOperator(task_id="after", trigger_rule="none_failed")
    run = sync(dag).test()
    assert states_of(run) == {
        "start": "success",
        "gnnflow.prepare": "skipped",
        **{f"gnnflow.{stage}": "skipped" for stage in STAGES},
        "after": "success",
    }


def test_a_config_is_a_file_a_dict_or_a_text(bank, monkeypatch):
    from pathlib import Path

    monkeypatch.setenv("PLANTED_SECRET", "the-value-itself")
    file = bank / "fraud.yaml"
    values = yaml.safe_load(file.read_text())
    forms = (str(file), Path(file), values, yaml.safe_dump(values), yaml.safe_dump(values, default_flow_style=True))
    first, *others = [read_config(form, overrides=["train.lr=0.02"]) for form in forms]
    assert all(other == first for other in others)
    assert first.train.lr == 0.02
    for form in (named := {**values, "workspace": "${PLANTED_SECRET}"}, yaml.safe_dump(named)):
        with pytest.raises(ConfigError, match="holds a variable"):
            read_config(form)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (3, "a int is not a config"),
        (None, "a NoneType is not a config"),
        ("  ", "an empty text is not a config"),
        ({"name": object()}, "a object is not a value of a config"),
        ({"name": "x", "seeds": [1]}, "seeds is a key of experiments"),
        ("name: x\ngraph: [", "line 2"),
        ("name: x\ngraph: 3", "graph"),
    ],
)
def test_anything_else_is_refused_as_a_config(given, told):
    with pytest.raises(ConfigError, match=told):
        read_config(given)
