"""A stage's progress as lines for a task log: stage, round, rows per second, time left; one every few seconds.

Once the work is no longer wanted, the next event raises `Stopped`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gnnflow.progress import figure_text, figure_texts, never, round_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS_BETWEEN = 5.0
_ROWS = ("rows", "rows_in", "rows_out", "pairs", "edges", "targets")
_OUTCOME = {"rows_in": "rows in", "rows_out": "rows out", "rows_quarantined": "rows in quarantine"}
_MIB = 2**20


class Stopped(BaseException):
    """The work is no longer wanted. Finished tasks stay, so that a later run resumes."""


class TaskLog:
    """Turns progress events into lines for `say`. Raises Stopped at the first event after `stopped()` is true."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        stopped: Callable[[], bool] = never,
        seconds_between: float = SECONDS_BETWEEN,
    ) -> None:
        self._say = say
        self._stopped = stopped
        self._seconds_between = seconds_between
        self._stage = ""
        self._last = time.monotonic()
        self._begin = time.monotonic()
        self._total = 0
        self._resumed = 0
        self._done = 0
        self._rows = 0
        self._memory = 0

    def check(self) -> None:
        """Raise Stopped where the work is no longer wanted."""
        if self._stopped():
            raise Stopped

    def stage_started(self, stage: str) -> None:
        """Say that a stage begins."""
        self.check()
        self._stage = stage
        self._say(f"{stage}: started")

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        """Start counting a round's tasks and rows."""
        self.check()
        self._begin = time.monotonic()
        self._total, self._done, self._resumed, self._rows = num_tasks, num_done, num_done, 0
        if num_done:
            self._say(f"{self._stage}, {round_text(name)}: {num_done} of {num_tasks} tasks were already done")

    def task_finished(self, name: str, index: int, counts: Mapping[str, float]) -> None:
        """Count a task; say so every few seconds."""
        self.check()
        self._done += 1
        found = [counts[key] for key in _ROWS if isinstance(counts.get(key), int)]
        self._rows += int(found[0]) if found else 0
        if self._due():
            elapsed = max(time.monotonic() - self._begin, 1e-9)
            left = elapsed / (self._done - self._resumed) * (self._total - self._done)
            speed = f", {self._rows / elapsed:,.0f} rows per second" if self._rows else ""
            text = f"{self._done} of {self._total} tasks{speed}, {figure_text('eta_seconds', left)}"
            self._say(f"{self._stage}, {round_text(name)}: {text}")

    def round_finished(self, name: str, seconds: float) -> None:
        """Say what a round took."""
        self.check()
        speed = f", {self._rows / seconds:,.0f} rows per second" if self._rows and seconds else ""
        self._say(f"{self._stage}, {round_text(name)}: {self._total} tasks in {seconds:.2f} s{speed}")

    def step(self, name: str, done: int, total: int, fields: Mapping[str, float]) -> None:
        """Say how far a long task is, every few seconds and at its end."""
        self.check()
        if self._due() or done == total:
            self._say(f"{self._stage}/{name}: {', '.join([f'{done:,} of {total:,} steps', *figure_texts(fields)])}")

    def message(self, text: str) -> None:
        """Pass a line on."""
        self.check()
        self._say(text)

    def count_memory(self, peak_bytes: int) -> None:
        """Take the largest resident size of a process that worked for the stage."""
        self._memory = max(self._memory, peak_bytes)

    def outcome(self, stage: str, outcome: Mapping[str, Any]) -> None:
        """Say what a stage read and made, and what it needed. outcome: its summary."""
        if outcome.get("reused"):
            return
        rows = [f"{outcome[key]:,} {words}" for key, words in _OUTCOME.items() if outcome.get(key) is not None]
        memory = f"at most {self._memory / _MIB:,.0f} MiB of memory in one process"
        self._say(f"{stage}: {', '.join([*rows, memory])}")

    def stage_finished(self, stage: str, seconds: float, *, reused: bool) -> None:
        """Say how a stage ended."""
        self._say(f"{stage}: already done, reused" if reused else f"{stage}: done in {seconds:.1f} s")

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds_between:
            return False
        self._last = now
        return True
