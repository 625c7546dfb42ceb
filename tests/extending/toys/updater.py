"""An updater: every rank steps along the signs of the mean gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.rank import AllReduceRank
from gnnflow.train.updater import LocalUpdater, StepLoss, Updater

if TYPE_CHECKING:
    from torch import nn

    from gnnflow.config import TrainConfig


class Signs(AllReduce):
    """An all-reduce that leaves the signs of the mean gradient."""

    parameters: list[nn.Parameter]

    def finish(self) -> StepLoss:
        """Wait for the mean, and keep its signs."""
        taken = super().finish()
        for parameter in self.parameters:
            parameter.grad.sign_()
        return taken


@dataclass
class ToyRank(AllReduceRank):
    """A rank that steps along signs."""

    def updater(self, model: nn.Module, config: TrainConfig) -> Updater:
        """Return the configured optimiser behind the signs."""
        exchange = Signs(model, self.group, is_joint=False)
        exchange.parameters = list(model.parameters())
        return LocalUpdater(model, config, exchange=exchange, meanwhile=self._sources[-1].make_ready)
