"""Every fault that calls a person: its line in the task's log within 30 s, and how it ends, on both databases.

No cheaper test finds whether the line is where the person looks, in Airflow's own log of that task, when the process
that would write it is the one that is lost: that takes Airflow's scheduler, triggerer, supervisor and database, and
real kills. Each fault prints its row of the table.
"""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from tests.airflow.live.conftest import running
from tests.airflow.live.on_call import (
    DASK,
    HERE,
    NO_WORKERS_SECONDS,
    OnCall,
    OnCallSystem,
    fill,
    retrain,
    small_disk,
    until_running_here,
)
from tests.airflow.live.runs import kill_worker
from tests.airflow.live.services import LIVE
from tests.small_graphs import graph_config, write_graph

pytestmark = [*LIVE, pytest.mark.exhaustive]
LONG, ENDLESS = {"epochs": 8000}, {"epochs": 1_000_000}
WORKERS = DASK[1:]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def on_call(request, tmp_path_factory):
    """A system of its own, since each fault leaves it as it may."""
    from tests.airflow.live.postgres import find_binaries, postgres

    binaries = find_binaries()
    if request.param == "postgresql" and binaries is None:
        pytest.skip("needs PostgreSQL: apt install postgresql")
    home = tmp_path_factory.mktemp(f"on-call-{request.param}")

    def say(row):
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{row}", flush=True)  # noqa: T201 - what a person runs this for

    database = postgres(binaries) if request.param == "postgresql" else contextlib.nullcontext("")
    with database as url, running(home, url, kind=OnCallSystem) as live:
        say(f"| fault, on {request.param} | log line | seconds to it | end | |\n|---|---|---|---|---|")
        yield OnCall(live, request.param, say)


@pytest.fixture(autouse=True)
def mended(on_call):
    """Each fault finds all parts running."""
    on_call.live.bring_back(*on_call.live.services)
    on_call.live.wait_until_healthy(seconds=120)


def test_a_killed_worker(on_call, tmp_path):
    case = on_call.case(tmp_path, "worker", **LONG)
    case.begin_at_training()
    kill_worker(on_call.live, case.until_training())
    on_call.expect("a killed Dask worker", case, "train", "which ran this stage, is lost").until("success")


def test_a_dask_scheduler_that_comes_back(on_call, tmp_path):
    case = on_call.case(tmp_path, "dask", **LONG)
    case.begin_at_training()
    case.until_training()
    on_call.live.lose(*DASK)
    heard = on_call.expect("a lost Dask scheduler, started again", case, "train", "Dask scheduler has not answered")
    on_call.live.bring_back(*DASK)
    heard.until("success")


def test_a_dask_scheduler_that_stays_away(on_call, tmp_path):
    case = on_call.case(tmp_path, "gone", **ENDLESS)
    case.begin_at_training()
    case.until_training()
    on_call.live.lose(*DASK)
    heard = on_call.expect("a lost Dask scheduler, left so", case, "train", "Dask scheduler has not answered")
    heard.until("failed", reason="no Dask scheduler answers")


def test_workers_that_come_back(on_call, tmp_path):
    case = on_call.case(tmp_path, "workers", **LONG)
    case.begin_at_training()
    case.until_training()
    on_call.live.lose(*WORKERS)
    heard = on_call.expect("no Dask workers, started again", case, "train", "the Dask cluster has no workers")
    on_call.live.bring_back(*WORKERS)
    heard.until("success")


def test_workers_that_stay_away(on_call, tmp_path):
    case = on_call.case(tmp_path, "none", **ENDLESS)
    case.begin_at_training()
    case.until_training()
    on_call.live.lose(*WORKERS)
    heard = on_call.expect("no Dask workers, left so", case, "train", "the Dask cluster has no workers")
    heard.until("failed", reason=f"has had no workers for {NO_WORKERS_SECONDS} s")


@pytest.mark.parametrize("end", ["freed", "left so"])
def test_a_full_workspace(on_call, tmp_path, end):
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        mounted = small_disk(disk)
        mounted.__enter__()
    except OSError as refused:
        pytest.skip(f"may not mount a small disk: {refused}")
    try:
        case = on_call.case(tmp_path, f"full-{end[:4]}", **(LONG if end == "freed" else ENDLESS))
        case.conf["workspace"] = str(disk / "runs")
        case.begin_at_training()
        case.until_training()
        filler = fill(disk)
        heard = on_call.expect(f"a full workspace, {end}", case, "train", "attempt 1 failed")
        assert "no space left on device" in heard.line
        if end == "freed":
            filler.unlink()
            heard.until("success")
        else:
            heard.until("failed", reason="no space left on device")
    finally:
        mounted.__exit__(None, None, None)


def test_a_breached_guard(on_call, tmp_path):
    from gnnflow.stages import pipeline

    write_graph(tmp_path, num_nodes=60)
    config = graph_config(tmp_path, train={"epochs": 2, "batch_size": 16, "threads": 1})
    pipeline.run_quietly(config)
    write_graph(tmp_path, num_nodes=300)
    run = retrain(on_call.live, config.model_dump(mode="json"))
    run_task = "guards"
    heard = on_call.expect("a breached guard", run, run_task, "It is not tried again")
    heard.until("failed", reason="guards.", task=run_task)


def test_a_killed_process_of_a_task(on_call, tmp_path):
    case = on_call.case(tmp_path, "process", dag=HERE, **LONG)
    case.begin_at_training()
    os.kill(until_running_here(case), signal.SIGKILL)
    on_call.expect("kill -9 of the task's process", case, "train", "ended without a word").until("success")


def test_a_killed_triggerer(on_call, tmp_path):
    case = on_call.case(tmp_path, "triggerer", **LONG)
    case.begin_at_training()
    case.until_training()
    on_call.live.lose("triggerer")
    on_call.live.bring_back("triggerer")
    on_call.expect("kill -9 of the triggerer", case, "train", ", which waited for ").until("success")


def test_a_killed_scheduler_of_airflow_while_a_stage_is_on_the_cluster(on_call, tmp_path):
    case = on_call.case(tmp_path, "airflow", **LONG)
    case.begin_at_training()
    case.until_training()
    on_call.live.lose("scheduler")
    heard = on_call.expect(
        "kill -9 of Airflow's scheduler, stage on the cluster", case, "train", "scheduler has not been heard"
    )
    on_call.live.bring_back("scheduler")
    heard.until("success")


def test_a_killed_scheduler_of_airflow_with_the_task_it_runs(on_call, tmp_path):
    case = on_call.case(tmp_path, "local", dag=HERE, **LONG)
    case.begin_at_training()
    until_running_here(case)
    on_call.live.lose("scheduler")
    on_call.live.bring_back("scheduler")
    heard = on_call.expect("kill -9 of Airflow's scheduler and of its tasks", case, "train", "ended without a word")
    heard.until("success")
