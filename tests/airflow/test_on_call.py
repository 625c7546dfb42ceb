"""The lines for whoever is called: said once, by the part that is left, and by none where nothing was lost.

Whether Airflow shows them is found by live/test_on_call.py alone; these find what they say, case by case, in seconds.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferred

from gnnflow.graph.errors import MachineError, TableError
from gnnflow_airflow import scheduler_watch
from gnnflow_airflow.attempts import attempt
from gnnflow_airflow.driver_watch import DriverWatch
from gnnflow_airflow.stages import IngestOperator
from tests.airflow.running import Quiet, Store
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


class Task:
    """An operator whose log is kept."""

    retry_delay = timedelta(seconds=20)

    def __init__(self):
        self.said = []
        self.log = self

    def warning(self, text, *parts):
        self.said.append(text % parts)


def lines_of(error=None, *, store=None, **ti):
    """Return what the log says of an attempt that ends with an error."""
    task, instance = Task(), Quiet()
    vars(instance).update(ti)
    try:
        with attempt({"ti": instance, "task_state_store": store}, task, stage="train"):
            if error is not None:
                raise error
    except type(error):
        pass
    return task.said


def test_a_killed_attempt_is_told_by_the_next_one_and_by_no_other():
    with attempt({"ti": Quiet(), "task_state_store": (running := Store())}, Task(), stage="train"):
        store = Store(running)  # as it stays where the process is killed now
    (told,) = lines_of(store=store)
    assert "the attempt before ended without a word (process " in told
    assert lines_of(store=store) == []


@pytest.mark.parametrize("end", [None, AirflowException("x"), AirflowSkipException("x"), TaskDeferred])
def test_an_attempt_that_ends_itself_leaves_no_note(end):
    store = Store()
    error = end(trigger=None, method_name="x") if end is TaskDeferred else end
    lines_of(error, store=store)
    assert lines_of(store=store) == []


def test_a_failed_attempt_says_what_follows():
    assert "The next of 2 more begins in about 20 s" in lines_of(AirflowException("disk full"), max_tries=2)[0]
    assert "attempt 3 failed: disk full" in lines_of(AirflowException("disk full"), try_number=3, max_tries=2)[0]
    assert "It was the last" in lines_of(AirflowException("disk full"), try_number=3, max_tries=2)[0]
    assert "not tried again" in lines_of(AirflowFailException("a bad table"), max_tries=2)[0]
    assert lines_of(AirflowSkipException("no such stage"), max_tries=2) == []


def test_a_lost_driver_is_told_once_and_so_is_where_it_goes_on():
    said = []
    driver = DriverWatch(said.append)
    driver.found("")
    driver.found("a")
    driver.look({"a": 1, "b": 1})
    assert said == []
    for _ in range(2):
        driver.look({"b": 1})
    driver.found("")
    driver.found("b")
    driver.look({"b": 1})
    assert [line.partition(",")[0] for line in said] == [
        "the Dask worker a",
        "the stage goes on on the Dask worker b",
    ]


@pytest.mark.parametrize(
    ("silences", "told"), [([0, 5, 10], []), ([0, 30, 35, 2, 3], ["not been heard for 30 s", "again"])]
)
def test_a_silent_scheduler_is_told_once_and_so_is_its_return(monkeypatch, silences, told):
    said, left = [], iter(silences)

    async def heard():
        return datetime.now(UTC) - timedelta(seconds=next(left))

    async def at_once(_):
        """Do not wait."""

    monkeypatch.setattr(scheduler_watch, "_last_heartbeat", heard)
    monkeypatch.setattr(scheduler_watch.asyncio, "sleep", at_once)
    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(scheduler_watch.watch_scheduler(said.append))
    assert len(said) == len(told)
    assert all(part in line for part, line in zip(told, said, strict=True))


def test_health_that_cannot_be_read_is_no_lost_scheduler(monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", "http://127.0.0.1:9/execution/")
    assert scheduler_watch._health_url() == "http://127.0.0.1:9/api/v2/monitor/health"
    assert scheduler_watch._ask() is None


@pytest.mark.parametrize(("error", "is_tried_again"), [(MachineError("disk full"), True), (TableError("x"), False)])
def test_a_full_disk_is_tried_again_and_a_bad_table_is_not(tmp_path, monkeypatch, error, is_tried_again):
    write_graph(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(graph_config(tmp_path).model_dump(mode="json")))

    def fails(*_, **__):
        raise error

    monkeypatch.setattr("gnnflow.remote.driver.run_here", fails)
    with pytest.raises(AirflowException) as raised:
        IngestOperator(task_id="ingest", config=str(file)).execute({"ti": Quiet(), "outlet_events": {}})
    assert isinstance(raised.value, AirflowFailException) != is_tried_again


def test_a_full_workspace_is_no_reason_to_ask_workers_nothing_else(tmp_path, monkeypatch):
    def is_full(_):
        raise MachineError("no space left on device")

    monkeypatch.setattr("gnnflow.mapreduce.fit_workers.mark", is_full)
    assert IngestOperator(task_id="ingest", config="unread")._mark(graph_config(tmp_path)) == ""
