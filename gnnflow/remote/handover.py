"""The time between two who wait for a stage's driver: one has left, and the next has not come.

A task of Airflow that has started a driver defers to a trigger. If a person marks the task failed before the trigger
starts, no part of Airflow stops the driver. So it stops on its own where nobody takes it over in time; whoever comes
later submits the stage again, which resumes.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HANDED_OVER = "handed over"
"""Kind of the event by which one who waits for a driver leaves it to the next."""
TAKEN_OVER = "taken over"
ABANDONED = "abandoned"
"""Kind of a driver's last event where nobody took it over."""

_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 5.0


class Handover:
    """Says whether a driver was handed over and nobody took it. It looks at the kinds of the driver's events."""

    def __init__(self, kinds: Callable[[], Iterable[Any]]) -> None:
        self._kinds = kinds
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._since: float | None = None
        self.is_abandoned = False

    def check(self) -> bool:
        """Return whether nobody has waited for the driver for some time; cheap, since it looks only now and then."""
        now = time.monotonic()
        if self.is_abandoned or now < self._next_look:
            return self.is_abandoned
        self._next_look = now + _LOOK_SECONDS
        with contextlib.suppress(OSError):  # a scheduler that does not answer has more to say about it elsewhere
            last = [kind for kind in self._kinds() if kind in (HANDED_OVER, TAKEN_OVER)][-1:]
            self._since = (self._since or now) if last == [HANDED_OVER] else None
        self.is_abandoned = self._since is not None and now - self._since >= _WAIT_SECONDS
        return self.is_abandoned
