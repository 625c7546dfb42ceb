"""GraphTrainer: shards or a graph store in; weights, metrics and history out.

The model is saved by `layers.saved`, with the weights of the best epoch. Before training on links, messages tell the
candidates of held-out links, and the nodes that reveal them.
"""

from __future__ import annotations

import importlib.metadata
import os
from typing import TYPE_CHECKING

from gnnflow.config import ClusterBatchConfig, MiniBatchConfig
from gnnflow.config.neighbors_section import WalkNeighbors
from gnnflow.config.train_section import needs_ranks, pipeline_of
from gnnflow.graph.errors import ClusterError, ConfigError
from gnnflow.graph.facts import FlatFacts
from gnnflow.graph.run_facts import LinkFacts, TrainFacts
from gnnflow.stages.base import Made
from gnnflow.stages.link_facts import tell_link_facts
from gnnflow.stages.model_size import check_trained_size
from gnnflow.stages.resolve import memory_limit
from gnnflow.storage.filesystem import join
from gnnflow.storage.workspace import HISTORY
from gnnflow.storage.writing import remove_tree

if TYPE_CHECKING:
    from gnnflow.config import Config, TaskConfig
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.graph.run_facts import RankAttempt
    from gnnflow.layers.model import ModelInputs
    from gnnflow.stages.base import StageRun
    from gnnflow.train.curves import Curves, Sink
    from gnnflow.train.job import Shards, StoredGraph, TrainJob
    from gnnflow.train.trainer import TrainResult


def model_inputs(graph: GraphFacts, task: TaskConfig) -> ModelInputs:
    """Return the part of a model that a graph and a task decide."""
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
                attribute_width=graph.pair_attribute_width if is_mlp and task.kind == "edge" else 0,
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
        unit=graph.label_unit,
    )


def work(run: StageRun) -> Made:
    """Train by the config's strategy. Raises TrainingError if the targets or the config do not allow it."""
    from gnnflow.executions.table import check_model, executions_of
    from gnnflow.layers.saved import save_model

    links, config, job = tell_link_facts(run), run.config, _job(run)
    inputs, num_targets = job.model.inputs, sum(entry.num_samples for entry in job.graph.entries)
    features = 1 if inputs.typed is not None else inputs.feature_width
    check_trained_size(config, features=features, outputs=inputs.num_outputs)
    # Checked before hours of training: every execution of this run must be able to run the model.
    check_model(job.model.build(), names=executions_of(config.train))
    result, attempts = _train_model(run, job)
    remove_tree(run.failed)
    return Made(
        save_model(run.folder, config.model, inputs, weights=result.weights, decision=result.decision),
        rows_in=num_targets,
        rows_out=num_targets,
        facts=_facts(result, attempts, links),
        versions=_versions(config.model.kind),
    )


def _job(run: StageRun) -> TrainJob:
    """Return the description of the training that ranks need. Raises TrainingError if it cannot be trained."""
    from gnnflow.layers.model import ModelSpec
    from gnnflow.stages.start import load_start
    from gnnflow.train.job import JobFiles, TrainJob, check_job

    config, graph = run.config, run.store.facts
    inputs = model_inputs(graph, config.task)
    job = TrainJob(
        model=ModelSpec(config.model, inputs),
        graph=_trained_on(run),
        label_kind=graph.label_kind,
        num_classes=graph.num_classes,
        train=config.train,
        seed=config.seed,
        task=config.task,
        start=load_start(config, inputs=inputs, graph=graph, tell=run.tell),
        files=JobFiles(join(run.rounds.work, "checkpoints"), run.failed),
    )
    check_job(job)
    return job


def _trained_on(run: StageRun) -> Shards | StoredGraph:
    """Return GraphFlat's shards or the graph store.

    Raises if the store is larger than a worker's memory, or lacks clusters.
    """
    from gnnflow.train.clusterbatch import check_clusters
    from gnnflow.train.job import Shards, StoredGraph
    from gnnflow.train.minibatch import check_memory

    neighbors, config = run.neighbors, run.config
    if "flat" in run.inputs:
        flat = run.facts("flat", FlatFacts)
        cut = neighbors if flat.layout == "store" else None
        if cut is not None:  # GraphFlat may have had more memory
            check_memory(cut, memory_limit(config), instead="write all of the shards: {flat: {layout: shared}}")
        return Shards(run.inputs["flat"].uri, flat.shards, neighbors.sampling, run.store, cut)
    walks = redrawn_walks(config)
    if isinstance(config.train, ClusterBatchConfig):
        check_clusters(neighbors.store.facts.cluster_book.num_clusters, per_batch=config.train.clusters_per_batch)
    if not pipeline_of(config.train).is_joint:  # each rank holds the graph
        check_memory(neighbors, memory_limit(config), with_keys=_resamples(config) and walks is None, walks=walks)
    return StoredGraph(neighbors, walks)


