"""The kinds of labels: one class, several labels, a number, a link or none; with their metrics and losses.

A new kind of label is a row of LABEL_KINDS and an entry in each table that LabelKind keys: recognition of a label
column (`ingest/label_schema.py`), checks and reading (`ingest/labels.py`), losses (`train/losses.py`), metrics
(`train/metrics.py`), published columns (`infer/predictions.py`) and pictures (`report/pictures/quality.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gnnflow.graph.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Sequence

LabelKind = Literal["single", "multi", "regression", "link", "none"]
Metric = Literal[
    "accuracy",
    "micro_f1",
    "macro_f1",
    "roc_auc",
    "roc_auc_micro",
    "average_precision",
    "brier",
    "mae",
    "rmse",
    "mrr",
    "hits_at_1",
    "hits_at_10",
    "hits_at_50",
    "loss",
]


PublishMetric = Literal[Metric, "cost"]
"""The metrics that models are compared by; the cost of decisions chooses no epoch, as it is known after training."""


@dataclass(frozen=True)
class LabelUnit:
    """The unit of numbers to predict: mean and standard deviation of the training labels, in float32.

    A model's layers compute in deviations from the mean, because initial weights give numbers near 1; its scores are in
    the labels' own unit. So it learns prices in cents as well as in millions.
    """

    mean: float
    deviation: float


UNLABELLED = -1
"""The class number of a node without a label."""


@dataclass(frozen=True)
class LabelTraits:
    """The properties of all labels of a kind, on any graph.

    has_labels: the node table may hold one. has_classes: model outputs stand for classes, which may have names.
    is_class: the label is the number of one class, so the number of outputs is found by counting classes; otherwise it
    is the width of the label. is_list: a label is a list of numbers. metrics: of predictions, in the order in which
    they are shown. losses: the built-in kinds of `train.loss` that support it. columns: the published columns, the
    scores last.
    """

    has_labels: bool
    has_classes: bool
    is_class: bool
    is_list: bool
    metrics: tuple[str, ...]
    losses: tuple[str, ...]
    columns: tuple[str, ...]


_SCORES = ("accuracy", "micro_f1", "macro_f1", "roc_auc")
_OF_ONE_CLASS = (*_SCORES, "average_precision", "brier")
_CLASS_LOSSES = ("standard", "focal")
_CLASS_COLUMNS = ("prediction", "probabilities")
CLASS_COLUMN = "class"
"""The column with the name of the predicted class, where classes have names."""
DECISION_COLUMN = "decision"
"""The column with the decision: whether the probability of a class reaches the threshold, or the decided class."""
LABEL_COLUMN, SPLIT_COLUMN = "label", "split"
"""The columns with a target's own label, where the tables have labels, and its split."""
PROBABILITY = "probability_"
"""The column with the probability of a class has this before the class's name."""
MOST_PROBABILITY_COLUMNS = 32
"""Classes above this number have their probabilities in one list alone."""

