"""Updates weights from a loss: the interface between the training loop and the ranks.

A new updater (all-reduce, parameter server) is one class here, or in another file, that provides:

1. `step(loss, ...)`: the gradients of the loss, whatever is exchanged with other ranks, and new weights in the model
   it was made with, before it returns. The loss is a mean over this rank's labelled targets; the loss that
   comes back is over all ranks.
2. `hold(loss, ...)`: the gradients of a loss that the next step counts in; asked for under `train.accumulate` alone.
3. `set_rate(rate)`: another learning rate than the config's or the last call's; asked for under a
   `train.schedule` alone.
4. `spent()`: the seconds that its steps have taken so far, by part (backward, exchange, update, and wait, where it
   has the next batch made ready meanwhile); see `profile.py`.
5. `state()` and `restore()`: everything that the next step depends on except the weights, as tensors by name. The
   loop stores them with the weights, so that a restored updater takes the step the other would have taken. The rate
   is none of it: the loop sets it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from gnnflow.config import TrainConfig
from gnnflow.train.objective import build_optimizer
from gnnflow.train.profile import Stopwatch
from gnnflow.train.state import Row


@dataclass(frozen=True)
class StepLoss:
    """A step's mean loss over the labelled targets of all ranks, before the step, and their number."""

    mean: float
    num_targets: int


class Updater(Protocol):
    """Changes the weights of the model it was made with."""

    def step(self, loss: Tensor, *, num_targets: int = 1, weight: float = 1.0) -> StepLoss:
        """Take one step down the mean of the loss and of those held since the last step.

        The loss is the mean over this rank's num_targets; weight: what the mean was divided by.
        """

    def hold(self, loss: Tensor, *, num_targets: int, weight: float) -> None:
        """Count a loss in the next step. Its gradients are computed now, so its graph can be freed."""

    def set_rate(self, rate: float) -> None:
        """Use a learning rate from the next step on."""

    def spent(self) -> Row:
        """Return the seconds of backward passes, exchanges with other ranks and updates so far."""

    def state(self) -> dict[str, Tensor]:
        """Return what the next step depends on except the weights and the config."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` of an updater of the same model and config returned."""


class WeightedLoss(NamedTuple):
    """The loss that a backward pass starts from, and its weight among the batches of the step."""

    loss: Tensor
    weight: float


class Exchange(Protocol):
    """Replaces the gradients of one rank by the gradients of all ranks."""

    def part(self, loss: Tensor, weight: float) -> WeightedLoss:
        """Return the loss that the backward pass starts from, and its weight among the batches of the step.

        loss: this rank's mean over targets of a weight.
        """

    def begin(self, *, loss: float, weight: float, num_targets: int) -> None:
        """Begin a step before its backward pass (the last one, where a step has several)."""

    def send(self) -> None:
        """Note that the backward pass is over, and send the rest of the gradients to the other ranks."""

    def finish(self) -> StepLoss:
        """Leave the gradient of the mean over all ranks' targets in the parameters, and return that mean."""


class NoExchange:
    """One rank alone: its gradients need no exchange."""

    def part(self, loss: Tensor, weight: float) -> WeightedLoss:
        """Return both unchanged."""
        return WeightedLoss(loss, weight)

    def begin(self, *, loss: float, weight: float, num_targets: int) -> None:
        """Keep the figures."""
        self._loss = StepLoss(loss, num_targets)

    def send(self) -> None:
        """Send nothing."""

    def finish(self) -> StepLoss:
        """Return the figures."""
        return self._loss


_HELD = "held/"
_FIGURES = "figures"


