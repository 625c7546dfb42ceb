"""What a target's label is: one class, several labels at once, a number, a link or nothing; and what follows.

A new kind of label is a row of LABEL_KINDS and an entry in each table that LabelKind keys: how a label column is
recognised (`ingest/schema.py`), checked and read (`ingest/labels.py`), its losses (`train/losses.py`), its
metrics (`train/metrics.py`), what is published (`infer/predictions.py`) and drawn (`report/pictures/quality.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnflow.graph.errors import TrainingError

LabelKind = Literal["single", "multi", "regression", "link", "none"]
Metric = Literal[
    "accuracy",
    "micro_f1",
    "macro_f1",
    "roc_auc",
    "roc_auc_micro",
    "mae",
    "rmse",
    "mrr",
    "hits_at_1",
    "hits_at_10",
    "hits_at_50",
    "loss",
]


@dataclass(frozen=True)
class LabelUnit:
    """The unit of numbers to predict: mean and standard deviation of the training labels, as float32 holds them.

    A model's layers compute in deviations from that mean, as layers are initialised to give numbers near 1; its scores
    are in the labels' own unit. So it learns as well from prices in cents as in millions.
    """

    mean: float
    deviation: float


UNLABELLED = -1
"""The class number of a node without a label."""


@dataclass(frozen=True)
class LabelTraits:
    """What holds for all labels of a kind, whatever the graph.

    has_labels: the node table may hold one. has_classes: model outputs stand for classes, which may have names.
    is_class: the label is the number of one class, so the number of outputs is found by counting classes;
    otherwise it is the width of the label. is_list: a label is a list of numbers. metrics: what predictions are
    measured by, in the order in which they are shown. losses: the kinds of `train.loss` that they can be trained with,
    beside one's own. columns: what is published, the scores last.
    """

    has_labels: bool
    has_classes: bool
    is_class: bool
    is_list: bool
    metrics: tuple[str, ...]
    losses: tuple[str, ...]
    columns: tuple[str, ...]


_SCORES = ("accuracy", "micro_f1", "macro_f1", "roc_auc")
_CLASS_LOSSES = ("standard", "focal")
_CLASS_COLUMNS = ("prediction", "probabilities")
CLASS_COLUMN = "class"
"""The column with the name of the predicted class, where classes have names."""

LABEL_KINDS: dict[LabelKind, LabelTraits] = {
    "single": LabelTraits(
        has_labels=True,
        has_classes=True,
        is_class=True,
        is_list=False,
        metrics=_SCORES,
        losses=_CLASS_LOSSES,
        columns=_CLASS_COLUMNS,
    ),
    "multi": LabelTraits(
        has_labels=True,
        has_classes=True,
        is_class=False,
        is_list=True,
        metrics=(*_SCORES, "roc_auc_micro"),
        losses=_CLASS_LOSSES,
        columns=_CLASS_COLUMNS,
    ),
    "regression": LabelTraits(
        has_labels=True,
        has_classes=False,
        is_class=False,
        is_list=False,
        metrics=("mae", "rmse"),
        losses=("standard", "huber"),
        columns=("value",),
    ),
    # A target is an edge beside pairs that are none: its scores are a row, its own first, and its label is 0.
    "link": LabelTraits(
        has_labels=False,
        has_classes=False,
        is_class=False,
        is_list=False,
        metrics=("mrr", "hits_at_1", "hits_at_10", "hits_at_50", "roc_auc"),
        losses=("standard",),
        columns=("embedding",),
    ),
    "none": LabelTraits(
        has_labels=False, has_classes=False, is_class=False, is_list=False, metrics=(), losses=(), columns=()
    ),
}

_LOWER_IS_BETTER = frozenset({"loss", "mae", "mse", "rmse"})
BOUNDS = ("_low", "_high")
"""What follows a metric's name where the value is an end of its confidence interval: `test.accuracy_low`."""


def is_bound(metric: str) -> bool:
    """Return whether a metric's name or key is that of an end of an interval."""
    return metric.endswith(BOUNDS)


def metrics_to_choose(label_kind: LabelKind) -> tuple[str, ...]:
    """Return what models on labels of a kind can be chosen by: the kind's metrics, and the loss."""
    return (*LABEL_KINDS[label_kind].metrics, "loss")


def check_metric(metric: str, label_kind: LabelKind, *, where: str = "train.metric") -> None:
    """Raise TrainingError where labels of a kind do not define the metric of a key."""
    allowed = metrics_to_choose(label_kind)
    if metric not in allowed:
        raise TrainingError(
            f"{metric} is not defined for {label_kind} labels",
            where=where,
            fix=f"Set it to {' or '.join(allowed)}.",
        )


def lower_is_better(metric: str) -> bool:
    """Return whether a smaller value of a metric is the better one. metric: its name, or a key such as `test.mae`."""
    return metric.rpartition(".")[2] in _LOWER_IS_BETTER


def check_loss(loss: str, label_kind: LabelKind) -> None:
    """Raise TrainingError where labels of a kind cannot be trained with a kind of loss."""
    allowed = LABEL_KINDS[label_kind].losses
    if ":" not in loss and loss not in allowed:
        raise TrainingError(
            f"{loss} is no loss for {label_kind} labels",
            where="train.loss.kind",
            fix=f"Set it to {' or '.join(allowed)}, or to a function of your own.",
        )


def check_class_weight(class_weight: str, label_kind: LabelKind) -> None:
    """Raise TrainingError where classes are to be weighed and labels of a kind have none."""
    if class_weight != "none" and not LABEL_KINDS[label_kind].has_classes:
        raise TrainingError(
            f"{class_weight} needs classes, and the labels are numbers",
            where="train.class_weight",
            fix="Set it to none.",
        )
