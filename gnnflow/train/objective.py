"""Builds the training objective, which is the configured loss over labelled targets, and the optimiser.

The loss of a batch is a mean over its labelled targets; `losses.py` has the losses. `balanced` weighs class c by
n / (C n_c) as scikit-learn does, counted over the whole train split; multi-label weighs positives of class c by its
negatives / positives.

Shapes: B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gnnflow.config import LossConfig, OwnLoss, StandardLoss, TrainConfig
from gnnflow.graph.arrays import Array
from gnnflow.graph.labels import LABEL_KINDS, LabelKind, LabelUnit
from gnnflow.train.losses import LossFunction, loss_function
from gnnflow.train.metrics import labelled_rows
from gnnflow.train.optimizers import eager


class BatchLoss(NamedTuple):
    """The mean loss over the labelled targets of a batch, and their number."""

    mean: Tensor
    num_targets: int


@dataclass(frozen=True)
class Objective:
    """The loss of one label kind. class_weight: float32 [C] or None.

    unit: of labels that are numbers; our losses are of deviations in it, so that no step is larger for a smaller unit.
    """

    label_kind: LabelKind
    class_weight: Tensor | None = None
    config: LossConfig = field(default_factory=StandardLoss)
    unit: LabelUnit | None = None

    @cached_property
    def _function(self) -> LossFunction:
        return loss_function(self.config, self.label_kind)

    def weight(self, labels: Array) -> float:
        """Return the weight of a batch's mean loss in a mean over several batches: the divisor of its mean."""
        labels = labels[labelled_rows(labels)]
        by_class = LABEL_KINDS[self.label_kind].is_class and not isinstance(self.config, OwnLoss)
        if self.class_weight is None or not by_class:
            return float(len(labels))
        return float(self.class_weight[torch.from_numpy(labels)].sum())

    def loss(self, logits: Tensor, labels: Array) -> BatchLoss:
        """Return the mean loss over the labelled targets of a batch and their number.

        logits [B, C] and labels as MiniBatch has them. Without a labelled target the loss is zero and has a
        gradient of zero.
        """
        kept = labelled_rows(labels)
        count = int(kept.sum())
        if count == 0:
            return BatchLoss(logits.sum() * 0.0, 0)
        if count < len(kept):
            rows = torch.from_numpy(np.flatnonzero(kept)).to(logits.device)
            logits, labels = logits.index_select(0, rows), labels[kept]
        weight = None if self.class_weight is None else self.class_weight.to(logits.device)
        truth = torch.from_numpy(labels).to(logits.device)
        if self.unit is not None and not isinstance(self.config, OwnLoss):
            logits, truth = ((each - self.unit.mean) / self.unit.deviation for each in (logits, truth))
        return BatchLoss(self._function(logits, truth, weight), count)


# What labels of one part add to the counts of each class [C].
_COUNTS: dict[LabelKind, Callable[[Array, int], Array]] = {
    "single": lambda labels, num_classes: np.bincount(labels, minlength=num_classes),
    "multi": lambda labels, num_classes: (labels > 0).reshape(-1, num_classes).sum(axis=0),
}
# What a class is weighed up to, of n targets with these counts: an equal share of all, or as many as lack the label.
_BALANCED: dict[LabelKind, Callable[[int, Array], Array]] = {
    "single": lambda total, counts: np.full(len(counts), total / len(counts)),
    "multi": lambda total, counts: np.asarray(total - counts),
}


def balanced_weights(labels: Iterable[Array], *, label_kind: LabelKind, num_classes: int) -> Tensor:
    """Return the class weights [C] of `train.class_weight: balanced` from all labels of the train split.

    A class that does not occur weighs nothing.
    """
    counts = np.zeros(num_classes)
    total = 0
    for part in labels:
        kept = part[labelled_rows(part)]
        total += len(kept)
        counts += _COUNTS[label_kind](kept, num_classes)
    weights = np.divide(_BALANCED[label_kind](total, counts), counts, out=np.zeros(num_classes), where=counts > 0)
    return torch.from_numpy(weights.astype(np.float32))


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the configured optimiser over all parameters."""
    parameters = list(model.parameters())
    if config.optimizer == "sgd":
        return eager(torch.optim.SGD)(parameters, lr=config.lr, weight_decay=config.weight_decay)
    kind = eager(torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam)
    return kind(parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)
