"""GraphTrainer: shards in; weights, metrics and history out.

model.safetensors   the best epoch's weights
model.json          what `build_model` needs beside them
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gnnflow.graphfeature.shards import ShardEntry
from gnnflow.stages.base import FORMAT_VERSIONS, StageContext, StageResult, fingerprints, run_stage, upstream
from gnnflow.storage.filesystem import join, write_atomic
from gnnflow.storage.manifest import Manifest

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.layers.model import ModelSpec
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.train.trainer import TrainResult

WEIGHTS = "model.safetensors"
MODEL = "model.json"


def model_spec(config: Config, details: dict[str, Any]) -> ModelSpec:
    """Return the model a config asks for on a graph with these facts (an ingest or GraphFlat manifest's details)."""
    from gnnflow.layers.model import ModelSpec

    model = config.model
    return ModelSpec(
        kind=model.kind,
        feature_width=details["feature"]["width"],
        sparse=details["feature"]["kind"] == "sparse",
        num_outputs=details["num_classes"],
        hidden=model.hidden,
        num_layers=model.layers,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        heads=model.heads,
        output_heads=model.output_heads,
        activation=model.activation,
        head=model.head,
        encoder=model.encoder,
        aggregator=model.aggregator,
        edge_width=details["attribute_width"],
        options=dict(model.options),
    )


def run(context: StageContext) -> StageResult:
    """Train on the shards. Raises StorageError where GraphFlat has not run, TrainingError where it cannot train."""

    def work(artifact: str, runner: RoundRunner) -> Manifest:
        from gnnflow.executions.table import check_model, executions_of
        from gnnflow.layers.model import build_model
        from gnnflow.train.trainer import TrainRequest, train

        config = context.config
        flat = upstream(context, "flat")
        details = flat.manifest.details
        request = TrainRequest(
            artifact=flat.artifact,
            entries=[ShardEntry(**entry) for entry in details["shards"]],
            fanouts=tuple(details["fanouts"]) if details["fanouts"] else None,
            model_spec=model_spec(config, details),
            label_kind=details["label_kind"],
            num_classes=details["num_classes"],
            train=config.train,
            seed=config.seed,
            checkpoint_uri=join(runner.work, "checkpoints"),
        )
        # Found now rather than after hours of training: every execution of this run must be able to run the model.
        check_model(build_model(request.model_spec), names=executions_of(config.train.strategy))
        result = train(request, progress=context.progress)
        return _manifest(context, artifact, flat, request.model_spec, result)

    return run_stage(context, "train", work)


def _manifest(
    context: StageContext, artifact: str, flat: StageResult, spec: ModelSpec, result: TrainResult
) -> Manifest:
    import torch

    documents = {
        WEIGHTS: result.weights,
        MODEL: json.dumps(asdict(spec), indent=1, sort_keys=True).encode(),
    }
    files = tuple(write_atomic(join(artifact, name), content) for name, content in documents.items())
    # Seconds per epoch differ from run to run, so the history is no part of the digest.
    return Manifest(
        stage="train",
        fingerprint=fingerprints(context.config)["train"],
        format_version=FORMAT_VERSIONS["train"],
        files=files,
        inputs={"flat": flat.manifest.fingerprint},
        rows_in=flat.manifest.rows_out,
        rows_out=flat.manifest.rows_out,
        details={
            "metrics": result.metrics,
            "best_epoch": result.best_epoch,
            "history": [dict(row) for row in result.history],
            "confusion": {split: counts.tolist() for split, counts in result.confusion.items()},
        },
        versions={"torch": torch.__version__},
    )
