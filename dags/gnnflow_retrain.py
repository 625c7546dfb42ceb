"""DAG gnnflow_retrain: a model that keeps up with its graph.

Runs on a schedule or when the graph's tables change, whichever comes first: ingest, guards against tables that changed
too much, the pipeline, a comparison with the model in service on the same test split, and scoring with the better
model. A loader announces new data by updating the asset `<name>/graph`.

GNNFLOW_RETRAIN_CONFIG   the config (path or URL); default configs/quickstart.yaml of this checkout
GNNFLOW_RETRAIN_CRON     when to run at the latest; default Sundays at three (UTC)
"""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable

from gnnflow.config.stages import retraining_chain
from gnnflow_airflow.build import default_args, prepare_options, stage_tasks
from gnnflow_airflow.prepare import PrepareOperator
from gnnflow_airflow.reading import read_config

CONFIG = os.environ.get(
    "GNNFLOW_RETRAIN_CONFIG", str(Path(__file__).resolve().parents[1] / "configs" / "quickstart.yaml")
)
CRON = os.environ.get("GNNFLOW_RETRAIN_CRON", "0 3 * * 0")

config = read_config(CONFIG)
# By name alone, so that `Asset("NAME/graph")` in a user's DAG is the same asset.
graph, predictions = Asset(f"{config.name}/graph"), Asset(f"{config.name}/predictions")

with DAG(
    dag_id="gnnflow_retrain",
    description=f"Retrain {config.name}, promote only what is better, score with the model in service.",
    doc_md=__doc__,
    schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable(CRON, timezone="UTC"), assets=[graph]),
    catchup=False,
    is_paused_upon_creation=True,  # until somebody starts it
    max_active_runs=1,
    default_args=default_args(),
    tags=["gnnflow"],
) as dag:
    prepare = PrepareOperator(task_id="prepare", config=CONFIG, **prepare_options())
    # A stage is skipped where the file was edited since this DAG was read; the ones after it run all the same.
    tasks = stage_tasks(
        retraining_chain(config), config="{{ ti.xcom_pull(task_ids='prepare') }}", trigger_rule="none_failed"
    )
    tasks["ingest"].inlets.append(graph)
    tasks["score"].outlets.append(predictions)
    prepare >> tasks["ingest"]