def _resamples(config: Config) -> bool:
    return isinstance(config.train, MiniBatchConfig) and config.train.resample == "epoch"


def redrawn_walks(config: Config) -> WalkNeighbors | None:
    """Return the section of the walks if each epoch draws them again, else None."""
    return config.neighbors if _resamples(config) and isinstance(config.neighbors, WalkNeighbors) else None


def _versions(kind: str) -> dict[str, str]:
    libraries = ("torch", "torch_geometric") if kind.startswith("torch_geometric.") else ("torch",)
    return {library: importlib.metadata.version(library) for library in libraries}


def _train_model(run: StageRun, job: TrainJob) -> tuple[TrainResult, tuple[RankAttempt, ...]]:
    """Train in this process or on ranks of the cluster, and return the result and the attempts of the ranks."""
    from gnnflow.train.trainer import train

    progress = run.rounds.progress
    if not needs_ranks(job.train):
        with open_curves(run) as curves:
            return train(job, progress=progress, log=curves), ()
    client = run.rounds.scheduler.dask_client()
    if client is None:
        raise ClusterError(
            f"{job.train.workers} ranks are tasks of a Dask cluster, and this stage runs without one",
            where="train.workers",
            fix="Run it with cluster.kind local or address, or set train.workers to 1.",
        )
    from gnnflow.train.ranks.gang import train_on_ranks

    trained = train_on_ranks(job, client, progress=progress, fit=run.rounds.scheduler.fit_workers())
    with open_curves(run) as curves:
        curves.epochs("train", trained.result.history)
    return trained.result, trained.attempts


def _facts(result: TrainResult, attempts: tuple[RankAttempt, ...], links: LinkFacts | None) -> TrainFacts:
    # The history is a fact and not a file: its seconds differ from run to run, and files enter the digest.
    return TrainFacts(
        metrics=result.metrics,
        best_epoch=result.best_epoch,
        history=tuple(dict(row) for row in result.history),
        confusion={split: counts.tolist() for split, counts in result.confusion.items()},
        attempts=attempts,
        profiles=tuple(dict(row) for row in result.profiles),
        device=result.device,
        constant=result.constant,
        link_facts=links,
        metric=result.metric,
        metric_class=result.metric_class,
        decision=result.decision,
        scores=result.scores,
        losses=result.losses,
    )


def open_curves(run: StageRun) -> Curves:
    """Return the curves of a training stage, as a context: its history file, and the loggers in `train.log`.

    The history file is in the stage's work folder; afterwards the manifest has all of it.
    """
    from gnnflow.train.curves import Curves, HistoryFile

    fingerprint, name = run.artifact.rsplit("/", 1)[1], run.config.name
    sinks: dict[str, Sink] = {HISTORY: HistoryFile(join(run.rounds.work, HISTORY))}
    if "tensorboard" in run.config.train.log:
        from gnnflow.train.tensorboard import TensorBoard

        sinks["TensorBoard"] = TensorBoard(run.resolved.workspace.logs(name, fingerprint))
    if "mlflow" in run.config.train.log:
        from gnnflow.registry.mlflow import MlflowCurves

        config = run.config.model_dump(mode="json")
        sinks["MLflow"] = MlflowCurves(run.artifact, name=name, config=config, tracking_uri=_tracking_uri())
    return Curves(sinks, say=run.tell)


def check_log(config: Config) -> None:
    """Raise ConfigError if curves should go to MLflow and its address is unknown."""
    if "mlflow" in config.train.log:
        _tracking_uri()


def _tracking_uri() -> str:
    if uri := os.environ.get("MLFLOW_TRACKING_URI", ""):
        return uri
    raise ConfigError(
        "mlflow needs its address in the environment variable MLFLOW_TRACKING_URI, which is not set",
        where="train.log",
        fix="Set it where training runs, or omit mlflow.",
    )
