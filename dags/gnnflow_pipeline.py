"""DAG gnnflow_pipeline: one run of the whole pipeline, triggered from a form or by REST.

The form is made from the config's models, and the first task checks its values again. There is a task for every stage
of any strategy; a stage that the chosen strategy lacks is skipped.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset

from gnnflow.config.stages import every_stage
from gnnflow_airflow.build import default_args, prepare_options, stage_tasks
from gnnflow_airflow.form import form_params
from gnnflow_airflow.prepare import PrepareOperator

with DAG(
    dag_id="gnnflow_pipeline",
    description="Tables in, predictions out: ingest, GraphFlat, training, scoring, report.",
    doc_md=__doc__,
    schedule=None,
    params=form_params(),
    default_args=default_args(),
    tags=["gnnflow"],
    dagrun_timeout=timedelta(days=7),
) as dag:
    prepare = PrepareOperator(task_id="prepare", **prepare_options())
    tasks = stage_tasks(every_stage(), config="{{ ti.xcom_pull(task_ids='prepare') }}", trigger_rule="none_failed")
    # One asset for every run; an event's extra names the predictions. An alias would make one asset for each URI, and
    # Airflow fails a task if two runs of one config make the same asset at the same time.
    tasks["run"].outlets.append(Asset("gnnflow_pipeline/predictions"))
    prepare >> next(iter(tasks.values()))
