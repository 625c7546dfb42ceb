"""Limits how long a wait may take, without the time for which this process was paused."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

PAUSE_SECONDS = 10.0
"""Nobody waits for so long between two looks: the process was paused, or what it looks at did not answer."""


@dataclass
class Patience:
    """A limit of a wait that looks again and again. A pause (SIGSTOP, a laptop that sleeps) uses up PAUSE_SECONDS.

    seconds: the limit. waited: seconds so far.
    """

    seconds: float
    waited: float = 0.0
    _looked_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._looked_at = time.monotonic()

    def is_over(self) -> bool:
        """Return whether the wait has taken longer than its limit. To be asked at every look."""
        now = time.monotonic()
        self.waited += min(now - self._looked_at, PAUSE_SECONDS)
        self._looked_at = now
        return self.waited > self.seconds
