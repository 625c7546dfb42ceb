"""How a task waits for its stage on a cluster: here, then in its trigger, and until somebody stops it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout

from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce.fit_workers import mark
from gnnflow.remote import handover
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import run_stage
from gnnflow_airflow import submissions, trigger
from gnnflow_airflow.stages import TrainOperator
from gnnflow_airflow.trigger import StageTrigger
from tests.airflow.clusters import kinds_on, one_worker, running_on, submit
from tests.airflow.conftest import HOME
from tests.airflow.live.services import wait_for
from tests.airflow.running import TRAIN, Quiet, Store
from tests.mapreduce.foreign_cluster import foreign_cluster
from tests.small_graphs import graph_config, write_graph

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("what_dask_leaves_behind"),
]


@contextlib.contextmanager
def waiting_task(folder):
    """Yield a task that is about to wait for a long training on a cluster, and how to ask what that cluster runs."""
    write_graph(folder)
    config = graph_config(folder, train={**TRAIN, "epochs": 10_000})
    for stage in ("ingest", "select", "flat"):
        run_stage(StageContext.of(config), stage)
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))

    with foreign_cluster(folder) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("good")
        task = TrainOperator(
            task_id="train", config=str(file), cluster_address=cluster.address, deferrable=False, poll_seconds=1
        )
        yield task, lambda: running_on(cluster)


@contextlib.contextmanager
def signal_once(running, number):
    """Send this process a signal when a cluster runs a training."""

    over = threading.Event()

    def send():
        while not over.wait(0.2):
            with contextlib.suppress(ClusterError):  # a busy scheduler; it is asked again
                if any(name.startswith("gnnflow-train") for name in running()):
                    over.set()
                    os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


@pytest.fixture
def task_of(tmp_path, config):
    """Return how to make a training's task for a cluster, with its earlier stages done."""
    for stage in ("ingest", "select", "flat"):
        run_stage(StageContext.of(config), stage)

    def make(cluster, *, epochs, **options):
        file = tmp_path / "config.yaml"
        longer = graph_config(tmp_path, train={**TRAIN, "epochs": epochs, "patience": 0})
        file.write_text(yaml.safe_dump(longer.model_dump(mode="json")))
        return TrainOperator(task_id="train", config=str(file), cluster_address=cluster.address, **options)

    return make


def test_a_task_that_is_stopped_while_it_waits_starts_no_other_submission(tmp_path):
    with waiting_task(tmp_path) as (task, running):
        before = signal.signal(signal.SIGTERM, lambda *_: task.on_kill())  # as Airflow has it
        try:
            with (
                signal_once(running, signal.SIGTERM),
                pytest.raises(AirflowException, match="stopped; the next attempt resumes"),
            ):
                task.execute({"ti": Quiet(), "outlet_events": {}})
        finally:
            signal.signal(signal.SIGTERM, before)
        assert running() == []


def test_a_task_that_waits_for_a_cluster_ends_at_its_timeout_and_frees_it(tmp_path):
    with waiting_task(tmp_path) as (task, running):
        with pytest.raises(AirflowTaskTimeout), timeout(1000), signal_once(running, signal.SIGALRM):
            task.execute({"ti": Quiet(), "outlet_events": {}})
        assert running() != []  # it waited for no end of training
        task.on_kill()  # as Airflow does then
        assert running() == []


def test_what_an_attempt_left_on_the_cluster_is_not_waited_for_once_the_config_was_edited(tmp_path):
    async def begin(address, submission):
        async with submissions.connect(address) as client:
            fit = submissions.fit_workers(client, submission, say=print)
            await submissions.submit(client, submission, workers=await fit.wait())

    with waiting_task(tmp_path) as (task, running):
        file = tmp_path / "config.yaml"
        old = submissions.Submission.new("train", yaml.safe_load(file.read_text()))
        asyncio.run(begin(task.cluster_address, old))
        config = graph_config(tmp_path, train={**TRAIN, "epochs": 2})
        file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
        kept = Store(gnnflow_submission=old.name)
        outcome = task.execute({"ti": Quiet(), "outlet_events": {}, "task_state_store": kept})
        assert running() == []
    assert outcome["artifact"] == StageContext.of(config).run.artifact("train")
    assert kept["gnnflow_submission"] != old.name


