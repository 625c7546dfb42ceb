"""The sensor for versions of a model, waiting here and in a trigger, and the option by which tasks defer.

The examples of docs/own-dags.md run it once, with a version that is there already.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from gnnflow import registry
from gnnflow.stages import pipeline
from gnnflow.storage import access
from gnnflow_airflow.sensors import ModelVersionSensor, ModelVersionTrigger
from gnnflow_airflow.stages import IngestOperator
from tests.airflow.running import TRAIN, Quiet, sync
from tests.s3 import local_bucket
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

SOON = timedelta(days=1)
WAIT = {"task_id": "wait", "name": "small"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Return a workspace with one version of the model small, which is the candidate."""
    folder = tmp_path_factory.mktemp("registry")
    write_graph(folder)
    config = graph_config(folder, train=TRAIN)
    registry.register(config.workspace, pipeline.run_quietly(config).uri)
    registry.nominate(config.workspace, "small", 1)
    return config.workspace


def published(workspace, name):
    """Publish the same run as another model, without an alias."""
    registry.register(workspace, registry.read_version(workspace, "small", 1).run, name=name)


def poke(workspace, **options):
    found = ModelVersionSensor(workspace=workspace, **WAIT, **options).poke({"ti": Quiet()})
    return found.xcom_value if found else None


def fired(trigger):
    """Return the only event of a trigger."""

    async def events():
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(events())
    return event


def deferred_by(sensor, **instance):
    """Return the trigger that a sensor leaves its wait to, made of what Airflow stores of it."""
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({"ti": Quiet(**instance)})
    return ModelVersionTrigger(**deferred.value.trigger.serialize()[1])


def test_a_version_is_found_by_its_alias_and_the_time_of_its_move(workspace):
    now = datetime.now(UTC)
    found = poke(workspace, alias="candidate")
    assert (found["name"], found["version"], found["alias"]) == ("small", 1, "candidate")
    assert found["predictions"] == registry.read_version(workspace, "small", 1).predictions
    assert poke(workspace) is None
    assert poke(workspace, alias="candidate", since=(now - SOON).isoformat()) == found
    assert poke(workspace, alias="candidate", since=datetime.fromisoformat(found["since"])) == found
    assert poke(workspace, alias="candidate", since=now + SOON) is None


@pytest.mark.parametrize("name", ["small", "smal"])
def test_a_sensor_that_waits_says_for_what(workspace, name, monkeypatch):
    sensor = ModelVersionSensor(task_id="wait", name=name, workspace=workspace, since="2999-01-01")
    said = []
    monkeypatch.setattr(type(sensor), "log", SimpleNamespace(info=lambda text, *words: said.append(text % words)))
    sensor.poke({"ti": Quiet()})
    models = ", ".join(registry.list_models(workspace))
    told = "" if name == "small" else f"; it has no such model yet, its models: {models}"
    assert said == [f"waits for a champion of {name} since 2999-01-01 in {workspace}{told}"]


def test_the_workspace_is_the_one_of_the_environment_where_none_is_named(workspace, monkeypatch):
    monkeypatch.setenv("GNNFLOW_WORKSPACE", workspace)
    assert poke(None, alias="candidate")["version"] == 1


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"alias": "latest"}, "'latest' is not an alias. Choose one of: champion, candidate."),
        ({"name": "a/b"}, "is not a model name"),
        ({"since": "None"}, "'None' is not a date"),
        ({"workspace": "s3://${HOME}/runs"}, "holds a variable"),
    ],
)
def test_what_cannot_come_true_fails_without_a_retry(workspace, asked, told):
    sensor = ModelVersionSensor(**{"workspace": workspace, "alias": "candidate", **WAIT, **asked})
    with pytest.raises(AirflowFailException) as failed:
        sensor.poke({"ti": Quiet()})
    assert told in str(failed.value)


def test_a_task_that_does_not_defer_waits_in_its_slot_until_its_time_is_over(workspace, airflow_db):
    from airflow.sdk import DAG

    # Airflow's scheduler ends a deferral that takes too long, which no run in one process has.
    options = {"since": "2999-01-01", "alias": "candidate", "timeout": 1, "poke_interval": 1, "deferrable": False}
    with DAG("waits_here", schedule=None) as dag:
        ModelVersionSensor(workspace=workspace, **WAIT, **options, soft_fail=True)
    (ti,) = sync(dag).test().get_task_instances()
    assert ti.state == "skipped"


