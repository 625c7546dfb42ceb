"""A clock for waits, so that a test waits no real time."""

from __future__ import annotations


class Clock:
    """A clock that stands still, but for sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return the seconds slept so far."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Sleep, as far as this clock shows."""
        self.now += seconds
