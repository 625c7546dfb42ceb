"""GraphTrainer: shards in; weights, metrics and history out.

The model is saved as `layers.saved` does, with the best epoch's weights.
"""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

from gnnflow.config.train_section import needs_ranks
from gnnflow.graph.errors import ClusterError
from gnnflow.graph.facts import FlatFacts, TrainFacts
from gnnflow.stages.base import Made
from gnnflow.stages.curves import open_curves
from gnnflow.storage.filesystem import join, remove_tree

if TYPE_CHECKING:
    from gnnflow.config import TaskConfig
    from gnnflow.graph.facts import GraphFacts, RankAttempt
    from gnnflow.layers.model import ModelInputs
    from gnnflow.stages.base import StageRun
    from gnnflow.train.job import TrainJob
    from gnnflow.train.trainer import TrainResult


def model_inputs(graph: GraphFacts, task: TaskConfig) -> ModelInputs:
    """Return what a graph and a task decide of a model."""
    from gnnflow.layers.decoders import DecoderInputs
    from gnnflow.layers.model import ModelInputs
    from gnnflow.layers.typed import TypedInputs

    outputs, decoder = graph.num_classes, None
    if task.kind != "node":
        is_mlp = task.decoder.kind == "mlp"
        outputs, decoder = (
            task.width,
            DecoderInputs(
                task.decoder.kind,
                num_outputs=1 if task.kind == "link" else graph.num_classes,
                hidden=task.decoder.hidden if task.decoder.kind == "mlp" else 0,
                attribute_width=graph.attribute_width if is_mlp and task.kind == "edge" else 0,
            ),
        )
    return ModelInputs(
        feature_width=graph.features.width,
        sparse=graph.features.kind == "sparse",
        num_outputs=outputs,
        attribute_width=graph.attribute_width,
        decoder=decoder,
        typed=TypedInputs.of(graph.schema, graph.features_of_types) if graph.schema.is_typed else None,
        leaves=graph.leaves_of_relations if set(graph.leaves_of_relations) != {1} else None,
    )


def work(run: StageRun) -> Made:
    """Train on the shards. Raises TrainingError where they or the config cannot be trained on."""
    from gnnflow.executions.table import check_model, executions_of
    from gnnflow.layers.model import build_model
    from gnnflow.layers.saved import save_model
    from gnnflow.stages.start import load_start
    from gnnflow.train.failed_batch import FailureFolder
    from gnnflow.train.job import TrainJob

    config, graph = run.config, run.store.facts
    flat, inputs = run.facts("flat", FlatFacts), model_inputs(graph, config.task)
    job = TrainJob(
        artifact=run.inputs["flat"].uri,
        entries=flat.shards,
        fanouts=flat.fanouts and flat.fanouts[: config.model.layers],
        model=config.model,
        inputs=inputs,
        label_kind=graph.label_kind,
        num_classes=graph.num_classes,
        train=config.train,
        seed=config.seed,
        sampling=run.neighbors.sampling,
        checkpoint_uri=join(run.rounds.work, "checkpoints"),
        start=load_start(config, inputs=inputs),
        task=config.task,
        failures=FailureFolder(run.failed, run.store),
    )
    # Found now rather than after hours of training: every execution of this run must be able to run the model.
    check_model(build_model(job.model, job.inputs), names=executions_of(config.train.strategy))
    result, attempts = _trained(run, job)
    remove_tree(run.failed)
    # Seconds per epoch differ from run to run, so the history is a fact and no file: files enter the digest.
    facts = TrainFacts(
        metrics=result.metrics,
        best_epoch=result.best_epoch,
        history=tuple(dict(row) for row in result.history),
        confusion={split: counts.tolist() for split, counts in result.confusion.items()},
        attempts=attempts,
        profiles=tuple(dict(row) for row in result.profiles),
        device=result.device,
    )
    return Made(
        save_model(run.artifact, config.model, job.inputs, weights=result.weights),
        rows_in=flat.num_targets,
        rows_out=flat.num_targets,
        facts=facts,
        versions=_versions(config.model.kind),
    )


def _versions(kind: str) -> dict[str, str]:
    libraries = ("torch", "torch_geometric") if kind.startswith("torch_geometric.") else ("torch",)
    return {library: importlib.metadata.version(library) for library in libraries}


def _trained(run: StageRun, job: TrainJob) -> tuple[TrainResult, tuple[RankAttempt, ...]]:
    """Return the job's result, from this process or from ranks on the cluster, and how the ranks fared."""
    from gnnflow.train.trainer import train

    progress = run.context.progress
    if not needs_ranks(job.train):
        with open_curves(run) as curves:
            return train(job, progress=progress, log=curves), ()
    client = run.context.scheduler.dask_client()
    if client is None:
        raise ClusterError(
            f"{job.train.workers} ranks are tasks of a Dask cluster, and this stage runs without one",
            where="train.workers",
            fix="Run it with cluster.kind local or address, or set train.workers to 1.",
        )
    from gnnflow.train.ranks.gang import train_on_ranks

    trained = train_on_ranks(job, client, progress=progress)
    with open_curves(run) as curves:
        curves.epochs("train", trained.result.history)
    return trained.result, trained.attempts
