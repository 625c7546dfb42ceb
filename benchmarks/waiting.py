"""How long a rank waits for others once all have come: counted on a worker, where ranks note that they wait."""

from __future__ import annotations

import time

from gnnflow.train.ranks.operations import JOINING, Position

_waited = [0.0]


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
