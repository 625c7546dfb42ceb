"""Operations of all ranks, under way: waited for, and ended when a rank is lost, late or told to stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from torch import Tensor

from gnnflow.graph.errors import ClusterError
from gnnflow.progress import place_text
from gnnflow.train.ranks.patience import Patience

JOINING = "joining the other ranks"
_LOOK_SECONDS = 0.5


class RankLostError(ClusterError):
    """A rank died, or cannot be reached by another one: the ranks can begin again from the last checkpoint."""


class RankStoppedError(Exception):
    """This rank was told to stop."""


@dataclass
class Position:
    """A rank's place in training, for its watchers. `moves` grows with every change; `waiting`: for other ranks."""

    epoch: int = 0
    step: int = 0
    moves: int = 0
    doing: str = "beginning"
    waiting: bool = False
    stop: bool = False

    def at(self, doing: str, *, epoch: int | None = None, step: int | None = None) -> None:
        """Note what the rank does from now on."""
        self.epoch = self.epoch if epoch is None else epoch
        self.step = self.step if step is None else step
        self.doing, self.waiting = doing, False
        self.moves += 1

    def wait(self, *, over: bool) -> None:
        """Note that the rank waits for the others, or that this is over."""
        self.waiting = not over
        self.moves += 1

    def check(self) -> None:
        """Raise RankStoppedError where the training is no longer wanted."""
        if self.stop:
            raise RankStoppedError


@dataclass(frozen=True)
class Place:
    """A rank's number, of how many, and its time limits: for the others to begin, and for one operation."""

    rank: int
    size: int
    start_seconds: float
    step_seconds: float


@dataclass(eq=False)
class Pending:
    """An operation under way. rounds: its parts, each of which begins when it is taken and the one before has ended.

    before: one that was begun earlier and goes over the same connections. It ends before the second round of this one
    begins, whichever is waited for first: a rank that has a round less of each would else take one for the other.
    """

    place: Place
    position: Position
    rounds: Iterator[Any]
    tensor: Tensor
    copied_to: Tensor | None = None
    before: Pending | None = None
    _work: Any = field(init=False)

    def __post_init__(self) -> None:
        self._work = next(self.rounds, None)

    def wait(self) -> Tensor:
        """Return the tensor when the operation is done. Raises RankLostError where another rank is gone or too late."""
        wait_all([self])
        return self.tensor if self.copied_to is None else self.copied_to

    @property
    def is_done(self) -> bool:
        """True if all rounds have ended."""
        return self._work is None

    def turn(self) -> bool:
        """Wait for the round under way, begin the next one and return whether there is one."""
        if self._work is None:
            return False
        patience = Patience(self.place.step_seconds)
        while True:
            self.position.check()
            try:
                self._work.wait(timedelta(seconds=_LOOK_SECONDS))
            except (RuntimeError, OSError) as error:
                is_late = isinstance(error, TimeoutError) or "Operation timed out" in str(error)
                if not is_late or patience.is_over():
                    raise _lost(self, error) from error
            else:
                self._work = next(self.rounds, None)
                return self._work is not None


def take_turns(operations: Sequence[Pending]) -> None:
    """Finish operations side by side, round by round, after earlier operations have ended.

    Raises RankLostError where a rank is gone or too late.
    """
    for each in operations:
        before, each.before = each.before, None
        if before is not None and before not in operations:
            take_turns([before])
    under_way = list(operations)
    while under_way:
        under_way = [each for each in under_way if each.turn()]


def wait_all(operations: Sequence[Pending], turns: Future[None] | None = None) -> None:
    """Wait for operations. Raises RankLostError where a rank is gone or too late.

    turns: `take_turns` of them in another thread; where that has not begun yet it is done here.
    """
    if not operations:
        return
    position = operations[0].position
    position.wait(over=False)
    if turns is None or turns.cancel():
        take_turns(operations)
    else:
        turns.result()
    position.wait(over=True)
    for each in operations:
        if each.copied_to is not None:
            each.copied_to.copy_(each.tensor)


def _lost(operation: Pending, error: Exception) -> RankLostError:
    place, position = operation.place, operation.position
    said = str(error).partition("] ")[2] or str(error)
    return RankLostError(
        f"rank {place.rank} of {place.size} lost the other ranks in {place_text(position.epoch, position.step)} "
        f"({said.partition('. This is')[0].splitlines()[0]})",
        where="train.workers",
    )
