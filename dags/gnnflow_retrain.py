"""DAG gnnflow_retrain: a model that keeps up with its graph.

Runs on a schedule or when the graph's tables change, whichever comes first: ingest, guards against tables that changed
too much, the pipeline, a comparison with the model in service on the same test split, and scoring with the better
model. A loader announces new data by updating the asset `<name>/graph`. For more models see `gnnflow_models.py`.

GNNFLOW_RETRAIN_CONFIG   the config (path or URL); default configs/quickstart.yaml of this checkout
GNNFLOW_RETRAIN_CRON     when to run at the latest; default Sundays at three (UTC)
"""

from __future__ import annotations

import os
from pathlib import Path

from gnnflow_airflow.local_copies import text_near
from gnnflow_airflow.model_file import ModelFile, model_of
from gnnflow_airflow.retraining import retraining_dag

CONFIG = os.environ.get(
    "GNNFLOW_RETRAIN_CONFIG", str(Path(__file__).resolve().parents[1] / "configs" / "quickstart.yaml")
)
CRON = os.environ.get("GNNFLOW_RETRAIN_CRON", "0 3 * * 0")

model = model_of(ModelFile(config=CONFIG, schedule=CRON), source="", read=text_near)
dag = retraining_dag(model, dag_id="gnnflow_retrain", doc=__doc__ or "")
