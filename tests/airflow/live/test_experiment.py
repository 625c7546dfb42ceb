"""An experiment on a live Airflow: one run for each kind of layer, then their comparison."""

from __future__ import annotations

import csv

import pytest
import s3fs

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(1500)]


@pytest.mark.usefixtures("live")
def test_an_experiment_trains_every_variant_and_compares_them(experiment):
    assert experiment.wait() == "success", experiment.tasks()
    assert set(experiment.tasks().values()) == {"success"}
    assert experiment.xcom("flat_1")["reused"]
    table = s3fs.S3FileSystem(skip_instance_cache=True).cat_file(experiment.xcom("compare")["runs_table"]).decode()
    rows = list(csv.DictReader(table.splitlines()))
    assert {row["run"]: row["uri"] for row in rows} == {
        f"kind={kind}": experiment.xcom(task)["run"] for kind, task in (("gcn", "run_1"), ("sage", "run_2"))
    }
    assert float(rows[0]["valid.accuracy"]) >= float(rows[1]["valid.accuracy"])
