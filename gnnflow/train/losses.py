"""Losses by the kind of label and `train.loss`, a user's losses included.

Each returns the mean over a batch whose targets all have labels. Shapes: B batch, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.config import FocalLoss, HuberLoss, LossConfig, OwnLoss
from gnnflow.config.own_code import own_function
from gnnflow.graph.errors import GnnflowError, TrainingError
from gnnflow.graph.labels import LabelKind
from gnnflow.kernels import binary_cross_entropy, cross_entropy

_KIND = "train.loss.kind"
_CONTRACT = "It is called as function(logits, labels, weight, **options) and returns the batch's mean loss."

LossFunction = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Logits [B, C], labels of these B targets, and the weight of each class [C] or None -> a tensor without dimensions."""


def loss_function(config: LossConfig, label_kind: LabelKind) -> LossFunction:
    """Return the configured loss, which the labels' kind has (see `check_loss`).

    Raises TrainingError where a user's function cannot be found.
    """
    if isinstance(config, OwnLoss):
        return partial(_checked, config=config, function=load_loss(config.kind))
    if isinstance(config, FocalLoss):
        return partial(_FOCAL[label_kind], gamma=config.gamma)
    if isinstance(config, HuberLoss):
        return partial(_huber, delta=config.delta)
    return _STANDARD[label_kind]


def load_loss(name: str) -> Callable[..., object]:
    """Return the user's function that `train.loss.kind` names, as `own_function` does."""
    return own_function(name, where=_KIND, raises=TrainingError)


def _checked(
    logits: Tensor, labels: Tensor, weight: Tensor | None, *, config: OwnLoss, function: Callable[..., object]
) -> Tensor:
    """Call a user's loss, and raise TrainingError if it fails or returns a wrong value."""
    try:
        value = function(logits, labels, weight, **config.options)
    except GnnflowError:
        raise
    except Exception as error:
        given = f"logits {list(logits.shape)}, labels {list(labels.shape)} of {labels.dtype}"
        raise TrainingError(
            f"{config.kind} failed on {given}: {type(error).__name__}: {error}", where="train.loss", fix=_CONTRACT
        ) from error
    if not isinstance(value, Tensor) or value.dim() or not value.is_floating_point():
        shown = f"{value.dtype} of shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise TrainingError(
            f"{config.kind} returned {shown}, not a float tensor without dimensions", where="train.loss", fix=_CONTRACT
        )
    if logits.requires_grad and not value.requires_grad:
        raise TrainingError(
            f"{config.kind} returned a loss without a gradient",
            where="train.loss",
            fix="Compute it from the logits with torch, without detach(), item() or numpy.",
        )
    return value


def _binary_cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return binary_cross_entropy(logits, labels)
    return functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=weight)


def _squared_error(logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    return functional.mse_loss(logits[:, 0], labels)


def _link_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    # The edge and its negatives count alike, however many these are.
    edge, negatives = functional.logsigmoid(logits[:, 0]), functional.logsigmoid(-logits[:, 1:])
    return -(edge.mean() + negatives.mean()) / 2


def _huber(logits: Tensor, labels: Tensor, weight: Tensor | None, *, delta: float) -> Tensor:
    return functional.huber_loss(logits[:, 0], labels, delta=delta)


def _focal(logits: Tensor, labels: Tensor, weight: Tensor | None, *, gamma: float) -> Tensor:
    # log probability of each target's class [B]
    log_truth = functional.log_softmax(logits, dim=1).gather(1, labels[:, None])[:, 0]
    losses = -_unsure(log_truth, gamma) * log_truth
    if weight is None:
        return losses.mean()
    weights = weight[labels]
    return (weights * losses).sum() / weights.sum()


def _binary_focal(logits: Tensor, labels: Tensor, weight: Tensor | None, *, gamma: float) -> Tensor:
    # log probability of what each class of each target is [B, C]
    log_truth = -functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    losses = functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=weight, reduction="none")
    return (_unsure(log_truth, gamma) * losses).mean()


def _unsure(log_truth: Tensor, gamma: float) -> Tensor:
    """Return (1 - p)^gamma of log p. At p = 1 its slope is 0, where a root's slope would be NaN."""
    return (-torch.expm1(log_truth)).clamp_min(torch.finfo(log_truth.dtype).tiny) ** gamma


_STANDARD: dict[LabelKind, LossFunction] = {
    "single": cross_entropy,
    "multi": _binary_cross_entropy,
    "regression": _squared_error,
    "link": _link_entropy,
}
_FOCAL: dict[LabelKind, Callable[..., Tensor]] = {"single": _focal, "multi": _binary_focal}
