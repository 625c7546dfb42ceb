"""A rank whose weights lie on parameter servers: each step pushes gradients to all of them and takes weights back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gnnflow.config import TrainConfig
from gnnflow.train.job import TrainJob
from gnnflow.train.profile import Stopwatch
from gnnflow.train.ranks.gradients import weights_checksum
from gnnflow.train.ranks.group import RankGroup, RankLostError
from gnnflow.train.ranks.servers import Part, Push, Reply, ServerClosedError, State, dealt
from gnnflow.train.ranks.source import SharedSource, open_shares
from gnnflow.train.source import OpenSource
from gnnflow.train.state import Row
from gnnflow.train.updater import HeldGradients, StepLoss

_LOOK_SECONDS = 0.5


@dataclass
class ServedRank:
    """One rank among several that share their weights through servers: Dask actors of `Server`."""

    group: RankGroup
    servers: Sequence[Any]
    _updaters: list[ServedUpdater] = field(default_factory=list)

    @property
    def writes_checkpoints(self) -> bool:
        """Rank 0 does."""
        return self.group.rank == 0

    def of_all(self, row: Row) -> tuple[Row, ...]:
        """Return the figures of every rank."""
        return self.group.rows(row)

    def open(self, open_source: OpenSource, job: TrainJob, *, edges: bool) -> SharedSource:
        """Return this rank's shares, which meet the others' at the end of an epoch."""
        return open_shares(open_source, job, edges=edges, group=self.group, settle=self._settle)

    def updater(self, model: nn.Module, config: TrainConfig) -> ServedUpdater:
        """Return what steps a model through the servers; each model trains until the next one is given."""
        self._updaters.append(ServedUpdater(model, self.group, self.servers, fit=len(self._updaters)))
        return self._updaters[-1]

    def _settle(self) -> None:
        self._updaters[-1].settle()


class ServedUpdater:
    """Steps the weights of a model on servers. fit: which of the models that the servers train one after the other."""

    def __init__(self, model: nn.Module, group: RankGroup, servers: Sequence[Any], *, fit: int) -> None:
        parameters = [each for each in model.parameters() if each.requires_grad]
        self._model = model
        self._held = HeldGradients(model)
        self._rate: float | None = None
        self._group = group
        numbers = dealt(parameters, len(servers))
        self._parts = [Part([parameters[number] for number in each]) for each in numbers]
        self._servers = list(servers[: len(self._parts)])
        self._fit = fit
        self._watch = Stopwatch()
        self._steps = 0
        self._begun = False
        self._restored: list[State] = [{} for _ in self._servers]

    def step(self, loss: Tensor, *, num_targets: int = 1, weight: float = 1.0) -> StepLoss:
        """Push this rank's gradients and take the weights that come back."""
        self._begin()
        held = self._held
        self.hold(loss, num_targets=num_targets, weight=weight)
        calls = []
        for server, part in zip(self._servers, self._parts, strict=True):
            gradients, present = part.gradients()
            push = Push(
                self._group.rank,
                self._steps,
                gradients,
                present,
                loss=held.loss,
                weight=held.weight,
                num_targets=held.num_targets,
                rate=self._rate,
            )
            calls.append(server.push(push))
        held.forget()
        replies: list[Reply] = self._answers(calls)
        self._watch.lap("exchange")
        for part, reply in zip(self._parts, replies, strict=True):
            part.take(reply.weights)
        self._steps += 1
        self._watch.lap("update")
        return replies[0].loss

    def hold(self, loss: Tensor, *, num_targets: int, weight: float) -> None:
        """Count a loss in the next push."""
        self._watch.start()
        self._held.count(loss, num_targets=num_targets, weight=weight).backward()  # type: ignore[no-untyped-call]
        self._watch.lap("backward")

    def spent(self) -> Row:
        """Return the seconds of each part so far."""
        return self._watch.seconds()

    def set_rate(self, rate: float) -> None:
        """Send this learning rate with the pushes from the next one on."""
        self._rate = rate

    def settle(self) -> None:
        """Meet the other ranks when all have taken their steps, and take the same weights as they."""
        self._begin()
        self._group.agree("number of steps", self._steps)
        for part, weights in zip(self._parts, self._answers([each.fetch() for each in self._servers]), strict=True):
            part.take(weights)

    def state(self) -> dict[str, Tensor]:
        """Return the servers' optimiser states as `<server>/<place of the parameter>/<name>`."""
        held: list[State] = self._answers([each.state() for each in self._servers]) if self._begun else self._restored
        return {f"{at}/{name}": torch.tensor(array) for at, state in enumerate(held) for name, array in state.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` returned; the servers get it, with the weights, before the first step."""
        for key, tensor in tensors.items():
            at, _, name = key.partition("/")
            self._restored[int(at)][name] = tensor.numpy()

    def _begin(self) -> None:
        """Before the first step: rank 0 gives the servers the weights that all ranks begin at."""
        if self._begun:
            return
        self._group.agree("weights", weights_checksum(self._model))
        calls = []
        for server, part, state in zip(self._servers, self._parts, self._restored, strict=True):
            weights = [each.detach().cpu().numpy() for each in part.parameters]
            calls.append(server.begin(self._fit, weights, state) if self._group.rank == 0 else server.begin(self._fit))
        self._answers(calls)
        self._begun = True

    def _answers(self, calls: Sequence[Any]) -> list[Any]:
        """Wait for the servers as for other ranks. Raises RankLostError where one is gone or too late."""
        group, begin = self._group, time.monotonic()
        group.position.wait(over=False)
        answers: list[Any] = []
        for number, call in enumerate(calls):
            while len(answers) == number:
                group.check()
                try:
                    answers.append(call.result(timeout=_LOOK_SECONDS))
                except TimeoutError as error:  # before OSError, of which it is a kind
                    if time.monotonic() - begin > group.place.step_seconds:
                        raise _lost(number, "does not answer") from error
                except (OSError, RuntimeError, KeyError, ServerClosedError) as error:
                    raise _lost(number, f"cannot be reached ({error})") from error
        group.position.wait(over=True)
        return answers


def _lost(server: int, how: str) -> RankLostError:
    return RankLostError(f"parameter server {server} {how}", where="train.updater")
