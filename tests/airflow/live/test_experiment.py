"""An experiment on a live Airflow: a run for each variant, then their comparison."""

from __future__ import annotations

import csv

import pytest
import s3fs

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(1500)]


@pytest.mark.usefixtures("live")
def test_an_experiment_compares_the_variants_that_train_and_fails_for_the_one_that_does_not(experiment):
    assert experiment.wait() == "failed", experiment.tasks()
    states = experiment.tasks()
    assert {task: state for task, state in states.items() if state != "success"} == {
        "train_3": "failed",
        "infer_3": "upstream_failed",
        "run_3": "upstream_failed",
        "compare": "failed",
    }
    assert experiment.xcom("flat_1")["reused"]
    table = s3fs.S3FileSystem(skip_instance_cache=True).cat_file(experiment.xcom("compare")["runs_table"]).decode()
    best, second, failed = csv.DictReader(table.splitlines())
    assert {row["run"]: row["uri"] for row in (best, second)} == {
        f"kind={kind}": experiment.xcom(task)["run"] for kind, task in (("gcn", "run_1"), ("sage", "run_2"))
    }
    assert float(best["valid.accuracy"]) >= float(second["valid.accuracy"])
    assert failed["failed"].startswith("train_3: train: the model's scores are not finite numbers.")
    assert failed["failed"] in experiment.log("compare")
