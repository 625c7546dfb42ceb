"""Scores of whole splits: the model over every target of some shards, in stored order, then metrics.

Shapes: N targets, C outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gnnflow.executions.minibatch import forward
from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.labels import LabelKind
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import ShardEntry
from gnnflow.layers.model import Model
from gnnflow.train.batches import PlannedBatch, plan_evaluation
from gnnflow.train.metrics import Scores, score
from gnnflow.train.objective import Objective
from gnnflow.train.pipeline import Pipeline


@dataclass(frozen=True)
class Outputs:
    """Logits [N, C], labels as MiniBatch has them, and dense ids [N] of the same targets."""

    logits: FloatArray
    labels: Array
    targets: IntArray

    def loss(self, objective: Objective) -> float:
        """Return the mean loss over all labelled targets, however they were batched."""
        return float(objective.loss(torch.from_numpy(self.logits), self.labels)[0])

    def metric(self, name: str, label_kind: LabelKind) -> float:
        """Return one metric. Raises TrainingError where the labels do not define it."""
        found = score(self.logits, self.labels, label_kind=label_kind, names=[name])
        if name not in found.values:
            raise TrainingError(
                f"{'; '.join(found.notes)} in the validation split",
                where="train.metric",
                fix="Choose another metric.",
            )
        return found.values[name]


def predict(model: Model, planned: Iterable[PlannedBatch], *, pipeline: Pipeline) -> Outputs:
    """Return the model's outputs for planned batches, at least one, in their order. Leaves training mode.

    Raises TrainingError where an output is not finite: a metric of it would be a made-up number.
    """
    model.eval()
    logits, labels, targets = [], [], []
    with torch.no_grad():
        for batch in pipeline.batches(planned):
            logits.append(forward(model, batch.tensors).numpy())
            labels.append(batch.labels)
            targets.append(batch.targets)
    outputs = Outputs(np.concatenate(logits), np.concatenate(labels), np.concatenate(targets))
    if not np.isfinite(outputs.logits).all():
        raise TrainingError(
            "the model's scores are not finite numbers",
            where="train",
            fix="Lower train.lr, or set graph.normalize if features are large.",
        )
    return outputs


def evaluate(
    model: Model, entries: Sequence[ShardEntry], *, label_kind: LabelKind, pipeline: Pipeline, batch_size: int
) -> dict[str, Scores]:
    """Return the metrics of each split that has targets; the batch size does not change them."""
    found = {}
    for split in SPLITS:
        planned = plan_evaluation([entry for entry in entries if entry.split == split], batch_size=batch_size)
        if planned:
            outputs = predict(model, planned, pipeline=pipeline)
            found[split] = score(outputs.logits, outputs.labels, label_kind=label_kind)
    return found
