"""Counts the gradients that ranks push to a parameter server: the losses to report, and the staleness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.train.updater import StepLoss

if TYPE_CHECKING:
    from gnnflow.train.ranks.server_shard import Push


@dataclass
class Tally:
    """Losses of the pushes that one rank has not been told of yet."""

    loss_sum: float = 0.0
    weight: float = 0.0
    num_targets: int = 0

    def add(self, push: Push) -> None:
        """Count a push."""
        self.loss_sum += push.loss * push.weight
        self.weight += push.weight
        self.num_targets += push.num_targets

    def take(self) -> StepLoss:
        """Return their mean, and begin anew."""
        taken = StepLoss(self.loss_sum / (self.weight or 1.0), self.num_targets)
        self.loss_sum, self.weight, self.num_targets = 0.0, 0.0, 0
        return taken


@dataclass
class Staleness:
    """Updates that others made between a push's weights and its own update; batches that were stolen."""

    pushes: int = 0
    total: int = 0
    most: int = 0
    stolen: int = 0

    def add(self, updates: int) -> None:
        """Count a push."""
        self.pushes, self.total, self.most = self.pushes + 1, self.total + updates, max(self.most, updates)

    def figures(self) -> dict[str, float]:
        """Return the counts by name of the metric."""
        return {
            "train.mean_staleness": self.total / max(self.pushes, 1),
            "train.max_staleness": self.most,
            "train.stolen_batches": self.stolen,
        }
