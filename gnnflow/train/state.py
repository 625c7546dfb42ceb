"""The state of a fit without its tensors, as values that become JSON and come back equal.

JSON keeps every digit of a float, so sums continue exactly where they stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

Row = dict[str, float]


@dataclass(frozen=True)
class FitState:
    """The place of a fit: `step` is the next step of `epoch`.

    loss_sum, num_targets, seconds and spent: of the epoch so far. spent: seconds by part, as `gnnflow.train.profile`
    has them. best_value and best_loss belong to the weights kept as best; best_epoch is -1 before any validation.
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    num_targets: int = 0
    seconds: float = 0.0
    best_epoch: int = -1
    best_value: float = 0.0
    best_loss: float = 0.0
    finished: bool = False
    history: tuple[Row, ...] = field(default=())
    spent: Row = field(default_factory=dict)

    @property
    def mean_loss(self) -> float:
        """Mean training loss of the epoch so far, per labelled target."""
        return self.loss_sum / max(self.num_targets, 1)

    def steps_done(self, steps_per_epoch: int) -> int:
        """Return the number of steps taken since the first epoch."""
        return self.epoch * steps_per_epoch + min(self.step, steps_per_epoch)

    def after_step(self, *, loss: float, num_targets: int, seconds: float) -> FitState:
        """Return the state after one more step, with the batch's mean loss over its labelled targets."""
        return replace(
            self,
            step=self.step + 1,
            loss_sum=self.loss_sum + loss * num_targets,
            num_targets=self.num_targets + num_targets,
            seconds=self.seconds + seconds,
        )

    def after_epoch(self, row: Row) -> FitState:
        """Return the state at the start of the next epoch."""
        return replace(
            self,
            epoch=self.epoch + 1,
            step=0,
            loss_sum=0.0,
            num_targets=0,
            seconds=0.0,
            spent={},
            history=(*self.history, row),
        )

    def with_best(self, *, value: float, loss: float) -> FitState:
        """Return the state with the current epoch as the best one."""
        return replace(self, best_epoch=self.epoch, best_value=value, best_loss=loss)

    def is_better(self, *, value: float, loss: float) -> bool:
        """Return whether a validation beats the best: by its value, or by its loss where the values tie.

        `value` is larger-is-better: the negative of a metric that is better low, such as a loss or an error.
        """
        return self.best_epoch < 0 or (value, -loss) > (self.best_value, -self.best_loss)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the rows of the history are the state's own, since they never change."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FitState:
        """Return the state that `to_json` described."""
        return cls(**{**value, "history": tuple(value["history"])})
