"""DAG gnnflow_pipeline: one run of the whole pipeline, triggered from a form or by REST.

The first task makes a config of the form's values and checks it. There is a task for every stage of any strategy; a
stage that the chosen strategy lacks is skipped.

GNNFLOW_CONFIGS   another folder (path or URL) of the configs that the form offers
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset

from gnnflow.config.stages import every_stage
from gnnflow_airflow.build import default_args, pipeline_tasks
from gnnflow_airflow.form import form_params
from gnnflow_airflow.local_copies import names_near
from gnnflow_airflow.prepare import PrepareOperator

FOLDER = os.environ.get("GNNFLOW_CONFIGS", str(Path(__file__).resolve().parents[1] / "configs"))

with DAG(
    dag_id="gnnflow_pipeline",
    description="Tables in, predictions out: ingest, GraphFlat, training, scoring, report.",
    doc_md=__doc__,
    schedule=None,
    params=form_params(configs=[uri.rsplit("/", 1)[-1] for uri in names_near(FOLDER)]),
    default_args=default_args(),
    tags=["gnnflow"],
    dagrun_timeout=timedelta(days=7),
) as dag:
    prepare = PrepareOperator(task_id="prepare", configs=FOLDER)
    tasks = pipeline_tasks(prepare, every_stage())
    # One asset for every run; an event's extra names the predictions. An alias would make one asset for each URI, and
    # Airflow fails a task if two runs of one config make the same asset at the same time.
    tasks["run"].outlets.append(Asset("gnnflow_pipeline/predictions"))
