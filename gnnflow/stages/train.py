"""GraphTrainer: shards in; weights, metrics and history out.

The model is saved as `layers.saved` does, with the best epoch's weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnflow.graphfeature.shards import ShardEntry
from gnnflow.stages.base import FORMAT_VERSIONS, StageContext, StageResult, fingerprints, run_stage, upstream
from gnnflow.storage.filesystem import join
from gnnflow.storage.manifest import Manifest

if TYPE_CHECKING:
    from gnnflow.layers.model import ModelInputs
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.train.trainer import TrainResult


def model_inputs(details: dict[str, Any]) -> ModelInputs:
    """Return what a graph with these facts (an ingest or GraphFlat manifest's details) decides of a model."""
    from gnnflow.layers.model import ModelInputs

    return ModelInputs(
        feature_width=details["feature"]["width"],
        sparse=details["feature"]["kind"] == "sparse",
        num_outputs=details["num_classes"],
        attribute_width=details["attribute_width"],
    )


def run(context: StageContext) -> StageResult:
    """Train on the shards. Raises StorageError where GraphFlat has not run, TrainingError where it cannot train."""

    def work(artifact: str, runner: RoundRunner) -> Manifest:
        from gnnflow.executions.sliced import check_sliceable
        from gnnflow.layers.model import build_model
        from gnnflow.train.trainer import TrainRequest, train

        config = context.config
        flat = upstream(context, "flat")
        details = flat.manifest.details
        request = TrainRequest(
            artifact=flat.artifact,
            entries=[ShardEntry(**entry) for entry in details["shards"]],
            fanouts=tuple(details["fanouts"]) if details["fanouts"] else None,
            model=config.model,
            inputs=model_inputs(details),
            label_kind=details["label_kind"],
            num_classes=details["num_classes"],
            train=config.train,
            seed=config.seed,
            checkpoint_uri=join(runner.work, "checkpoints"),
        )
        # Found now rather than after hours of training: GraphInfer could not score this model.
        check_sliceable(build_model(request.model, request.inputs))
        result = train(request, progress=context.progress)
        return _manifest(context, artifact, flat, request.inputs, result)

    return run_stage(context, "train", work)


def _manifest(
    context: StageContext, artifact: str, flat: StageResult, inputs: ModelInputs, result: TrainResult
) -> Manifest:
    import torch

    from gnnflow.layers.saved import save_model

    files = save_model(artifact, context.config.model, inputs, weights=result.weights)
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
