"""All stages in order, and the run folder that ties their artifacts together.

    runs/<name>/<fingerprint>/run.json, metrics.json, predictions/*.parquet, report.html
    runs/<name>/latest.json

The fingerprint covers every stage's, so the same config on the same tables is the same run: the second time its folder
is found and nothing is done. `run.json` is written last and is the run's commit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnflow.progress import Silent
from gnnflow.stages import flat, infer, ingest, report, train
from gnnflow.stages.base import StageContext, StageResult, fingerprints
from gnnflow.storage.filesystem import copy_file, exists, join, read_json, write_json
from gnnflow.storage.manifest import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.config import Config

STAGES: dict[str, Callable[[StageContext], StageResult]] = {
    "ingest": ingest.run,
    "flat": flat.run,
    "train": train.run,
    "infer": infer.run,
}
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class RunResult:
    """A completed run."""

    uri: str
    metrics: dict[str, float]
    stages: dict[str, StageResult]
    seconds: float

    @property
    def predictions(self) -> str:
        """Folder of the predictions."""
        return join(self.uri, "predictions")

    @property
    def report(self) -> str:
        """The HTML report."""
        return join(self.uri, "report.html")

    def summary(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        stages = {
            name: {
                "artifact": result.artifact,
                "digest": result.digest,
                "reused": result.reused,
                "seconds": round(result.seconds, 3),
            }
            for name, result in self.stages.items()
        }
        return {
            "run": self.uri,
            "metrics": self.metrics,
            "predictions": self.predictions,
            "report": self.report,
            "stages": stages,
        }


def run_uri(config: Config) -> str:
    """Return where a config's run lies."""
    keys = {"stages": fingerprints(config), "name": config.name}
    fingerprint = fingerprint_of("run", keys=keys, inputs={}, format_version=_FORMAT_VERSION)
    return StageContext.of(config).workspace.run(config.name, fingerprint)


def run(context: StageContext) -> RunResult:
    """Run every stage that is not done, then commit the run. Raises the first stage's GnnflowError."""
    begin = time.monotonic()
    results = {name: stage(context) for name, stage in STAGES.items()}
    uri = run_uri(context.config)
    if exists(join(uri, "run.json")):
        context.progress.message("nothing to do: this run is complete")
    else:
        _commit_run(context, uri, results)
    write_json(context.workspace.latest(context.config.name), {"run": uri})
    return RunResult(uri, read_json(join(uri, "metrics.json")), results, time.monotonic() - begin)


def _commit_run(context: StageContext, uri: str, results: dict[str, StageResult]) -> None:
    scored = results["infer"]
    for entry in scored.manifest.files:
        if entry.name.startswith("predictions/"):
            copy_file(join(scored.artifact, entry.name), join(uri, entry.name))
    metrics: dict[str, float] = {**results["train"].manifest.details["metrics"], **scored.manifest.details["metrics"]}
    write_json(join(uri, "metrics.json"), metrics)
    record = {
        "name": context.config.name,
        "config": context.config.model_dump(mode="json"),
        "artifacts": {name: result.artifact for name, result in results.items()},
        "digests": {name: result.digest for name, result in results.items()},
        "reused": {name: result.reused for name, result in results.items()},
    }
    report.write_report(uri, record, metrics)
    write_json(join(uri, "run.json"), record)


def run_quietly(config: Config) -> RunResult:
    """Run a config in this process without progress: for notebooks and tests."""
    return run(StageContext.of(config, progress=Silent()))
