"""Holds a model's outputs for every target of a split, with their metrics.

Shapes: N targets, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnflow.config.decide_section import DecideConfig
from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.labels import LabelKind
from gnnflow.graph.run_facts import Decision
from gnnflow.train.decisions import Deciding, choose_decision
from gnnflow.train.intervals import influences_of
from gnnflow.train.metrics import Metrics, labelled_rows, metrics_of
from gnnflow.train.objective import Objective

# what to do where the numbers of a model grow beyond all bounds
NOT_FINITE = "Lower train.lr. Large features that nothing scales (graph.normalize) and large edge weights do it too."


@dataclass(frozen=True)
class Outputs:
    """Logits [N, C], labels as MiniBatch has them, and dense ids [N] of the same targets.

    Raises TrainingError where a logit is not finite: a metric of it would be a made-up number.
    """

    logits: FloatArray
    labels: Array
    targets: IntArray

    def __post_init__(self) -> None:
        if not np.isfinite(self.logits).all():
            raise TrainingError(
                "the model's scores are not finite numbers",
                where="train",
                fix=NOT_FINITE,
            )

    def loss(self, objective: Objective) -> float:
        """Return the mean loss over all labelled targets, however they were batched."""
        return float(objective.loss(torch.from_numpy(self.logits), self.labels)[0])

    def metrics(
        self,
        label_kind: LabelKind,
        *,
        intervals: bool = False,
        deciding: Deciding | None = None,
        class_names: Sequence[str] = (),
        positive: int | None = None,
    ) -> Metrics:
        """Return every metric that the labels define, its interval if asked for, and the confusion counts.

        deciding, class_names, positive: see `metrics_of`.
        """
        return metrics_of(
            self.logits,
            self.labels,
            label_kind=label_kind,
            intervals=intervals,
            deciding=deciding,
            class_names=class_names,
            positive=positive,
        )

    def take(self, rows: Array) -> Outputs:
        """Return the outputs of some targets, in this order."""
        return replace(self, logits=self.logits[rows], labels=self.labels[rows], targets=self.targets[rows])

    def influence(
        self, name: str, label_kind: LabelKind, *, deciding: Deciding | None = None, positive: int | None = None
    ) -> FloatArray | None:
        """Return by how much each labelled target moves a metric; None where the metric has no such number."""
        kept = labelled_rows(self.labels)
        logits, labels = self.logits[kept], self.labels[kept]
        found = influences_of(logits, labels, label_kind=label_kind, names=[name], deciding=deciding, positive=positive)
        return found.get(name)

    def decision(self, decide: DecideConfig, *, names: Sequence[str]) -> Decision:
        """Return the decision between classes that these outputs, of valid, give. names: of all classes."""
        kept = labelled_rows(self.labels)
        return choose_decision(decide, self.logits[kept], self.labels[kept], names=names)

    def metric_or_nan(self, name: str, label_kind: LabelKind, *, positive: int | None = None) -> float:
        """Return one metric, NaN where the labels do not define it."""
        found = metrics_of(self.logits, self.labels, label_kind=label_kind, names=[name], positive=positive)
        return found.values.get(name, np.nan)

    def metric(self, name: str, label_kind: LabelKind, *, positive: int | None = None) -> float:
        """Return one metric. Raises TrainingError where the labels do not define it."""
        found = metrics_of(self.logits, self.labels, label_kind=label_kind, names=[name], positive=positive)
        if name not in found.values:
            raise TrainingError(
                f"{'; '.join(found.notes)} in the validation split",
                where="train.metric",
                fix="Choose another metric.",
            )
        return found.values[name]
