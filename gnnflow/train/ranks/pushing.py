"""A rank whose weights lie on parameter servers: each step pushes gradients to all servers and takes weights back.

Of a parameter that is looked up by rows and takes at least ROWS_BYTES, a step pulls the rows that its batch reads, in
one more call before it, and pushes the gradients of those. A smaller one travels whole with the others: the call would
cost more than the bytes. The rank's copy of such a table is whole only where all of it is read: when an epoch is
scored, and in a checkpoint.

With `updater.stealing` a rank takes its batches from the first server's queue: as many as it prepares ahead when an
epoch begins, then one with each reply, which costs no further call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.layers.encoders import BagEncoder
from gnnflow.train.profile import Stopwatch
from gnnflow.train.ranks.gradients import weights_checksum
from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.operations import RankLostError
from gnnflow.train.ranks.patience import Patience
from gnnflow.train.ranks.server_shard import Part, Push, RowGradients, State, dealt
from gnnflow.train.ranks.servers import Reply, ServerClosedError, Weights
from gnnflow.train.source import DealtBatch, Step
from gnnflow.train.state import Row
from gnnflow.train.updater import HeldGradients, StepLoss

ROWS_BYTES = 1 << 20
_LOOK_SECONDS = 0.5
_DONE, _EPOCH = "queue/done", "queue/epoch"


@dataclass(frozen=True)
class _Asked:
    """A server's actor. Raises RankLostError where a call cannot begin, as Dask has heard that the actor is gone."""

    actor: Any
    number: int

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.actor, name)
        except RuntimeError as error:
            raise _lost(self.number, f"cannot be reached ({error})") from None


