"""All-reduce: a step's gradient is the mean over the labelled targets of all ranks, weighed as one rank would.

Parameters are put into buckets in the reverse order of the model, which is about the order in which the backward pass
reaches them. A bucket is sent as soon as its last gradient is there and all buckets before it are under way, so that
every rank sends them in one order while the backward pass goes on. A step's draws, shares and sums are functions of
(seed, epoch, step, rank), and every rank gets the same bits: the weights stay equal without being sent.

A sum of more than two ranks takes rounds, each of which needs the one before (`doubling.py`). A thread takes them from
the end of the backward pass on, so that they go on while the rank makes its next batch: otherwise a rank that is busy
with that would hold up those that need its part of a round. The new weights wait for all of them as before.

Where ranks compute one step together (`is_joint`), the backward pass of each also carries what the others' losses ask
of its rows: all passes then begin from parts of one mean over the targets of all ranks, and their gradients are summed.

Each bucket carries, with the gradients times the rank's weight, one number per parameter that counts the ranks with a
gradient of it, so that a parameter that no rank used keeps none, as it would on one rank. The first bucket carries the
step's loss too: a separate message would be one more to wait for.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from gnnflow.train.ranks.group import RankGroup
from gnnflow.train.ranks.operations import Pending, take_turns, wait_all
from gnnflow.train.updater import StepLoss, WeightedLoss

BUCKET_BYTES = 1 << 20
_NUM_FIGURES = 4
_ONE_ROUND = 2
"""So many ranks have their sum after one round, which goes on by itself."""
_COUNT_BASE = 1 << 12


@dataclass
class _Bucket:
    """Parameters that travel together: their gradients one after the other, then a flag per parameter, then figures."""

    parameters: list[nn.Parameter]
    content: Tensor
    places: list[tuple[int, int]]
    missing: int = 0
    pending: Pending | None = field(default=None)

    @staticmethod
    def of(parameters: Sequence[nn.Parameter]) -> _Bucket:
        places, stop = [], 0
        for parameter in parameters:
            places.append((stop, stop + parameter.numel()))
            stop += parameter.numel()
        size = stop + len(parameters) + _NUM_FIGURES
        return _Bucket(
            list(parameters), torch.zeros(size, dtype=parameters[0].dtype, device=parameters[0].device), places
        )

    @property
    def flags(self) -> Tensor:
        """The number of ranks that have a gradient of each parameter."""
        return self.content[self.places[-1][1] : -_NUM_FIGURES]

    @property
    def figures(self) -> Tensor:
        """The step's figures, in the first bucket."""
        return self.content[-_NUM_FIGURES:]

    def fill(self, weight: float) -> None:
        """Put the gradients in, times the weight of this rank."""
        self.flags.copy_(torch.tensor([float(parameter.grad is not None) for parameter in self.parameters]))
        for parameter, (start, stop) in zip(self.parameters, self.places, strict=True):
            if parameter.grad is None:
                self.content[start:stop].zero_()
            else:
                torch.mul(parameter.grad.reshape(-1), weight, out=self.content[start:stop])

    def give(self, total_weight: float) -> None:
        """Make the received sums, divided by the weight of all ranks, the parameters' gradients."""
        for parameter, (start, stop), ranks in zip(self.parameters, self.places, self.flags.tolist(), strict=True):
            if not ranks:
                parameter.grad = None
                continue
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            torch.div(self.content[start:stop].view_as(parameter), total_weight, out=parameter.grad)


