"""Logs published versions and learning curves to MLflow: parameters, metrics and locations.

A version is one run, the curves of a training stage are another. MLflow gets a copy to browse and compare; the registry
decides. Weights and predictions are not uploaded: tags hold their URIs. A version is logged once, however often it is
published.
"""

from __future__ import annotations

import json
import math
import os
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import RegistryError
from gnnflow.graph.secrets import mask_secrets
from gnnflow.registry.versions import CONFIG
from gnnflow.storage.filesystem import join
from gnnflow.storage.workspace import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mlflow import MlflowClient

    from gnnflow.registry.versions import Version

_PARAMS_PER_CALL = 100  # MLflow's own limit
_METRICS_PER_CALL = 1000  # likewise
_LONGEST = 6000  # characters of a parameter, likewise
# MLflow's defaults wait minutes for a missing server, and half an hour for one that does not answer.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


def log_version(version: Version, *, tracking_uri: str) -> str:
    """Log a version to the experiment of its name, made where it is missing, and return MLflow's run id.

    Raises RegistryError where mlflow is not installed, or the tracking server refuses or cannot be reached.
    """
    _prepare()
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        return _log(MlflowClient(tracking_uri=tracking_uri), version)
    except (MlflowException, OSError, ImportError) as error:
        # the small package of MLflow lacks what databases need
        needed = f"Install {error.name} (pip install mlflow brings it). " if isinstance(error, ImportError) else ""
        raise RegistryError(
            f"MLflow did not take version {version.version} ({mask_secrets(str(error)).rstrip('.')})",
            where="MLFLOW_TRACKING_URI",
            fix=f"{needed}Check the address and that it answers, then publish again; {' and '.join(_PATIENCE)} say how "
            "long to wait for it.",
        ) from error


def _prepare() -> None:
    """Import MLflow and set its client's environment variables, where the user has not."""
    try:
        import mlflow  # noqa: F401
    except ImportError as error:
        raise RegistryError(
            "mlflow is not installed", where="MLFLOW_TRACKING_URI", fix="Install 'gnnflow[mlflow]', or unset it."
        ) from error
    # Its client prints links to stdout, where `--json` promises one document.
    for name, value in {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", **_PATIENCE}.items():
        os.environ.setdefault(name, value)


class MlflowCurves:
    """A training stage's learning curves as metrics by epoch of one run in the experiment of its config's name.

    A stage that continues after a kill continues in its run, which the artifact's URI names. Raises MLflow's errors.
    """

    def __init__(self, artifact: str, *, name: str, config: Mapping[str, Any], tracking_uri: str) -> None:
        self._artifact, self._name, self._config, self._uri = artifact, name, config, tracking_uri
        self._client: MlflowClient | None = None
        self._run = ""
        self._last: dict[str, float] = {}

    def write(self, rows: Sequence[tuple[str, Mapping[str, float]]]) -> None:
        """Log the rows that the run does not have yet; figures of fits other than `train` start with the fit's name."""
        if self._client is None:
            _prepare()
            from mlflow import MlflowClient

            self._client = MlflowClient(tracking_uri=self._uri)
            self._run = self._open(self._client)
        from mlflow.entities import Metric

        found, now = [], int(time.time() * 1000)
        for fit, row in rows:
            prefix, epoch = "" if fit == "train" else f"{fit}.", row["epoch"]
            if epoch <= self._last.get(f"{prefix}epoch", -1):
                continue
            held = {f"{prefix}{key}": value for key, value in row.items() if math.isfinite(value)}
            found += [Metric(key, value, now, int(epoch)) for key, value in held.items()]
        for start in range(0, len(found), _METRICS_PER_CALL):
            self._client.log_batch(self._run, metrics=found[start : start + _METRICS_PER_CALL])

    def close(self, *, finished: bool) -> None:
        """End the run."""
        if self._client is not None:
            self._client.set_terminated(self._run, "FINISHED" if finished else "FAILED")

    def _open(self, client: MlflowClient) -> str:
        experiment = _experiment(client, self._name)
        mine = f"tags.`gnnflow.artifact` = {_quoted(self._artifact)}"
        begun = client.search_runs([experiment], filter_string=mine, max_results=1)
        if begun:
            self._last = dict(begun[0].data.metrics)
            client.update_run(begun[0].info.run_id, status="RUNNING")
            return str(begun[0].info.run_id)
        run = client.create_run(experiment, run_name="training", tags={"gnnflow.artifact": self._artifact})
        _log_params(client, str(run.info.run_id), self._config)
        return str(run.info.run_id)


def _quoted(text: str) -> str:
    """Return a text in quotes for MLflow's search, which has no escape for a text with both kinds of quotes."""
    quote = '"' if "'" in text else "'"
    return f"{quote}{text}{quote}"


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


def _log(client: MlflowClient, version: Version) -> str:
    experiment = _experiment(client, version.name)
    mine = f"tags.`gnnflow.uri` = {_quoted(version.uri)} and attributes.status = 'FINISHED'"
    logged = client.search_runs([experiment], filter_string=mine, max_results=1)
    if logged:
        return str(logged[0].info.run_id)
    run = client.create_run(experiment, run_name=f"version {version.version}", tags=_tags(version))
    identity = str(run.info.run_id)
    _log_figures(client, identity, version)
    client.set_terminated(identity, "FINISHED")
    return identity


def _log_figures(client: MlflowClient, identity: str, version: Version) -> None:
    from mlflow.entities import Metric

    at = int(datetime.fromisoformat(version.created).timestamp() * 1000)
    finite = {key: held for key, held in version.metrics.items() if math.isfinite(held)}
    client.log_batch(identity, metrics=[Metric(key, held, at, 0) for key, held in finite.items()])
    _log_params(client, identity, json.loads(version.read(CONFIG)))


def _log_params(client: MlflowClient, identity: str, config: Mapping[str, Any]) -> None:
    from mlflow.entities import Param

    params = [Param(key, held[:_LONGEST]) for key, held in _flat(config)]
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