class ServedUpdater:
    """Steps the weights of a model on servers. fit: which of the models that the servers train one after the other."""

    def __init__(
        self,
        model: nn.Module,
        group: RankGroup,
        servers: Sequence[Any],
        *,
        fit: int,
        rows_bytes: int = ROWS_BYTES,
    ) -> None:
        self._model = model
        self._held = HeldGradients(model)
        self._rate: float | None = None
        self._group = group
        self._deal(servers, rows_bytes)
        self._fit = fit
        self._watch = Stopwatch()
        self._steps = 0
        self._begun = False
        self._restored: list[State] = [{} for _ in self._servers]
        self._pulled, self._pushed = 0, 0
        self._versions = [0] * len(self._servers)
        self._done: tuple[int, Array] | None = None
        self._steals = False
        self._next: deque[DealtBatch] = deque()
        self._under_way: deque[DealtBatch] = deque()

    def _deal(self, servers: Sequence[Any], rows_bytes: int) -> None:
        """Note which server holds which parameters, and which of these are looked up by rows."""
        # A step's features are what the model's own encoder reads. The tables of a typed graph's encoders travel whole.
        children = self._model.children()
        bags = [each for each in children if isinstance(each, BagEncoder) and each.weight.nbytes >= rows_bytes]
        for bag in bags:
            bag.by_rows = True
        self._bags = {id(bag.weight): bag for bag in bags}
        self._parts: list[Part] = []
        self._tables: list[list[BagEncoder]] = []
        parameters = [each for each in self._model.parameters() if each.requires_grad]
        for numbers in dealt(parameters, len(servers)):
            held = [parameters[number] for number in numbers]
            self._parts.append(Part([each for each in held if id(each) not in self._bags]))
            self._tables.append([self._bags[id(each)] for each in held if id(each) in self._bags])
        self._servers = [_Asked(actor, number) for number, actor in enumerate(servers[: len(self._parts)])]

    def take(self, epoch: int, *, size: tuple[int, int], ahead: int) -> Iterator[DealtBatch]:
        """Yield this rank's batches of an epoch, until none is left for anybody.

        size: number of shares, and batches of each. ahead: how many are asked for before the first is stepped with.
        """
        self._begin()
        self._steals = True
        opened = self._servers[0].open_epoch(self._group.rank, epoch, size=size, count=ahead + 1)
        (found,) = self._answers([opened])
        self._next = deque(found)
        while self._next:
            self._under_way.append(self._next.popleft())
            yield self._under_way[-1]

    def look_up(self, shares: Sequence[Step]) -> None:
        """Before a step's forward pass: take the rows of the tables that its shares read."""
        if not self._bags:
            return
        self._begin()
        asked = [number for number, tables in enumerate(self._tables) if tables]
        wanted = [[_rows_of(bag, shares) for bag in self._tables[number]] for number in asked]
        calls = [self._servers[number].pull(rows) for number, rows in zip(asked, wanted, strict=True)]
        for number, rows, found in zip(asked, wanted, self._answers(calls), strict=True):
            for bag, places, weights in zip(self._tables[number], rows, found, strict=True):
                with torch.no_grad():
                    bag.weight[torch.from_numpy(places)] = torch.tensor(weights, device=bag.weight.device)
                self._pulled += weights.nbytes
                self._pushed += places.nbytes

    def figures(self) -> dict[str, float]:
        """Return the bytes pulled and pushed per step since this rank began, and the server's figures, by metric."""
        steps = max(self._steps, 1)
        (stale,) = self._answers([self._servers[0].figures()])
        return {
            "train.pulled_bytes_per_step": self._pulled / steps,
            "train.pushed_bytes_per_step": self._pushed / steps,
            **stale,
        }

    def step(self, loss: Tensor, *, num_targets: int = 1, weight: float = 1.0) -> StepLoss:
        """Push this rank's gradients and take the weights that come back."""
        self._begin()
        self.hold(loss, num_targets=num_targets, weight=weight)
        calls = [server.push(push) for server, push in zip(self._servers, self._pushes(), strict=True)]
        self._held.forget()
        replies: list[Reply] = self._answers(calls)
        self._watch.lap("exchange")
        for part, reply in zip(self._parts, replies, strict=True):
            part.take(reply.weights)
            self._pulled += reply.weights.nbytes
        self._versions = [reply.version for reply in replies]
        self._next.extend(replies[0].batches)
        self._steps += 1
        self._watch.lap("update")
        return replies[0].loss

    def _pushes(self) -> list[Push]:
        """Return each server's part of the gradients that are held."""
        batch = self._under_way.popleft() if self._steals else None
        pushes = []
        for part, tables, version in zip(self._parts, self._tables, self._versions, strict=True):
            gradients, present = part.gradients()
            by_rows = tuple(_row_gradients(bag.weight) for bag in tables)
            push = Push(
                self._group.rank,
                self._steps,
                gradients,
                present,
                loss=self._held.loss,
                weight=self._held.weight,
                num_targets=self._held.num_targets,
                rate=self._rate,
                tables=by_rows,
                version=version,
                batch=batch,
                fit=self._fit,
            )
            self._pushed += gradients.nbytes
            self._pushed += sum(each.rows.nbytes + each.gradients.nbytes for each in by_rows if each is not None)
            pushes.append(push)
        return pushes

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
        self._group.agree("number of steps", "the epoch's" if self._steals else self._steps)
        self._fetch()

    def _fetch(self) -> None:
        """Take all weights, the tables' too."""
        found: list[Weights] = self._answers([each.fetch() for each in self._servers])
        self._versions = [each.version for each in found]
        for part, bags, weights in zip(self._parts, self._tables, found, strict=True):
            part.take(weights.dense)
            for bag, table in zip(bags, weights.tables, strict=True):
                with torch.no_grad():
                    bag.weight.copy_(torch.tensor(table))

    def state(self) -> dict[str, Tensor]:
        """Return the servers' optimiser states as `<server>/<place of the parameter>/<name>`.

        Makes the model's tables whole, which a checkpoint stores as well. Where ranks take batches from a queue all
        weights are of one moment, and the batches that these have seen are part of the state.
        """
        if not self._begun:
            return self._tensors(self._restored, self._done)
        if not self._steals:
            if self._bags:
                self._fetch()
            return self._tensors(self._answers([each.state() for each in self._servers]), None)
        (pause,) = self._answers([self._servers[0].pause(self._group.rank)])
        self._answers([each.reach(pause.version) for each in self._servers])
        self._fetch()
        held = self._answers([each.state() for each in self._servers])
        self._answers([self._servers[0].resume()])
        return self._tensors(held, (pause.epoch, pause.done))

    @staticmethod
    def _tensors(held: Sequence[State], done: tuple[int, Array] | None) -> dict[str, Tensor]:
        found = {f"{at}/{name}": torch.tensor(array) for at, state in enumerate(held) for name, array in state.items()}
        if done is not None:
            found |= {_EPOCH: torch.tensor(done[0]), _DONE: torch.from_numpy(done[1])}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `state` returned; the servers get it, with the weights, before the first step."""
        if _DONE in tensors:
            self._done = int(tensors[_EPOCH]), tensors[_DONE].numpy()
        for key, tensor in tensors.items():
            if key not in (_DONE, _EPOCH):
                at, _, name = key.partition("/")
                self._restored[int(at)][name] = tensor.numpy()

    def _begin(self) -> None:
        """Before the first step: rank 0 gives the servers the weights that all ranks begin at."""
        if self._begun:
            return
        self._group.agree("weights", weights_checksum(self._model))
        calls = []
        for server, part, tables, state in zip(self._servers, self._parts, self._tables, self._restored, strict=True):
            held = [*part.parameters, *(bag.weight for bag in tables)]
            weights = [each.detach().cpu().numpy() for each in held]
            # the first server is the one that deals batches
            done = self._done if server is self._servers[0] else None
            given = (self._fit, weights, state, len(tables), done) if self._group.rank == 0 else (self._fit,)
            calls.append(server.begin(*given))
        self._answers(calls)
        self._begun = True

    def _answers(self, calls: Sequence[Any]) -> list[Any]:
        """Wait for the servers as for other ranks. Raises RankLostError where one is gone or too late."""
        group, patience = self._group, Patience(self._group.place.step_seconds)
        group.position.wait(over=False)
        answers: list[Any] = []
        for number, call in enumerate(calls):
            while len(answers) == number:
                group.check()
                try:
                    answers.append(call.result(timeout=_LOOK_SECONDS))
                except TimeoutError as error:  # before OSError, of which it is a kind
                    if patience.is_over():
                        raise _lost(number, "does not answer") from error
                except (OSError, RuntimeError, KeyError, ServerClosedError) as error:
                    # Without its frames: they hold the call, which holds the error, and so the connections to others.
                    raise _lost(number, f"cannot be reached ({error})") from error.with_traceback(None)
        group.position.wait(over=True)
        return answers


def _rows_of(bag: BagEncoder, shares: Sequence[Step]) -> IntArray:
    """Return the distinct rows of a table that the shares of a step read, ascending."""
    each: list[IntArray] = [bag.rows_read(share.features).cpu().numpy() for share in shares]
    return each[0] if len(each) == 1 else np.unique(np.concatenate(each))


def _row_gradients(weight: Tensor) -> RowGradients | None:
    """Return a table's gradient, a sparse tensor, by rows."""
    if weight.grad is None:
        return None
    gradient = weight.grad.coalesce().cpu()
    return RowGradients(gradient.indices()[0].numpy(), gradient.values().numpy())


def _lost(server: int, how: str) -> RankLostError:
    return RankLostError(f"parameter server {server} {how}", where="train.updater")
