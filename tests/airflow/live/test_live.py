"""The pipeline on a live Airflow while something dies, is stopped, or happens twice."""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from tests.airflow.live.runs import Case, kill_worker
from tests.airflow.live.services import LIVE, wait_for

pytestmark = LIVE
LONG = {"epochs": 2000, "patience": 0}  # ten seconds of training on an idle machine, three before a trigger waits


@pytest.mark.exhaustive
def test_values_the_form_would_not_allow_are_refused(live, tmp_path):
    case = Case(live, tmp_path, "refused")
    case.conf["train.epoch"] = 3
    case.trigger()
    assert case.wait() == "failed"
    assert case.tasks()["ingest"] == "upstream_failed"
    assert "epoch" in case.log("prepare")


def test_a_killed_dask_worker_costs_only_its_own_work(live, tmp_path):
    case = Case(live, tmp_path, "worker", **LONG)
    case.begin_at_training()
    kill_worker(live, case.until_training())
    assert case.wait() == "success", case.tasks()
    assert case.made() == case.made_by_command_line(tmp_path)


@pytest.mark.exhaustive
def test_a_killed_triggerer_is_replaced_and_the_run_goes_on(quiet_live, tmp_path):
    case = Case(quiet_live, tmp_path, "triggerer", **LONG)
    case.begin_at_training()
    case.until_training()
    quiet_live.services["triggerer"].kill(signal.SIGKILL)
    quiet_live.services["triggerer"].start()
    assert case.wait(seconds=500) == "success", case.tasks()
    assert case.made() == case.made_by_command_line(tmp_path)


@pytest.mark.exhaustive
def test_a_lost_scheduler_ends_in_a_run_that_completes(quiet_live, tmp_path):
    case = Case(quiet_live, tmp_path, "scheduler", **LONG)
    case.begin_at_training()
    case.until_training()
    for name in ("dask-scheduler", "dask-worker-1", "dask-worker-2"):  # workers leave with their scheduler
        quiet_live.services[name].kill(signal.SIGKILL)
        quiet_live.services[name].start()
    assert case.wait(seconds=500) == "success", case.tasks()
    assert case.made() == case.made_by_command_line(tmp_path)


@pytest.mark.exhaustive
def test_marking_a_deferred_task_failed_frees_the_cluster_and_a_rerun_completes(live, tmp_path):
    case = Case(live, tmp_path, "killed", epochs=3000, patience=0)
    case.begin_at_training()
    case.until_training()
    case.mark_failed("train")
    case.until_free()
    assert not case.is_trained()  # it was stopped, and did not end
    assert case.wait() == "failed"
    case.clear("train", only_failed=False)
    assert case.wait(seconds=500) == "success", case.tasks()
    assert case.made() == case.made_by_command_line(tmp_path)


@pytest.mark.exhaustive
def test_a_task_marked_failed_before_its_trigger_started_leaves_nothing_behind(live, tmp_path):
    case = Case(live, tmp_path, "early", epochs=10_000)
    case.begin_at_training()
    wait_for("deferred training", lambda: case.tasks().get("train") == "deferred", seconds=200, every=0.05)
    case.mark_failed("train")
    assert case.wait() == "failed"
    case.until_free()
    assert not case.is_trained()


@pytest.mark.exhaustive
def test_clearing_a_deferred_task_runs_it_again(live, tmp_path):
    case = Case(live, tmp_path, "cleared", **LONG)
    case.begin_at_training()
    case.until_training()
    case.clear("train", only_failed=False)
    wait_for("the cleared task", lambda: case.tasks()["train"] != "deferred", seconds=200)
    assert case.wait(seconds=500) == "success", case.tasks()
    assert case.made() == case.made_by_command_line(tmp_path)


@pytest.mark.exhaustive
def test_two_runs_of_one_config_share_the_work(live, tmp_path):
    first, second = (Case(live, tmp_path, "twins", **LONG) for _ in range(2))
    first.trigger()
    second.trigger()
    assert [case.wait(seconds=500) for case in (first, second)] == ["success", "success"]
    assert sorted(case.xcom("train")["reused"] for case in (first, second)) == [False, True]
    assert first.predictions().equals(second.predictions())
