"""Score: the model in service scores the current graph, whether the last run put it there or not.

Where the champion is the version of this config's own run, GraphInfer has scored everything already and those
predictions are the answer. Otherwise the champion's weights and its own sampling score today's graph store, under the
same parity certificate as any run. After a rollback the stage gives the restored model's predictions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnnflow import registry
from gnnflow.config import Config, stage_keys
from gnnflow.graph.errors import RegistryError
from gnnflow.registry.versions import CONFIG
from gnnflow.stages import pipeline
from gnnflow.stages.base import FORMAT_VERSIONS, StageContext, run_stage, upstream
from gnnflow.stages.infer import score_with
from gnnflow.storage.filesystem import exists, join
from gnnflow.storage.manifest import Manifest, fingerprint_of

if TYPE_CHECKING:
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.registry import Version


@dataclass(frozen=True)
class ScoreResult:
    """Predictions of the model in service, for every target of the current graph."""

    name: str
    version: int
    predictions: str
    rows: int
    reused: bool


def run(context: StageContext) -> ScoreResult:
    """Return the champion's predictions.

    Raises RegistryError where nothing is in service, or the champion cannot read this graph.
    """
    config = context.config
    name = config.publish.name or config.name
    champion = registry.read_aliases(config.workspace, name).champion
    if champion is None:
        raise RegistryError("no version is in service", where=name, fix="Run `gnnflow publish CONFIG` first.")
    version = registry.read_version(config.workspace, name, champion)
    if version.run == pipeline.run_uri(config) and exists(join(version.run, "run.json")):
        rows = upstream(context, "infer").manifest.rows_out
        return ScoreResult(name, champion, version.predictions, rows, reused=True)
    return _score(context, name, version)


def _score(context: StageContext, name: str, version: Version) -> ScoreResult:
    ingested = upstream(context, "ingest").manifest
    if found := registry.misfits(version.signature, registry.signature_of(ingested.details)):
        raise RegistryError(
            f"version {version.version} cannot score this graph: {'; '.join(found)}",
            where=name,
            fix="Promote a version that was trained on it, or restore the columns.",
        )
    theirs = replace(context, config=_as_trained(context.config, version))
    keys = {stage: stage_keys(theirs.config, stage) for stage in ("flat", "infer")}
    fingerprint = fingerprint_of(
        "score",
        keys={**keys, "seed": theirs.config.seed},
        inputs={"ingest": ingested.fingerprint, "train": version.fingerprints["train"]},
        format_version=FORMAT_VERSIONS["infer"],
    )

    def work(artifact: str, runner: RoundRunner) -> Manifest:
        scored = score_with(theirs, artifact, runner, model=version.uri)
        inputs = {**scored.inputs, "train": version.fingerprints["train"]}
        return replace(scored, stage="score", fingerprint=fingerprint, inputs=inputs)

    result = run_stage(theirs, "score", work, fingerprint=fingerprint)
    predictions = join(result.artifact, "predictions")
    return ScoreResult(name, version.version, predictions, result.manifest.rows_out, result.reused)


def _as_trained(config: Config, version: Version) -> Config:
    """Return the config with what the version was trained with: its layers, its sampling and its seed."""
    from gnnflow.layers.saved import read_description

    # Read first: a version of an older format may hold keys that a config no longer has.
    model = read_description(version.uri, read=version.read).config
    held = Config.model_validate(json.loads(version.read(CONFIG)))
    return config.model_copy(update={"flat": held.flat, "model": model, "seed": held.seed})
