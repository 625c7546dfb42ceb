"""All stages of a run in order, and the run folder that ties their artifacts together.

    runs/<name>/<fingerprint>/run.json, metrics.json, predictions/*.parquet, report.html
    runs/<name>/latest.json

The fingerprint covers the fingerprints of all stages, so the same config on the same tables is the same run: the second
time its folder is found and nothing is done. `run.json` is written last and is the run's commit; it lists the folder's
files. Missing or damaged ones are made again from the artifacts.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from gnnflow.graph.errors import StorageError, listed
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.run_facts import BaselineFacts, InferFacts, TrainFacts
from gnnflow.report.judging import PREFIX, Judgement, baselines_in, cautions, headline_key, judge
from gnnflow.stages import guards
from gnnflow.stages.base import ArtifactResult, StageContext, StageResult
from gnnflow.stages.check import check_store
from gnnflow.stages.entry import perform
from gnnflow.stages.paired import measure_pairs
from gnnflow.stages.report import write_report
from gnnflow.stages.running import do_alone, make_artifact
from gnnflow.storage.attempts import kept_attempt
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import committed
from gnnflow.storage.run_folder import (
    METRICS,
    PREDICTIONS,
    REPORT,
    damaged_files,
    latest_run,
    read_metrics,
    read_run,
    write_record,
)
from gnnflow.storage.verified import read_verified
from gnnflow.storage.writing import replace_file, write_json

if TYPE_CHECKING:
    from gnnflow.config import Config


@dataclass(frozen=True, kw_only=True)
class RunResult(StageResult):
    """A completed run: its folder, its metrics and the results of its stages, in order.

    judgement: compares the headline's score with the best baseline's. cautions: sentences about what makes that score
    say less than it seems to.
    """

    uri: str
    metrics: dict[str, float]
    stages: dict[str, ArtifactResult]
    judgement: Judgement | None
    cautions: tuple[str, ...]

    @property
    def predictions(self) -> str:
        """Folder of the predictions."""
        return join(self.uri, PREDICTIONS)

    @property
    def report(self) -> str:
        """The HTML report."""
        return join(self.uri, REPORT)

    def summary(self) -> dict[str, Any]:
        """Return the run's folder, its metrics, and each stage's artifact."""
        kept = ("artifact", "digest", "reused", "seconds")
        stages = {name: result.summary() for name, result in self.stages.items()}
        return {
            "run": self.uri,
            "metrics": self.metrics,
            "judgement": None if self.judgement is None else self.judgement.as_json(),
            "cautions": list(self.cautions),
            "predictions": self.predictions,
            "report": self.report,
            "stages": {name: {key: summary[key] for key in kept} for name, summary in stages.items()},
        }


def run(context: StageContext) -> RunResult:
    """Run every stage that is not done, then commit the run. Raises the first stage's GnnflowError.

    The run has been checked by `entry.perform`; what only the graph store can show is checked here, once there is one.
    """
    with kept_attempt(context.run.uri):
        return _run(context)


def _run(context: StageContext) -> RunResult:
    begin = time.monotonic()
    results: dict[str, ArtifactResult] = {}
    if not committed(context.run.artifact("train")):
        # loading torch takes a second, which the first stages do not need it for
        Thread(target=import_module, args=("torch",)).start()
    for stage in context.run.stages:
        results[stage] = make_artifact(context, stage)
        if stage == "ingest" and "run" in context.config.guards.commands:
            guards.check(context)
        if stage == "select" and not all(result.reused for result in results.values()):
            check_store(context.run)  # before anything costs hours
    uri = context.run.uri
    work = context.run.workspace.work("run", uri.rsplit("/", 1)[1])
    # alone: two reports always differ, so a record must list the report that was written with it
    reused = not do_alone(
        work,
        lambda: _commit_run(context, results),
        done=lambda: not damaged_files(uri),
        progress=context.progress,
    )
    if reused:
        context.progress.message("nothing to do: this run is complete")
    try:
        latest = latest_run(context.run.workspace, context.config.name)
    except StorageError:  # damaged: it is written again
        latest = None
    if latest != uri:  # a finished run can be read-only, so nothing is written without need
        write_json(context.run.workspace.latest(context.config.name), {"run": uri})
    metrics, graph = read_metrics(uri), results[context.run.store_stage].facts(GraphFacts)
    trained = results["train"].facts(TrainFacts)
    key = headline_key(metrics, trained.metric)
    return RunResult(
        stage="run",
        seconds=time.monotonic() - begin,
        reused=reused,
        uri=uri,
        metrics=metrics,
        stages=results,
        judgement=judge(metrics, baselines_in(metrics), key),
        cautions=cautions(
            trained,
            key,
            label_kind=graph.label_kind,
            split_counts=graph.splits,
            class_names=graph.class_names,
        ),
    )


def is_quick(context: StageContext) -> bool:
    """Return whether the run is complete."""
    stages = context.run.stages
    return exists(context.run.record) and all(committed(context.run.artifact(stage)) for stage in stages)


def _commit_run(context: StageContext, results: dict[str, ArtifactResult]) -> bool:
    """Write the run's files from its artifacts, its record last. Returns True."""
    uri, scored = context.run.uri, results["infer"]
    if exists(context.run.record):
        damaged = listed(damaged_files(uri))
        context.progress.message(f"{damaged} of this run: missing or damaged, made again from the artifacts")
    files = [entry for entry in scored.manifest.files if entry.name.startswith(f"{PREDICTIONS}/")]
    for entry in files:
        replace_file(join(uri, entry.name), read_verified(scored.artifact, entry.name))
    metrics = {**results["train"].facts(TrainFacts).metrics, **scored.facts(InferFacts).metrics}
    if "baselines" in results:
        found = results["baselines"].facts(BaselineFacts).metrics
        stored = results[context.run.store_stage]
        metrics |= {f"{PREFIX}{name}": value for name, value in found.items()}
        metrics |= measure_pairs(context.config, GraphStore.of(stored.artifact, stored.manifest), results, metrics)
    files.append(write_json(join(uri, METRICS), metrics))
    reused = {name: result.reused for name, result in results.items()}
    with suppress(StorageError):  # an earlier record knows which stages cost this run nothing
        earlier = read_run(uri).get("reused")
        if isinstance(earlier, dict) and earlier.keys() == reused.keys():
            reused = {**reused, **earlier}
    record = {
        "run": context.run.uri.rsplit("/", 1)[1],
        "name": context.config.name,
        "config": context.config.model_dump(mode="json"),
        "store": context.run.store_stage,
        "artifacts": {name: result.artifact for name, result in results.items()},
        "digests": {name: result.digest for name, result in results.items()},
        "reused": reused,
    }
    files.append(write_report(uri, record, metrics))
    write_record(uri, record, files)
    return True


def run_quietly(config: Config) -> RunResult:
    """Run a config in this process without progress: for notebooks and tests."""
    return cast("RunResult", perform(StageContext.of(config), "run"))
