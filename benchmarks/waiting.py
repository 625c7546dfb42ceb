"""How long a rank waits for others: counted on a worker, in what every exchange of ranks waits with."""

from __future__ import annotations

import time
from typing import Any

from gnnflow.train.ranks.group import Pending

_waited = [0.0]


def count_waits() -> None:
    """Count from now on, in this process."""
    turn: Any = Pending.turn

    def counted(self: Pending) -> bool:
        begin = time.perf_counter()
        try:
            return bool(turn(self))
        finally:
            _waited[0] += time.perf_counter() - begin

    Pending.turn = counted  # type: ignore[method-assign]


def seconds_waited() -> float:
    """Return the seconds that all ranks of this process have waited."""
    return _waited[0]