class AllReduce:
    """Exchanges the gradients of a model's parameters with the other ranks of a group."""

    def __init__(
        self, model: nn.Module, group: RankGroup, *, is_joint: bool = False, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        self._model = model
        self._is_joint = is_joint
        self._group = group
        self._buckets = _buckets(model, bucket_bytes)
        self._numbers = {id(one): number for number, each in enumerate(self._buckets) for one in each.parameters}
        self._sent = 0
        self._weight = 0.0
        self._begun = False
        self._agreed = False
        # its thread ends when the pool is let go of
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gnnflow-rounds")
        self._turns: Future[None] | None = None
        # A parameter must not keep alive what holds the connections.
        came = weakref.WeakMethod(self._came)
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(partial(_call_if_set, came))  # type: ignore[no-untyped-call]

    def part(self, loss: Tensor, weight: float) -> WeightedLoss:
        """Return the loss and its weight; of a joint step, this rank's part of the mean and the weight of all ranks."""
        if not self._is_joint:
            return WeightedLoss(loss, weight)
        self._agree()
        total = self._group.all_reduce(torch.tensor([weight], dtype=torch.float64)).wait().item()
        factor = weight / (total or 1.0)
        return WeightedLoss(loss if factor == 1.0 else loss * factor, total)

    def begin(self, *, loss: float, weight: float, num_targets: int) -> None:
        """Note a step's loss, before its backward pass; gradients are sent as they come from now on."""
        self._agree()
        # the parts of a joint step's mean have their weights already, and are only summed
        self._weight, self._sent, self._begun = 1.0 if self._is_joint else weight, 0, True
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)
        # in two digits, whose sums float32 holds exactly
        figures = [loss * self._weight, self._weight, *divmod(num_targets, _COUNT_BASE)]
        self._buckets[0].figures.copy_(torch.tensor(figures))

    def send(self) -> None:
        """Send what is not under way yet, after the backward pass, and have the rounds go on from now."""
        self._send(everything=True)
        if self._group.size > _ONE_ROUND and self._turns is None:
            self._turns = self._thread.submit(take_turns, self._under_way())

    def finish(self) -> StepLoss:
        """Replace the model's gradients by the gradients of all ranks."""
        self._send(everything=True)
        self._begun = False
        turns, self._turns = self._turns, None
        wait_all(self._under_way(), turns)
        loss_sum, weight, high, low = self._buckets[0].figures.tolist()
        total = 1.0 if self._is_joint else weight or 1.0
        for bucket in self._buckets:
            bucket.give(total)
            bucket.pending = None
        return StepLoss(loss_sum / total, int(high) * _COUNT_BASE + int(low))

    def _under_way(self) -> list[Pending]:
        return [bucket.pending for bucket in self._buckets if bucket.pending is not None]

    def _came(self, parameter: Tensor) -> None:
        if not self._begun:
            return  # a backward pass whose gradients are not sent yet
        self._buckets[self._numbers[id(parameter)]].missing -= 1
        self._send(everything=False)

    def _send(self, *, everything: bool) -> None:
        while self._sent < len(self._buckets) and (everything or not self._buckets[self._sent].missing):
            bucket = self._buckets[self._sent]
            bucket.fill(self._weight)
            bucket.pending = self._group.all_reduce(bucket.content)
            self._sent += 1

    def _agree(self) -> None:
        """Before the first step: all ranks must begin at the same weights."""
        if not self._agreed:
            self._group.agree("weights", weights_checksum(self._model))
            self._agreed = True


def _call_if_set(came: Callable[[], Callable[[Tensor], None] | None], parameter: Tensor) -> None:
    if (function := came()) is not None:
        function(parameter)


def weights_checksum(model: nn.Module) -> int:
    """Return a checksum of a model's parameters."""
    checksum = 0
    for parameter in model.parameters():
        content = parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy()
        checksum = zlib.crc32(content.tobytes(), checksum)
    return checksum


def _buckets(model: nn.Module, bucket_bytes: int) -> list[_Bucket]:
    """Return the parameters in buckets of one dtype and about so many bytes, the model's last parameters first."""
    found: list[list[nn.Parameter]] = []
    size = 0
    for parameter in reversed([each for each in model.parameters() if each.requires_grad]):
        fits = found and size + parameter.nbytes <= bucket_bytes and found[-1][0].dtype == parameter.dtype
        if not fits:
            found.append([])
            size = 0
        found[-1].append(parameter)
        size += parameter.nbytes
    return [_Bucket.of(each) for each in found]