LABEL_KINDS: dict[LabelKind, LabelTraits] = {
    "single": LabelTraits(
        has_labels=True,
        has_classes=True,
        is_class=True,
        is_list=False,
        metrics=_OF_ONE_CLASS,
        losses=_CLASS_LOSSES,
        columns=_CLASS_COLUMNS,
    ),
    "multi": LabelTraits(
        has_labels=True,
        has_classes=True,
        is_class=False,
        is_list=True,
        metrics=(*_SCORES, "roc_auc_micro", "average_precision"),
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
    # A target is an edge with its negative pairs: its scores are a row, its own first, and its label is 0.
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

AUTO = "auto"
"""The value of `train.metric` that chooses a metric by the labels."""
RARE = 0.4
"""A class is rare below this part of an equal share of the targets: of two classes under 20 %, of ten under 4 %."""
_USUAL_METRIC: dict[LabelKind, Metric] = {
    "single": "accuracy",
    "multi": "micro_f1",
    "regression": "mae",
    "link": "mrr",
    "none": "loss",
}
_LOWER_IS_BETTER = frozenset({"loss", "mae", "mse", "rmse", "brier", "calibration_error", "cost"})
BOUNDS = ("_low", "_high")
"""The suffixes of a metric's name for the ends of its confidence interval: `test.accuracy_low`."""


NOISE = "_noise"
"""The suffix of a baseline's metric for the noise of the model's difference from it, on the same targets."""


AREAS = frozenset({"roc_auc", "average_precision"})
"""The metrics of classes, areas under curves, that are of one class alone where `task.decide` names it."""


def of_class(key: str, named: str) -> str:
    """Return what a metric is of, as a clause after its name or key; empty where it is of no named class."""
    return f" of class {named}" if named and key.rpartition(".")[2] in AREAS else ""


def is_bound(metric: str) -> bool:
    """Return whether a metric's name or key names an end of a confidence interval, or the noise of a difference."""
    return metric.endswith((*BOUNDS, NOISE))


def names_of_classes(names: Sequence[str], count: int) -> list[str]:
    """Return a name for each of so many classes: its number where only others have names."""
    return [*names, *map(str, range(len(names), count))][:count]


def selection_metrics(label_kind: LabelKind) -> tuple[str, ...]:
    """Return the metrics that can choose the best model on labels of a kind: the kind's metrics, and the loss."""
    return (*LABEL_KINDS[label_kind].metrics, "loss")


def check_metric(metric: str, label_kind: LabelKind, *, where: str = "train.metric") -> None:
    """Raise TrainingError where labels of a kind do not define the metric of a key; `auto` chooses one that they do."""
    allowed = selection_metrics(label_kind)
    if metric not in (AUTO, *allowed):
        raise TrainingError(
            f"{metric} is not defined for {label_kind} labels",
            where=where,
            fix=f"Set it to {' or '.join(allowed)}.",
        )


def choose_metric(
    metric: str,
    label_kind: LabelKind,
    *,
    train: Sequence[int] = (),
    valid: Sequence[int] = (),
    named: int | None = None,
) -> str:
    """Return the metric that `train.metric` stands for on labels of a kind.

    train, valid: the targets of each class in these splits, empty where they were not counted. named: the number of the
    class that `task.decide` names. `auto` is average precision where a class is named or rare, unless valid does not
    define it: it needs targets of two classes, and of the named one.
    """
    if metric != AUTO:
        return metric
    is_defined = not valid or (sum(map(bool, valid)) > 1 and (named is None or valid[named] > 0))
    if label_kind == "single" and (named is not None or _has_rare_class(train)) and is_defined:
        return "average_precision"
    return _USUAL_METRIC[label_kind]


def _has_rare_class(counts: Sequence[int]) -> bool:
    """Return whether a class that occurs has less than RARE of an equal share of the targets."""
    held = [count for count in counts if count]
    return len(held) > 1 and min(held) * len(held) < RARE * sum(held)


def lower_is_better(metric: str) -> bool:
    """Return whether a smaller value of a metric is better. metric: its name, or a key such as `test.mae`."""
    return metric.rpartition(".")[2] in _LOWER_IS_BETTER


def check_loss(loss: str, label_kind: LabelKind) -> None:
    """Raise TrainingError where a loss does not support labels of a kind."""
    allowed = LABEL_KINDS[label_kind].losses
    if ":" not in loss and loss not in allowed:
        raise TrainingError(
            f"{loss} does not support {label_kind} labels",
            where="train.loss.kind",
            fix=f"Set it to {' or '.join(allowed)}, or to a function of your own.",
        )


def check_class_weight(class_weight: str, label_kind: LabelKind) -> None:
    """Raise TrainingError where classes have weights and labels of a kind have no classes."""
    if class_weight != "none" and not LABEL_KINDS[label_kind].has_classes:
        raise TrainingError(
            f"{class_weight} needs classes, and the labels are numbers",
            where="train.class_weight",
            fix="Set it to none.",
        )


_SMALL, _LARGE, _HUGE = 0.01, 1e3, 1e9


def metric_text(value: float) -> str:
    """Return a metric with four decimals, or with four digits where it is very small or huge; a count as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size == 0 or _SMALL <= size < _LARGE:
        return f"{value:.4f}"
    return f"{value:,.1f}" if _LARGE <= size < _HUGE else f"{value:.4g}"