class HeldGradients:
    """The gradients of a model as the mean over losses that wait for one step.

    They lie in the parameters, so whoever exchanges them with other ranks finds them where a single batch's gradients
    would be. weight: what they count for together; loss: the mean of the losses; num_targets: how many these are of.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())
        self.weight, self.loss, self.num_targets = 0.0, 0.0, 0
        self.forget()

    def count(self, loss: Tensor, *, num_targets: int, weight: float) -> Tensor:
        """Count a loss in the mean, and return that whose backward pass adds its part to the gradients.

        The first loss comes back as it is, so a step of one batch has no other bits.
        """
        before, total = self.weight, self.weight + weight
        self.num_targets += num_targets
        self.weight = total
        if not before:
            self.loss = float(loss.detach())
            return loss
        self.loss += (float(loss.detach()) - self.loss) * (weight / total)
        for gradient in self._gradients().values():
            gradient.mul_(before / total)
        return loss.mul(weight / total)

    def forget(self) -> None:
        """Begin with none."""
        self.weight, self.loss, self.num_targets = 0.0, 0.0, 0
        for parameter in self._parameters:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return the gradients as `held/<place of the parameter>`, with their figures; empty if none is held."""
        if not self.weight:
            return {}
        figures = torch.tensor([self.weight, self.loss, self.num_targets], dtype=torch.float64)
        gradients = {f"{_HELD}{place}": gradient for place, gradient in self._gradients().items()}
        return gradients | {f"{_HELD}{_FIGURES}": figures}

    def restore(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Put back what `state` returned, and return the tensors that are not of it."""
        self.forget()
        held = {key.removeprefix(_HELD): tensor for key, tensor in tensors.items() if key.startswith(_HELD)}
        if held:
            self.weight, self.loss, num_targets = held.pop(_FIGURES).tolist()
            self.num_targets = int(num_targets)
        for place, gradient in held.items():
            parameter = self._parameters[int(place)]
            parameter.grad = gradient.to(parameter.device, copy=True)
        return {key: tensor for key, tensor in tensors.items() if not key.startswith(_HELD)}

    def _gradients(self) -> dict[int, Tensor]:
        return {place: each.grad for place, each in enumerate(self._parameters) if each.grad is not None}


def _nothing() -> None:
    pass


class LocalUpdater:
    """The configured optimiser on this rank, which steps with the gradients that the exchange leaves it.

    meanwhile: called while gradients travel, for work that needs none of them; its time counts as waiting for a batch.
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainConfig,
        *,
        exchange: Exchange | None = None,
        meanwhile: Callable[[], None] = _nothing,
    ) -> None:
        self._model = model
        self._held = HeldGradients(model)
        self.optimizer = build_optimizer(model, config)
        self._clip_norm = config.clip_norm
        self._exchange = exchange or NoExchange()
        self._meanwhile = meanwhile
        self._watch = Stopwatch()

    def step(self, loss: Tensor, *, num_targets: int = 1, weight: float = 1.0) -> StepLoss:
        """Take one step down the mean of the loss and of those held since the last step."""
        self._watch.start()
        held = self._held
        loss, weight = self._exchange.part(loss, weight)
        loss = held.count(loss, num_targets=num_targets, weight=weight)
        self._exchange.begin(loss=held.loss, weight=held.weight, num_targets=held.num_targets)
        self._watch.lap("exchange")
        loss.backward()  # type: ignore[no-untyped-call]
        self._watch.lap("backward")
        self._exchange.send()
        self._watch.lap("exchange")
        self._meanwhile()
        self._watch.lap("wait")
        taken = self._exchange.finish()
        self._watch.lap("exchange")
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)
        self.optimizer.step()
        held.forget()
        self._watch.lap("update")
        return taken

    def hold(self, loss: Tensor, *, num_targets: int, weight: float) -> None:
        """Count a loss in the next step."""
        self._watch.start()
        loss, weight = self._exchange.part(loss, weight)
        self._watch.lap("exchange")
        self._held.count(loss, num_targets=num_targets, weight=weight).backward()  # type: ignore[no-untyped-call]
        self._watch.lap("backward")

    def spent(self) -> Row:
        """Return the seconds of each part so far."""
        return self._watch.seconds()

    def set_rate(self, rate: float) -> None:
        """Use a learning rate from the next step on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def state(self) -> dict[str, Tensor]:
        """Return the optimiser's state as `<place of the parameter>/<name>`, and what is held."""
        state = self.optimizer.state_dict()["state"]
        found = {f"{place}/{name}": tensor for place, tensors in state.items() for name, tensor in tensors.items()}
        return found | self._held.state()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` returned."""
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in self._held.restore(tensors).items():
            place, _, name = key.partition("/")
            state.setdefault(int(place), {})[name] = tensor
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
