"""What is handed to a Dask cluster, and what is not; what the task log says while nothing moves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import signal
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout
from distributed import Client
from distributed.comm import CommClosedError

from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce.fit_workers import mark
from gnnflow.remote import handover
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import run_stage
from gnnflow_airflow import submissions
from gnnflow_airflow.hook import DaskHook
from gnnflow_airflow.stages import TrainOperator
from gnnflow_airflow.trigger import StageTrigger
from tests.airflow.live.services import wait_for
from tests.airflow.running import TRAIN, Quiet
from tests.mapreduce.foreign_cluster import foreign_cluster
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def what_dask_leaves_behind():
    """Collect what a client that lost its scheduler never awaited here, where that is no error."""
    yield
    gc.collect()


@pytest.fixture
def config(tmp_path):
    write_graph(tmp_path)
    return graph_config(tmp_path, train=TRAIN)


def submission_of(config, stage="ingest"):
    return submissions.Submission.new(stage, config.model_dump(mode="json"))


def submit(cluster, submission, *, say, **options):
    async def ask():
        async with submissions.connect(cluster.address) as client:
            return await submissions.run(client, submission, say=say, **options)

    return asyncio.run(ask())


def running_on(cluster):
    """Return the names of what a cluster's workers have to do."""

    async def ask():
        async with submissions.connect(cluster.address) as client:
            return [key for keys in (await client.processing()).values() for key in keys]

    return asyncio.run(ask())


def test_nothing_is_submitted_to_workers_without_gnnflow(tmp_path):
    write_graph(tmp_path)
    config = graph_config(
        tmp_path, cluster={"kind": "address", "address": "tcp://of-the-connection", "start_seconds": 1}
    )
    said = []
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("bare", modules=None)
        event = submit(cluster, submission_of(config), say=said.append)
        assert (event["kind"], event["hopeless"]) == ("failed", False)
        assert "0 of 1 workers can run gnnflow's tasks after 1 s" in event["error"]
        assert re.search(r"\n  tcp://\S+: gnnflow is not installed$", event["error"])
        assert "ModuleNotFoundError" not in cluster.log("bare")
    assert not (tmp_path / "runs" / "artifacts").exists()


def test_workers_need_no_airflow_package(tmp_path, config):
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()  # their PYTHONPATH has gnnflow and no gnnflow_airflow
        cluster.start_worker("good")
        event = submit(cluster, submission_of(config), say=[].append)
        assert (event["kind"], event["reused"]) == ("finished", False)


def test_a_stage_runs_beside_workers_that_cannot_and_again_elsewhere_when_its_own_are_lost(tmp_path, config):
    """The driver has begun on the only fit worker when that dies."""
    said = []
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("bare", modules=None)
        cluster.start_worker("good")

        def say(line):
            said.append(line)
            if line.startswith("submitted") and "later" not in cluster.processes:
                cluster.start_worker("later")
                cluster.processes["good"].kill()

        marker = mark(config.workspace)
        submission = submissions.Submission.new("ingest", config.model_dump(mode="json"), marker=marker)
        assert submit(cluster, submission, say=say)["kind"] == "finished"
        assert "ModuleNotFoundError" not in cluster.log("bare")
    assert sum(line.startswith("submitted") for line in said) == 2
    assert any("the workers that could run this stage are gone" in line for line in said)


def test_a_stage_waits_for_the_first_worker_and_says_so(tmp_path, config, monkeypatch):
    monkeypatch.setattr(submissions, "_SILENT_SECONDS", 1.0)
    said = []
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()

        def say(line):
            said.append(line)
            if "no workers" in line:
                cluster.start_worker("late")

        assert submit(cluster, submission_of(config), say=say)["kind"] == "finished"
    assert sum("no workers" in line for line in said) == 1


def test_nothing_is_submitted_for_a_task_that_was_stopped_while_it_waited_for_a_worker(tmp_path, config, monkeypatch):
    monkeypatch.setattr(submissions, "_SILENT_SECONDS", 0.0)
    said, stop = [], threading.Event()

    def say(line):
        said.append(line)
        if "no workers" in line:
            stop.set()

    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        assert submit(cluster, submission_of(config), say=say, stopped=stop.is_set)["kind"] == "stopped"
    assert not any(line.startswith("submitted") for line in said)


def test_a_submission_whose_task_was_stopped_before_it_had_a_name_there_is_cancelled(tmp_path, config, monkeypatch):
    stop = threading.Event()
    submit_it = submissions.submit

    async def submit_as_it_is_stopped(client, submission, **named):
        assert not await submissions.is_known(client, submission.name)  # so whoever stops it finds nothing to stop
        stop.set()
        await submit_it(client, submission, **named)

    monkeypatch.setattr(submissions, "submit", submit_as_it_is_stopped)
    said = []
    submission = submission_of(config, "train")
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("good")
        assert submit(cluster, submission, say=said.append, stopped=stop.is_set)["kind"] == "stopped"
        assert running_on(cluster) == []
    # one that says nothing within its time is stopped by restarting its worker, which this one has nobody for
    assert any(line.startswith((f"stopped {submission.name}", f"{submission.name} is cancelled")) for line in said)


