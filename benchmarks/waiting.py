"""How long a rank waits for others once all have come, and what its process computes in epochs: counted on a worker."""

from __future__ import annotations

import time

from gnnflow.train.fit_run import FitRun
from gnnflow.train.ranks.operations import JOINING, Position

_waited = [0.0]
_computed = [0.0]


def count_waits() -> None:
    """Count from now on, in this process."""
    note, begun = Position.wait, [0.0]

    def counted(self: Position, *, over: bool) -> None:
        if over and self.doing != JOINING:
            _waited[0] += time.perf_counter() - begun[0]
        else:
            begun[0] = time.perf_counter()
        note(self, over=over)

    Position.wait = counted  # type: ignore[method-assign]


def seconds_waited() -> float:
    """Return the seconds that all ranks of this process have waited."""
    return _waited[0]


def count_computing() -> None:
    """Count from now on, in this process: all of its threads, in the epochs after the first."""
    train = FitRun.train_epoch

    def counted(self: FitRun) -> None:
        begin = time.process_time()
        train(self)
        _computed[0] += time.process_time() - begin if self.state.epoch else 0.0

    FitRun.train_epoch = counted  # type: ignore[method-assign]


def seconds_computed() -> float:
    """Return the seconds that all ranks of this process have computed."""
    return _computed[0]
