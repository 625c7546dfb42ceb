"""A published version as a run in MLflow's tracking: parameters, metrics, and where everything lies.

MLflow gets a copy to browse and compare; the registry stays what decides. Weights and predictions are not uploaded:
tags hold their URIs. A version is logged once, however often it is published.
"""

from __future__ import annotations

import json
import math
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import RegistryError
from gnnflow.graph.secrets import without_secrets
from gnnflow.registry.versions import CONFIG
from gnnflow.storage.filesystem import join
from gnnflow.storage.model_files import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlflow import MlflowClient

    from gnnflow.registry.versions import Version

_PARAMS_PER_CALL = 100  # MLflow's own limit
_LONGEST = 6000  # characters of a parameter, likewise


def log_version(version: Version, *, tracking_uri: str) -> str:
    """Log a version to the experiment of its name, made where it is missing, and return MLflow's run id.

    Raises RegistryError where mlflow is not installed, or the tracking server refuses or cannot be reached.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise RegistryError(
            "mlflow is not installed", where="MLFLOW_TRACKING_URI", fix="Install 'gnnflow[mlflow]', or unset it."
        ) from error
    # Its client prints links to stdout, where `--json` promises one document.
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    try:
        return _log(MlflowClient(tracking_uri=tracking_uri), version)
    except MlflowException as error:
        raise RegistryError(
            f"MLflow did not take version {version.version} ({without_secrets(str(error)).rstrip('.')})",
            where="MLFLOW_TRACKING_URI",
            fix="Publish again once it does.",
        ) from error


def _log(client: MlflowClient, version: Version) -> str:
    found = client.get_experiment_by_name(version.name)
    experiment = found.experiment_id if found else client.create_experiment(version.name)
    mine = f"tags.`gnnflow.uri` = '{version.uri}' and attributes.status = 'FINISHED'"
    logged = client.search_runs([experiment], filter_string=mine, max_results=1)
    if logged:
        return str(logged[0].info.run_id)
    run = client.create_run(experiment, run_name=f"version {version.version}", tags=_tags(version))
    identity = str(run.info.run_id)
    _log_figures(client, identity, version)
    client.set_terminated(identity, "FINISHED")
    return identity


def _log_figures(client: MlflowClient, identity: str, version: Version) -> None:
    from mlflow.entities import Metric, Param

    at = int(datetime.fromisoformat(version.created).timestamp() * 1000)
    finite = {key: held for key, held in version.metrics.items() if math.isfinite(held)}
    client.log_batch(identity, metrics=[Metric(key, held, at, 0) for key, held in finite.items()])
    params = [Param(key, held[:_LONGEST]) for key, held in _flat(json.loads(version.read(CONFIG)))]
    for start in range(0, len(params), _PARAMS_PER_CALL):
        client.log_batch(identity, params=params[start : start + _PARAMS_PER_CALL])


def _tags(version: Version) -> dict[str, str]:
    tags = {
        "gnnflow.uri": version.uri,
        "gnnflow.version": str(version.version),
        "gnnflow.run": version.run,
        "gnnflow.model": join(version.uri, WEIGHTS),
        "gnnflow.predictions": version.predictions,
        "gnnflow.report": version.report,
        **{f"gnnflow.fingerprint.{stage}": held for stage, held in version.fingerprints.items()},
    }
    return {**tags, "mlflow.source.git.commit": version.revision} if version.revision else tags


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every leaf of nested keys as (`train.lr`, text)."""
    if isinstance(value, dict) and value:
        for key, held in value.items():
            yield from _flat(held, f"{path}.{key}".lstrip("."))
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)
