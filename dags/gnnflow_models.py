"""DAGs gnnflow_models.<file>: one for each YAML file in models/, which retrains a model that keeps up with its graph.

Each run: ingest, guards against tables that changed too much, the pipeline, a comparison with the model in service on
the same test split, approval by a person where the file asks for it, and scoring with the model in service. A file that
cannot be read shows as its own import error; the others are untouched.

GNNFLOW_MODELS           another folder (path or URL)
GNNFLOW_MODELS_SECONDS   how long the local copies of a URL's files are used; default 300
GNNFLOW_MODELS_COPIES    where these copies lie; default a folder of this user among the temporary files
"""

from __future__ import annotations

import os
from pathlib import Path

from gnnflow_airflow.model_dags import model_dags

FOLDER = os.environ.get("GNNFLOW_MODELS", str(Path(__file__).resolve().parents[1] / "models"))

globals().update(model_dags(FOLDER, doc=__doc__ or ""))
