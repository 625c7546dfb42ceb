"""Who is shown the learning curves of a training stage: its history file, and what `train.log` names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gnnflow.graph.errors import ConfigError
from gnnflow.storage.filesystem import join

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.stages.base import StageRun
    from gnnflow.train.curves import Curves, Sink

HISTORY = "history.jsonl"


def open_curves(run: StageRun) -> Curves:
    """Return the curves of a training stage, to be used in a `with` block.

    The history file lies in the stage's work folder as long as it works; the manifest has all of it afterwards.
    """
    from gnnflow.train.curves import Curves, HistoryFile

    fingerprint, name = run.artifact.rsplit("/", 1)[1], run.config.name
    sinks: dict[str, Sink] = {HISTORY: HistoryFile(join(run.rounds.work, HISTORY))}
    if "tensorboard" in run.config.train.log:
        from gnnflow.train.tensorboard import TensorBoard

        sinks["TensorBoard"] = TensorBoard(run.context.run.workspace.logs(name, fingerprint))
    if "mlflow" in run.config.train.log:
        from gnnflow.registry.mlflow import MlflowCurves

        config = run.config.model_dump(mode="json")
        sinks["MLflow"] = MlflowCurves(run.artifact, name=name, config=config, tracking_uri=_tracking_uri(run.config))
    return Curves(sinks, say=run.context.progress.message)


def check_log(config: Config) -> None:
    """Raise ConfigError where curves should go to MLflow and nothing says where that is."""
    if "mlflow" in config.train.log:
        _tracking_uri(config)


def _tracking_uri(config: Config) -> str:
    if uri := os.environ.get("MLFLOW_TRACKING_URI", ""):
        return uri
    raise ConfigError(
        "mlflow is asked for, and the environment variable MLFLOW_TRACKING_URI, which says where it is, is not set",
        where="train.log",
        fix="Set it where training runs, or leave mlflow out.",
    )