def test_a_deferred_task_goes_on_when_the_version_is_in_service(workspace, airflow_db):
    from airflow.sdk import DAG

    published(workspace, "later")
    with DAG("waits_in_a_trigger", schedule=None) as dag:
        ModelVersionSensor(task_id="wait", name="later", workspace=workspace, poke_interval=1)
    promotion = threading.Timer(3, registry.promote, [workspace, "later", 1])
    promotion.start()
    (ti,) = sync(dag).test().get_task_instances()
    promotion.join()
    assert (ti.state, ti.xcom_pull(task_ids="wait")["version"]) == ("success", 1)


def test_a_trigger_fires_an_error_too(workspace):
    asked = {"workspace": workspace, "name": "small", "alias": "latest", "since": "", "seconds": 0.1}
    trigger = ModelVersionTrigger(**asked)
    path, stored = trigger.serialize()
    assert path == "gnnflow_airflow.sensors.ModelVersionTrigger"
    assert stored == {**asked, "deadline": None, "dask_conn_id": None, "storage_conn_id": None}
    event = fired(trigger)
    with pytest.raises(AirflowException, match="'latest' is not an alias"):
        ModelVersionSensor(workspace=workspace, **WAIT).execute_complete({"ti": Quiet()}, event)


def test_the_wait_in_a_trigger_ends_with_the_execution_timeout_of_the_attempt(workspace):
    options = {"since": "2999-01-01", "alias": "candidate", "execution_timeout": timedelta(minutes=1)}
    sensor = ModelVersionSensor(workspace=workspace, **WAIT, **options)
    event = fired(deferred_by(sensor, seconds=59.5))
    with pytest.raises(AirflowException, match="ran past its execution_timeout"):
        sensor.execute_complete({"ti": Quiet()}, event)


@pytest.mark.s3
@pytest.mark.parametrize("through", ["the storage connection", "the Dask connection"])
def test_versions_on_a_store_are_found_with_the_connections_here_and_in_a_trigger(workspace, monkeypatch, through):
    import s3fs

    with local_bucket() as bucket:
        endpoint = os.environ["AWS_ENDPOINT_URL"]
        s3fs.S3FileSystem().put(f"{workspace}/registry", f"{bucket}/runs/registry", recursive=True)
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        store = {"conn_type": "aws", "login": "id", "password": "pw", "extra": {"endpoint_url": endpoint}}
        monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(store))
        extra = {"workspace": f"{bucket}/runs", "storage_conn_id": "store"}
        monkeypatch.setenv("AIRFLOW_CONN_IT", json.dumps({"conn_type": "dask", "host": "there", "extra": extra}))
        named = {
            "the storage connection": {"workspace": f"{bucket}/runs", "storage_conn_id": "store"},
            "the Dask connection": {"dask_conn_id": "it"},
        }[through]
        sensor = ModelVersionSensor(**WAIT, **named, alias="candidate", poke_interval=0.1)
        assert sensor.execute({"ti": Quiet()})["version"] == 1
        sensor.alias = "champion"
        trigger = deferred_by(sensor)
        trigger.asked["alias"] = "candidate"
        assert fired(trigger)["version"] == 1
        assert access.options_of(f"{bucket}/runs") == {}


@pytest.mark.parametrize(("option", "expected"), [(None, True), ("False", False), ("True", True)])
def test_tasks_defer_as_airflows_variable_says_where_it_is_set(monkeypatch, option, expected):
    if option is not None:
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", option)
    ingest = {"task_id": "ingest", "config": "unread"}
    assert IngestOperator(**ingest).deferrable is expected
    assert ModelVersionSensor(**WAIT).deferrable is expected
    assert IngestOperator(**ingest, deferrable=not expected).deferrable is not expected


def test_the_defaults_that_airflow_writes_into_a_new_file_are_nobodys_choice(monkeypatch):
    from airflow.sdk.configuration import conf

    monkeypatch.setattr(conf, "_sections", {**conf._sections, "operators": {"default_deferrable": "false"}})
    assert IngestOperator(task_id="ingest", config="unread").deferrable
