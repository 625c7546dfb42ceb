"""The learning rate of each update: a function of the update's number and of the validations before it.

Both are in every checkpoint, so a schedule has no state to store: a fit that goes on tells it the
validations of its history again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from gnnflow.config import CosineSchedule, LinearSchedule, PlateauSchedule, ScheduleConfig
from gnnflow.graph.labels import lower_is_better
from gnnflow.train.optimizers import eager


class Schedule(Protocol):
    """Says the learning rate."""

    def rate(self, update: int) -> float:
        """Return the rate of an update, counted from 0 over all epochs."""

    def validated(self, value: float) -> None:
        """Take note of the metric that an epoch ended with."""


def build_schedule(config: ScheduleConfig, *, lr: float, epochs: int, updates_per_epoch: int, metric: str) -> Schedule:
    """Return the configured schedule of a fit. metric: what `validated` will be told."""
    if isinstance(config, PlateauSchedule):
        return _Plateau(config, lr=lr, metric=metric)
    warmup = config.warmup if isinstance(config, LinearSchedule | CosineSchedule) else 0.0
    return _Curve(
        lr,
        warmup=round(warmup * updates_per_epoch),
        total=epochs * updates_per_epoch,
        floor=config.floor if isinstance(config, CosineSchedule) else 1.0,
    )


@dataclass(frozen=True)
class _Curve:
    """A linear rise over `warmup` updates, then half a cosine from lr to floor x lr at update `total`.

    Values equal torch's LinearLR and CosineAnnealingLR in turn, but are computed from the number of the update instead
    of from the rate before it.
    """

    lr: float
    warmup: int
    total: int
    floor: float

    def rate(self, update: int) -> float:
        """Return the rate of an update."""
        if update < self.warmup:
            return self.lr * (update + 1) / self.warmup
        if self.floor == 1.0:
            return self.lr
        done = (update - self.warmup) / (self.total - self.warmup)
        return self.lr * (self.floor + (1.0 - self.floor) * (1.0 + math.cos(math.pi * done)) / 2.0)

    def validated(self, value: float) -> None:
        """Do nothing: the rate does not depend on validations."""


class _Plateau:
    """torch's ReduceLROnPlateau, on an optimiser that stands in for those that updaters own."""

    def __init__(self, config: PlateauSchedule, *, lr: float, metric: str) -> None:
        self._optimizer = eager(torch.optim.SGD)([torch.zeros(1)], lr=lr)
        self._scheduler = ReduceLROnPlateau(
            self._optimizer,
            mode="min" if lower_is_better(metric) else "max",
            factor=config.factor,
            patience=config.patience - 1,  # torch counts the epochs that are let pass
            threshold=0.0,
            min_lr=config.floor * lr,
            eps=0.0,
        )

    def rate(self, update: int) -> float:
        """Return the rate of an update after the validations so far."""
        return float(self._optimizer.param_groups[0]["lr"])

    def validated(self, value: float) -> None:
        """Lower the rate where the metric was not better for long enough."""
        self._scheduler.step(value)