def test_a_finished_stage_is_not_submitted(tmp_path, config, monkeypatch, airflow_db):
    from airflow.sdk import DAG

    from gnnflow.config.stages import retraining_chain
    from gnnflow_airflow.build import stage_tasks
    from tests.airflow.running import sync

    context = StageContext.of(config)
    chain = retraining_chain(config)
    for stage in chain:
        run_stage(context, stage)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))

    def refused(*_, **__):
        raise ClusterError("a cluster was asked")

    monkeypatch.setattr(submissions, "connect", refused)
    with DAG("finished", schedule=None) as dag:
        stage_tasks(chain, config=str(file), cluster_address="tcp://127.0.0.1:1")
    run = sync(dag).test()
    assert run.state == "success"
    outcomes = {ti.task_id: ti.xcom_pull(task_ids=ti.task_id) for ti in run.get_task_instances()}
    assert all(outcomes[stage]["reused"] for stage in ("ingest", "select", "flat", "train", "infer", "score"))
    assert outcomes["publish"]["promoted"]


def lost_trigger(config, *, marker=""):
    """Return a trigger whose cluster there is not."""
    return StageTrigger(
        submission="none",
        stage="ingest",
        config=config.model_dump(mode="json"),
        address="no address at all",
        dask_conn_id=None,
        seconds=1,
        deadline=None,
        marker=marker,
    )


def test_an_event_comes_after_the_deferring_process_was_seen_to_end(config, monkeypatch):
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "7")
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(trigger, "time", SimpleNamespace(monotonic=lambda: 0.0))  # as if a lost cluster took no time
    monkeypatch.setattr(trigger, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))

    async def first():
        return await anext(lost_trigger(config).run())

    assert asyncio.run(first()).payload["kind"] == "lost"
    assert slept == [9.0]  # the interval, and two seconds for the scheduler


def test_a_task_that_a_person_stops_leaves_no_file_for_its_workers(config):
    marker = mark(config.workspace)
    asyncio.run(lost_trigger(config, marker=marker).on_kill())
    assert not Path(marker).exists()


def test_a_short_stage_ends_in_its_task_without_deferral(tmp_path, task_of):
    with one_worker(tmp_path) as cluster:
        outcome = task_of(cluster, epochs=3).execute({"ti": Quiet(), "outlet_events": {}})
    assert outcome["reused"] is False


def test_a_long_stage_has_begun_when_its_task_defers_and_the_trigger_waits_for_the_same(tmp_path, task_of, monkeypatch):
    """By the whole way: the trigger is made of what Airflow stores of it, and its event ends the task."""
    from airflow.sdk.exceptions import TaskDeferred

    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "1")
    with one_worker(tmp_path) as cluster:
        task = task_of(cluster, epochs=1500, defer_seconds=1)
        with pytest.raises(TaskDeferred) as deferred:
            task.execute({"ti": Quiet(), "outlet_events": {}})
        running = running_on(cluster)
        assert [name.startswith("gnnflow-train-") for name in running] == [True]
        _, stored = deferred.value.trigger.serialize()
        assert stored["submission"] == running[0]
        event = asyncio.run(anext(StageTrigger(**stored).run())).payload
        kinds = [kind for kind in kinds_on(cluster, running[0]) if kind != "progress"]
        assert kinds == ["waiting", "submitted", "left", "waiting", "finished", "left"]
        assert kinds_on(cluster, handover.topic_of(running[0])) == ["taken over", "handed over", "taken over"]
    assert task.execute_complete({"ti": Quiet(), "outlet_events": {}}, event, **deferred.value.kwargs)["rows_out"]


