"""What is handed to a Dask cluster, and what is not; what the task log says while nothing moves."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections import deque
from types import SimpleNamespace

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from distributed import Client
from distributed.comm import CommClosedError

from gnnflow.mapreduce.fit_workers import mark
from gnnflow_airflow import submissions
from gnnflow_airflow.hook import DaskHook
from tests.airflow.clusters import running_on, submission_of, submit
from tests.mapreduce.foreign_cluster import foreign_cluster
from tests.small_graphs import graph_config, write_graph

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("what_dask_leaves_behind"),
]


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
