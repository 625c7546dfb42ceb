"""GraphTrainer: shards in; weights, metrics and history out.

model.safetensors   the best epoch's weights
model.json          what `build_model` needs beside them
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from gnnflow.graph.facts import FlatFacts, TrainFacts
from gnnflow.stages.base import Made
from gnnflow.storage.filesystem import join, write_atomic

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.layers.model import ModelSpec
    from gnnflow.stages.base import StageRun

WEIGHTS = "model.safetensors"
MODEL = "model.json"


def model_spec(config: Config, graph: GraphFacts) -> ModelSpec:
    """Return the model a config asks for on a graph."""
    from gnnflow.layers.model import ModelSpec

    model = config.model
    return ModelSpec(
        kind=model.kind,
        feature_width=graph.features.width,
        sparse=graph.features.kind == "sparse",
        num_outputs=graph.num_classes,
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
        edge_width=graph.attribute_width,
        options=dict(model.options),
    )


def work(run: StageRun) -> Made:
    """Train on the shards. Raises TrainingError where they or the config cannot be trained on."""
    import torch

    from gnnflow.executions.table import check_model, executions_of
    from gnnflow.layers.model import build_model
    from gnnflow.train.job import TrainJob
    from gnnflow.train.trainer import train

    config, graph = run.config, run.store.facts
    flat = run.facts("flat", FlatFacts)
    job = TrainJob(
        artifact=run.inputs["flat"].uri,
        entries=flat.shards,
        fanouts=flat.fanouts and flat.fanouts[: config.model.layers],
        model_spec=model_spec(config, graph),
        label_kind=graph.label_kind,
        num_classes=graph.num_classes,
        train=config.train,
        seed=config.seed,
        checkpoint_uri=join(run.rounds.work, "checkpoints"),
    )
    # Found now rather than after hours of training: every execution of this run must be able to run the model.
    check_model(build_model(job.model_spec), names=executions_of(config.train.strategy))
    result = train(job, progress=run.context.progress)
    documents = {
        WEIGHTS: result.weights,
        MODEL: json.dumps(asdict(job.model_spec), indent=1, sort_keys=True).encode(),
    }
    # Seconds per epoch differ from run to run, so the history is a fact and no file: files enter the digest.
    facts = TrainFacts(
        metrics=result.metrics,
        best_epoch=result.best_epoch,
        history=tuple(dict(row) for row in result.history),
        confusion={split: counts.tolist() for split, counts in result.confusion.items()},
    )
    return Made(
        tuple(write_atomic(join(run.artifact, name), content) for name, content in documents.items()),
        rows_in=flat.num_targets,
        rows_out=flat.num_targets,
        facts=facts,
        versions={"torch": torch.__version__},
    )
