"""Retraining on a live Airflow: by the clock, for new edges, and back; only a better model goes into service."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from gnnflow import registry
from gnnflow.cli.commands import build_app
from tests.airflow.live.journeys import MODEL, WORSE
from tests.airflow.live.runs import ENDED, read_parquet
from tests.airflow.live.services import wait_for

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(2000)]


@pytest.mark.usefixtures("live")
def test_a_run_by_the_clock_gives_the_predictions_of_the_command_line(retraining):
    run = retraining.first.result()
    assert run.state() == "success", run.tasks()
    assert run.xcom("publish")["promoted"]
    assert run.xcom("score")["version"] == 1
    assert run.predictions().equals(retraining.expected_first())


@pytest.mark.usefixtures("live")
def test_new_edges_begin_a_retraining_whose_better_model_goes_into_service(retraining):
    run = retraining.better.result()
    assert run.state() == "success", run.tasks()
    assert "promoted: test.accuracy is" in run.log("publish")
    assert run.xcom("ingest")["rows_out"] > retraining.first.result().xcom("ingest")["rows_out"]
    assert run.xcom("score")["version"] == 2


@pytest.mark.exhaustive
@pytest.mark.usefixtures("live")
def test_a_worse_model_stays_out_of_service_and_a_rollback_brings_the_former_back(retraining):
    retraining.better.result()
    worse = retraining.retrain(**WORSE)
    assert worse.state() == "success", worse.tasks()
    assert "version 2 stays: test.accuracy is" in worse.log("publish")
    assert retraining.champion() == 2

    before = by_id(worse.xcom("score")["predictions"])
    kept = read_parquet(registry.read_version(*MODEL, 1).predictions)
    done = CliRunner().invoke(build_app(), ["models", "rollback", MODEL[1], "--workspace", MODEL[0]])
    assert done.exit_code == 0, done.output
    assert retraining.champion() == 1
    assert read_parquet(registry.find_version(*MODEL, "champion").predictions).equals(kept)
    worse.clear("score", only_failed=False)
    wait_for("the cleared task", lambda: worse.state() not in ENDED, seconds=200)
    assert worse.wait() == "success"
    restored = worse.xcom("score")
    assert restored["version"] == 1
    now = by_id(restored["predictions"])
    assert now["id"].equals(before["id"])
    assert not now.equals(before)


def by_id(uri):
    return read_parquet(uri).sort_by("id")
