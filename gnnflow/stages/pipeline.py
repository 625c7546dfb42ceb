"""All stages of a run in order, and the run folder that ties their artifacts together.

    runs/<name>/<fingerprint>/run.json, metrics.json, predictions/*.parquet, report.html
    runs/<name>/latest.json

The fingerprint covers every stage's, so the same config on the same tables is the same run: the second time its folder
is found and nothing is done. `run.json` is written last and is the run's commit; it lists the folder's files, and what
is gone or damaged of them is made again from the artifacts.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gnnflow.graph.errors import StorageError, listed
from gnnflow.graph.run_facts import InferFacts, TrainFacts
from gnnflow.stages.base import ArtifactResult, StageContext, StageResult
from gnnflow.stages.check import check_run, check_store
from gnnflow.stages.report import write_report
from gnnflow.stages.running import do_alone, make_artifact
from gnnflow.storage.documents import write_document
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.manifest import committed
from gnnflow.storage.run_folder import METRICS, PREDICTIONS, REPORT, damaged_files, latest_run, read_metrics, read_run
from gnnflow.storage.verified import read_verified
from gnnflow.storage.writing import write_atomic, write_json

if TYPE_CHECKING:
    from gnnflow.config import Config


@dataclass(frozen=True, kw_only=True)
class RunResult(StageResult):
    """A completed run: its folder, its metrics and the results of its stages, in order."""

    uri: str
    metrics: dict[str, float]
    stages: dict[str, ArtifactResult]

    @property
    def predictions(self) -> str:
        """Folder of the predictions."""
        return join(self.uri, PREDICTIONS)

    @property
    def report(self) -> str:
        """The HTML report."""
        return join(self.uri, REPORT)

    def summary(self) -> dict[str, Any]:
        """Return where the run lies, its metrics, and each stage's artifact."""
        kept = ("artifact", "digest", "reused", "seconds")
        stages = {name: result.summary() for name, result in self.stages.items()}
        return {
            "run": self.uri,
            "metrics": self.metrics,
            "predictions": self.predictions,
            "report": self.report,
            "stages": {name: {key: summary[key] for key in kept} for name, summary in stages.items()},
        }


def run(context: StageContext) -> RunResult:
    """Run every stage that is not done, then commit the run. Raises the first stage's GnnflowError."""
    begin = time.monotonic()
    check_run(context.run)
    results: dict[str, ArtifactResult] = {}
    for stage in context.run.stages:
        results[stage] = make_artifact(context, stage)
        if stage == "select" and not all(result.reused for result in results.values()):
            check_store(context.run)  # before anything costs hours
    uri = context.run.uri
    work = context.run.workspace.work("run", uri.rsplit("/", 1)[1])
    # alone: no two reports are the same, so that one run's would not be the file that another's record lists
    reused = not do_alone(context, work, lambda: _commit_run(context, results), done=lambda: not damaged_files(uri))
    if reused:
        context.progress.message("nothing to do: this run is complete")
    _point_at(uri, context)
    return RunResult(
        stage="run",
        seconds=time.monotonic() - begin,
        reused=reused,
        uri=uri,
        metrics=read_metrics(uri),
        stages=results,
    )


def _point_at(uri: str, context: StageContext) -> None:
    """Name the run as the last completed one. Nothing is written where it is: a finished run can be read-only."""
    try:
        named = latest_run(context.run.workspace, context.config.name)
    except StorageError:  # damaged: it is written again
        named = None
    if named != uri:
        write_json(context.run.workspace.latest(context.config.name), {"run": uri})


def is_quick(context: StageContext) -> bool:
    """Return whether the run is complete."""
    stages = context.run.stages
    return exists(context.run.record) and all(committed(context.run.artifact(stage)) for stage in stages)


def _commit_run(context: StageContext, results: dict[str, ArtifactResult]) -> bool:
    """Write the run's files from its artifacts, its record last. Returns True."""
    uri, scored = context.run.uri, results["infer"]
    if exists(context.run.record):
        damaged = listed(damaged_files(uri))
        context.progress.message(f"{damaged} of this run: gone or damaged, made again from the artifacts")
    files = [entry for entry in scored.manifest.files if entry.name.startswith(f"{PREDICTIONS}/")]
    for entry in files:
        write_atomic(join(uri, entry.name), read_verified(scored.artifact, entry.name))
    metrics = {**results["train"].facts(TrainFacts).metrics, **scored.facts(InferFacts).metrics}
    files.append(write_json(join(uri, METRICS), metrics))
    record = {
        "run": context.run.uri.rsplit("/", 1)[1],
        "name": context.config.name,
        "config": context.config.model_dump(mode="json"),
        "store": context.run.store_stage,
        "artifacts": {name: result.artifact for name, result in results.items()},
        "digests": {name: result.digest for name, result in results.items()},
        "reused": _reused(context, results),
    }
    files.append(write_report(uri, record, metrics))
    write_document(context.run.record, {**record, "files": [asdict(entry) for entry in files]})
    return True


def _reused(context: StageContext, results: dict[str, ArtifactResult]) -> dict[str, bool]:
    """Return which stages cost this run nothing: what its record says, where it has a readable one."""
    try:
        held = read_run(context.run.uri).get("reused")
    except StorageError:
        held = None
    found = {name: result.reused for name, result in results.items()}
    return {**found, **held} if isinstance(held, dict) and held.keys() == found.keys() else found


def run_quietly(config: Config) -> RunResult:
    """Run a config in this process without progress: for notebooks and tests."""
    return run(StageContext.of(config))
