"""Progress as plain lines, for a log, CI or a notebook: each stage and round once, long work every few seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from gnnflow.graph.secrets import mask_secrets
from gnnflow.progress import figure_texts, round_text

if TYPE_CHECKING:
    from collections.abc import Mapping

STEPS = "steps"
_LINE_SECONDS = 5.0


def figures_text(fields: Mapping[str, float], *, room: int | None = None) -> str:
    """Return figures as text; with `room`, the first ones that fit that many columns."""
    shown = ""
    for text in figure_texts(fields):
        longer = f"{shown}, {text}" if shown else text
        if room is not None and len(longer) > room:
            break
        shown = longer
    return shown


class Lines:
    """Plain lines: each stage and round once, and long work every few seconds."""

    def __init__(self) -> None:
        self._last = 0.0
        self._done, self._total = 0, 0

    def __enter__(self) -> Self:
        """Nothing to start."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to stop."""

    def stage_started(self, stage: str) -> None:
        """Print the stage's name."""
        self.message(f"{stage}: started")

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        """Print the number of tasks that an earlier attempt finished."""
        self._done, self._total = num_done, num_tasks
        if num_done:
            self.message(f"{round_text(name)}: {num_done} of {num_tasks} tasks were already done")

    def task_finished(self, name: str, index: int, counts: Mapping[str, float]) -> None:
        """Print a line, at most every few seconds."""
        del index
        self._done += 1
        if self._due():
            parts = [f"{value:,} {key.replace('_', ' ')}" for key, value in counts.items() if isinstance(value, int)]
            last = f", the last one with {', '.join(parts)}" if parts else ""
            self.message(f"{round_text(name)}: {self._done} of {self._total} tasks done{last}")

    def round_finished(self, name: str, seconds: float) -> None:
        """Print the round's time."""
        self.message(f"{round_text(name)}: {seconds:.2f} s")

    def step(self, name: str, done: int, total: int, fields: Mapping[str, float]) -> None:
        """Print a line, at most every few seconds, and the last."""
        if self._due() or done == total:
            figures = figures_text(fields)
            self.message(f"{name}: {done:,} of {total:,} {STEPS}{figures and ', '}{figures}")

    def message(self, text: str) -> None:
        """Print one line."""
        sys.stderr.write(f"{mask_secrets(text)}\n")

    def stage_finished(self, stage: str, seconds: float, *, reused: bool) -> None:
        """Print the stage's time."""
        self.message(f"{stage}: already done, reused" if reused else f"{stage}: done in {seconds:.1f} s")

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._last < _LINE_SECONDS:
            return False
        self._last = now
        return True
