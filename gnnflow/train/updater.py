"""How a loss becomes new weights: the seam between the loop and the ranks.

A new updater (all-reduce, parameter server) is one class here, or a file of its own, that provides:

1. `step(loss)`: the gradients of the loss, whatever is exchanged with other ranks, and new weights in the model it
   was made with, before it returns. The loss is a mean over this rank's labelled targets.
2. `state()` and `restore()`: everything that the next step depends on beside the weights, as tensors by name. The
   loop stores them with the weights, so that a restored updater takes the step the other would have taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor, nn

from gnnflow.config import TrainConfig
from gnnflow.train.objective import build_optimizer


class Updater(Protocol):
    """Changes the weights of the model it was made with."""

    def step(self, loss: Tensor) -> None:
        """Take one step down the loss."""

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on beside the weights, and the config does not say."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` of an updater of the same model and config returned."""


class LocalUpdater:
    """One rank with the configured optimiser."""

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        self._optimizer = build_optimizer(model, config)

    def step(self, loss: Tensor) -> None:
        """Take one step down the loss."""
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return the optimiser's state as `<place of the parameter>/<name>`."""
        state = self._optimizer.state_dict()["state"]
        return {f"{place}/{name}": tensor for place, tensors in state.items() for name, tensor in tensors.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` returned."""
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            place, _, name = key.partition("/")
            state.setdefault(int(place), {})[name] = tensor
        self._optimizer.load_state_dict({"state": state, "param_groups": self._optimizer.state_dict()["param_groups"]})
