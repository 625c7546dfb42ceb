"""Training progress at a pace people can read: at most five reports per second."""

from __future__ import annotations

import time

from gnnflow.progress import Progress

SECONDS_BETWEEN = 0.2


class Ticker:
    """Reports steps done with speed and remaining time, measured since it was made."""

    def __init__(self, progress: Progress, name: str, *, done: int, total: int) -> None:
        self._progress = progress
        self._name = name
        self._total = total
        self._first = done
        self._started = time.monotonic()
        self._last = 0.0
        self._targets = 0

    def counts(self, done: int, *, num_targets: int, final: bool = False) -> bool:
        """Count a step's targets; return whether the last report is long enough ago, or this is the final one."""
        self._targets += num_targets
        return final or done >= self._total or time.monotonic() - self._last >= SECONDS_BETWEEN

    def tell(self, done: int, *, fields: dict[str, float], final: bool = False) -> None:
        """Report now."""
        self._last = now = time.monotonic()
        elapsed = max(now - self._started, 1e-9)
        remaining = 0.0 if final else elapsed / max(done - self._first, 1) * (self._total - done)
        speed = {"samples_per_second": self._targets / elapsed, "eta_seconds": remaining}
        self._progress.step(self._name, done, done if final else self._total, {**fields, **speed})
