"""How a loss becomes new weights: the seam between the loop and the ranks.

A new updater (all-reduce, parameter server) is one class here, or a file of its own, that provides:

1. `step(loss)`: the gradients of the loss, whatever is exchanged with other ranks, and new weights in the model it
   was made with, before it returns. The loss is a mean over this rank's labelled targets.
2. `hold(loss)`: the gradients of a loss that the next step counts in; asked for under `train.accumulate` alone.
3. `set_rate(rate)`: another learning rate than that of the config or of the last call; asked for under a
   `train.schedule` alone.
4. `state()` and `restore()`: everything that the next step depends on beside the weights, as tensors by name. The
   loop stores them with the weights, so that a restored updater takes the step the other would have taken. The rate
   is none of it: the loop sets it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from gnnflow.config import TrainConfig
from gnnflow.train.objective import build_optimizer


class Updater(Protocol):
    """Changes the weights of the model it was made with."""

    def step(self, loss: Tensor, *, weight: float = 1.0) -> None:
        """Take one step down the mean of the loss and of those held since the last step, each counted by its weight."""

    def hold(self, loss: Tensor, *, weight: float) -> None:
        """Count a loss in the next step. Its gradients are computed now, so its graph can be freed."""

    def set_rate(self, rate: float) -> None:
        """Use a learning rate from the next step on."""

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on beside the weights, and the config does not say."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` of an updater of the same model and config returned."""


_HELD = "held"
_WEIGHT = "weight"


class LocalUpdater:
    """One rank with the configured optimiser.

    Between `hold` and `update` the parameters' gradients are the mean over all that is held, so an updater of several
    ranks can exchange them as they are.
    """

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        self._parameters = list(model.parameters())
        self._optimizer = build_optimizer(model, config)
        self._clip_norm = config.clip_norm
        self._held = 0.0  # weight of the losses in the gradients
        self._optimizer.zero_grad()

    def step(self, loss: Tensor, *, weight: float = 1.0) -> None:
        """Take one step down the mean of the loss and of those held since the last step, each counted by its weight."""
        self.hold(loss, weight=weight)
        self.update()

    def hold(self, loss: Tensor, *, weight: float) -> None:
        """Make the gradients the mean of this loss's and those already held."""
        total = self._held + weight
        if self._held:  # the first one of a step is taken as it is, so a step of one batch has no other bits
            for gradient in self._gradients().values():
                gradient.mul_(self._held / total)
            loss = loss * (weight / total)
        loss.backward()  # type: ignore[no-untyped-call]
        self._held = total

    def set_rate(self, rate: float) -> None:
        """Use a learning rate from the next step on."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def update(self) -> None:
        """Change the weights by the held gradients, clipped where the config says so, and forget them."""
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._held = 0.0

    def state(self) -> dict[str, Tensor]:
        """Return the optimiser's state as `<place of the parameter>/<name>`, held gradients as `held/<place>`."""
        state = self._optimizer.state_dict()["state"]
        found = {f"{place}/{name}": tensor for place, tensors in state.items() for name, tensor in tensors.items()}
        if self._held:
            found |= {f"{_HELD}/{place}": gradient for place, gradient in self._gradients().items()}
            found[f"{_HELD}/{_WEIGHT}"] = torch.tensor(self._held, dtype=torch.float64)
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` returned."""
        state: dict[int, dict[str, Tensor]] = {}
        self._optimizer.zero_grad(set_to_none=True)
        self._held = 0.0
        for key, tensor in tensors.items():
            place, _, name = key.partition("/")
            if key == f"{_HELD}/{_WEIGHT}":
                self._held = float(tensor)
            elif place == _HELD:
                self._parameters[int(name)].grad = tensor.clone()
            else:
                state.setdefault(int(place), {})[name] = tensor
        self._optimizer.load_state_dict({"state": state, "param_groups": self._optimizer.state_dict()["param_groups"]})

    def _gradients(self) -> dict[int, Tensor]:
        return {place: each.grad for place, each in enumerate(self._parameters) if each.grad is not None}
