"""An experiment on a live Airflow: a run for each variant, then their comparison."""

from __future__ import annotations

import csv

import pytest
import s3fs

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from tests.airflow.live.journeys import DIVERGES
from tests.airflow.live.services import LIVE, POOL, POOL_SLOTS

pytestmark = LIVE


@pytest.mark.usefixtures("live")
def test_an_experiment_compares_the_variants_that_train_and_fails_for_the_one_that_does_not(experiment):
    assert experiment.wait() == "failed", experiment.tasks()
    states = experiment.tasks()
    assert {task: state for task, state in states.items() if state != "success"} == {
        f"{DIVERGES}.train": "failed",
        f"{DIVERGES}.infer": "upstream_failed",
        f"{DIVERGES}.run": "upstream_failed",
        "compare": "failed",
    }
    assert experiment.xcom("before_training.flat-001")["reused"]
    assert experiment.most_at_once(POOL) == POOL_SLOTS
    table = s3fs.S3FileSystem(skip_instance_cache=True).cat_file(experiment.xcom("compare")["runs_table"]).decode()
    best, second, failed = csv.DictReader(table.splitlines())
    assert {row["run"]: row["uri"] for row in (best, second)} == {
        f"kind={kind}": experiment.xcom(f"{group}.run")["run"]
        for kind, group in (("gcn", "001-kind-gcn"), ("sage", "002-kind-sage"))
    }
    assert float(best["valid.accuracy"]) >= float(second["valid.accuracy"])
    assert failed["failed"].startswith("train: the model's scores are not finite numbers.")
    log = experiment.log("compare")
    assert failed["failed"] in log
    assert "is best of 2 variants (1 of 3 runs failed): its valid accuracy" in log
    assert "report of kind=gcn: " in log