def test_the_time_of_an_attempt_goes_on_over_its_deferrals_and_losses(tmp_path, task_of, monkeypatch):
    """Airflow itself counts each process of an attempt anew, and nothing between them."""
    from airflow.sdk.exceptions import TaskDeferred

    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "1")
    with one_worker(tmp_path) as cluster:
        task = task_of(cluster, epochs=10_000, defer_seconds=600, execution_timeout=timedelta(hours=1))
        context = {"ti": Quiet(seconds=3595), "outlet_events": {}, "task_state_store": Store()}
        begin = time.time()
        with pytest.raises(TaskDeferred) as deferred:
            task.execute(context)
        assert time.time() - begin < 60  # and not 600 s of the task's own patience
        _, stored = deferred.value.trigger.serialize()
        assert stored["deadline"] == pytest.approx(begin + 5, abs=1)
        assert deferred.value.timeout >= timedelta(seconds=60)  # the trigger is first
        event = asyncio.run(anext(StageTrigger(**stored).run())).payload
        assert running_on(cluster) == []
        with pytest.raises(AirflowException, match="ran past its execution_timeout"):
            task.execute_complete(context, event, **deferred.value.kwargs)
        with pytest.raises(AirflowException, match="ran past its execution_timeout"):
            task.execute_complete(context, dict(submissions.LOST), **deferred.value.kwargs)
        assert running_on(cluster) == []


def test_where_no_triggerer_sees_that_the_time_is_over_airflow_does_and_the_cluster_is_freed(
    tmp_path, task_of, monkeypatch
):
    """With the task's connections in place, as everywhere: without its workspace this config would be refused here."""
    from airflow.sdk.exceptions import TaskDeferred

    (HOME / "dags").mkdir(exist_ok=True)
    monkeypatch.chdir(HOME / "dags")
    monkeypatch.delenv("GNNFLOW_WORKSPACE", raising=False)
    with one_worker(tmp_path) as cluster:
        extra = {"workspace": str(tmp_path / "runs")}
        connection = {"conn_type": "dask", "host": "127.0.0.1", "port": cluster.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_IT", json.dumps(connection))
        task = task_of(cluster, epochs=10_000, defer_seconds=1, execution_timeout=timedelta(hours=1))
        values = yaml.safe_load(Path(task.config).read_text())
        del values["workspace"]
        Path(task.config).write_text(yaml.safe_dump(values))
        task.cluster_address, task.dask_conn_id = "", "it"
        context = {"ti": Quiet(), "outlet_events": {}, "task_state_store": Store()}
        with pytest.raises(TaskDeferred):
            task.execute(context)
        assert running_on(cluster) != []
        with pytest.raises(AirflowException, match="ran past its execution_timeout, and no triggerer"):
            task.resume_execution("__fail__", {"error": "Trigger timeout"}, context)
        assert running_on(cluster) == []


def test_a_driver_that_nobody_takes_over_stops_and_whoever_comes_later_submits_it_again(tmp_path, task_of, monkeypatch):
    monkeypatch.setattr(submissions, "_HANDOVER_SECONDS", 1.0)
    said = []
    with one_worker(tmp_path) as cluster:
        task = task_of(cluster, epochs=10_000)
        submission = submissions.Submission.new("train", task._read_config().model_dump(mode="json"))
        assert submit(cluster, submission, say=said.append, patience=1)["kind"] == "unfinished"
        ends = {"abandoned", "finished"}
        ended = wait_for("the driver's end", lambda: ends & {*kinds_on(cluster, submission.name)}, seconds=60)
        assert ended == {"abandoned"}
        assert running_on(cluster) == []
        assert submit(cluster, submission, say=said.append, patience=0)["kind"] == "unfinished"
        assert running_on(cluster) == [submission.name]
    assert any("since nobody waited for it" in line for line in said)
    assert sum(line.startswith("submitted") for line in said) == 2