def test_a_lost_scheduler_is_said_in_the_log_and_ends_as_a_loss(tmp_path, config, monkeypatch):
    monkeypatch.setattr(submissions, "_SILENT_SECONDS", 1.0)
    said = []
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()

        async def ask():
            waits = asyncio.Event()

            def say(line):
                said.append(line)
                waits.set()

            async with submissions.connect(cluster.address) as client:
                client._timeout = 3.0  # for so long it looks for a scheduler that it lost
                running = asyncio.ensure_future(submissions.run(client, submission_of(config), say=say))
                await waits.wait()
                await asyncio.to_thread(cluster.stop)
                return await running

        assert asyncio.run(ask())["kind"] == "lost"
    assert "no workers" in said[0]
    assert any("scheduler" in line for line in said[1:])


@pytest.mark.parametrize("status", ["running", "closed"])
def test_a_question_cut_off_by_a_lost_scheduler_is_put_again_while_the_client_looks_for_it(monkeypatch, status):
    """With a real scheduler it is chance whether a question is under way when the connection breaks."""
    monkeypatch.setattr(submissions, "_SILENT_SECONDS", 0.2)
    monkeypatch.setattr(submissions, "_LOOK_SECONDS", 0.1)
    client, asked, said = SimpleNamespace(status="connecting"), [], []

    async def question(client, name):
        asked.append(name)
        if len(asked) < 4:
            raise CommClosedError
        client.status = status
        if status == "closed":
            raise CommClosedError
        return "answer"

    with contextlib.nullcontext() if status == "running" else pytest.raises(CommClosedError):
        assert asyncio.run(submissions._answer(said.append, question, client, "name")) == "answer"
    assert asked == ["name"] * 4
    assert [line for line in said if "the Dask scheduler has not answered" in line] == said != []


def test_progress_is_said_after_a_thousand_events_too():
    """Dask forgets the first events of a long stage; their number alone would tell of no new ones from then on."""
    kept = deque(maxlen=1000)
    said = []

    class Client:
        async def get_events(self, _):
            return tuple(kept)

    async def follow():
        last = 0.0
        for begin in range(0, 2400, 300):
            kept.extend((float(at), {"kind": "progress", "line": at}) for at in range(begin + 1, begin + 301))
            last = await submissions._report(Client(), "it", last, said.append)

    asyncio.run(follow())
    assert said == list(range(1, 2401))


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
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "1")

    async def first():
        return await anext(lost_trigger(config).run())

    begin = time.monotonic()
    event = asyncio.run(first())
    assert time.monotonic() - begin >= 3  # the interval, and two seconds for the scheduler
    assert event.payload["kind"] == "lost"


def test_a_task_that_a_person_stops_leaves_no_file_for_its_workers(config):
    marker = mark(config.workspace)
    asyncio.run(lost_trigger(config, marker=marker).on_kill())
    assert not Path(marker).exists()


def test_a_connection_is_good_only_where_gnnflow_can_run(tmp_path, monkeypatch):
    (tmp_path / "bare").mkdir()
    with foreign_cluster(tmp_path) as good, foreign_cluster(tmp_path / "bare") as bare:
        bare.start_scheduler(modules=None)
        good.start_scheduler()
        good.start_worker("bare", modules=None)
        with Client(good.address, timeout=60) as client:
            client.wait_for_workers(1, timeout=60)  # without any the connection is good
        told = {}
        for name, cluster in (("good", good), ("bare", bare)):
            place = f'{{"conn_type": "dask", "host": "127.0.0.1", "port": {cluster.port}}}'
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", place)
            told[name] = DaskHook(name).test_connection()
    assert not told["bare"][0]
    assert "gnnflow is not installed on the scheduler" in told["bare"][1]
    assert not told["good"][0]
    assert "0 of its workers can run gnnflow's tasks, and 1 is asked for. These are not fit" in told["good"][1]


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


def test_a_task_that_waits_for_the_first_worker_leaves_that_to_its_trigger_too(tmp_path, config):
    said = []
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        assert submit(cluster, submission_of(config), say=said.append, patience=0.5)["kind"] == "unfinished"
        assert running_on(cluster) == []
    assert said == []


@pytest.mark.parametrize("left", [True, False])
def test_who_waits_for_a_submission_says_so_where_the_one_before_was_killed(tmp_path, config, left):
    said = []
    submission = submission_of(config)
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("good")

        async def ask():
            async with submissions.connect(cluster.address) as client:
                await client.wait_for_workers(1, timeout=60)
                await client.log_event(submission.name, {"kind": "waiting", "by": "process 1 on far"})
                if left:
                    await client.log_event(submission.name, {"kind": "left"})
                fit = submissions.fit_workers(client, submission, say=said.append)
                await submissions.submit(client, submission, workers=await fit.wait())
                return await submissions.run(client, submission, say=said.append)

        assert asyncio.run(ask())["kind"] == "finished"
    assert any("process 1 on far, which waited for" in line for line in said) != left


class Kept(dict):
    """What a task keeps for its next attempt."""

    def set(self, key, value):
        self[key] = value

    def delete(self, key):
        del self[key]


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
        kept = Kept(gnnflow_submission=old.name)
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


@contextlib.contextmanager
def one_worker(folder):
    """Yield a cluster whose only worker is there."""

    async def wait(address):
        async with submissions.connect(address) as client:
            await client.wait_for_workers(1, timeout=60)

    with foreign_cluster(folder) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("good")
        asyncio.run(wait(cluster.address))
        yield cluster


def kinds_on(cluster, topic):
    """Return the kinds of a topic's events."""

    async def ask():
        async with submissions.connect(cluster.address) as client:
            return [event["kind"] for _, event in await client.get_events(topic)]

    return asyncio.run(ask())


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
