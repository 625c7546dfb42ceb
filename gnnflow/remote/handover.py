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
"""Kind of the event by which one who waits for a driver leaves it to the next, who has to come within its `seconds`."""
TAKEN_OVER = "taken over"
ABANDONED = "abandoned"
"""Kind of a driver's last event where nobody took it over."""

_LOOK_SECONDS = 2.0


def topic_of(name: str) -> str:
    """Return the topic of these events of a submission; they are few, and its own may be many."""
    return f"{name}-handover"


class Handover:
    """Says whether a driver was handed over and nobody took it. events: returns what its submission's topic has."""

    def __init__(self, events: Callable[[], Iterable[dict[str, Any]]]) -> None:
        self._events = events
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._since: float | None = None
        self.is_abandoned = False

    def check(self) -> bool:
        """Return whether nobody has taken the driver in time; cheap, since it looks only now and then."""
        now = time.monotonic()
        if self.is_abandoned or now < self._next_look:
            return self.is_abandoned
        self._next_look = now + _LOOK_SECONDS
        with contextlib.suppress(OSError):  # of a scheduler that does not answer others tell
            last = [event for event in self._events() if event["kind"] in (HANDED_OVER, TAKEN_OVER)][-1:]
            self._since = (self._since or now) if last and last[0]["kind"] == HANDED_OVER else None
            self.is_abandoned = self._since is not None and now - self._since >= last[0]["seconds"]
        return self.is_abandoned
