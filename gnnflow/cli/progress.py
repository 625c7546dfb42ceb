"""Progress on stderr: bars on a terminal, one line every few seconds elsewhere (a log, CI).

A bar takes one line of any terminal, also one of 80 columns: its name and count come first, then as many figures as
fit.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from gnnflow.graph.secrets import mask_secrets
from gnnflow.progress import figure_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.progress import TaskID

_LINE_SECONDS = 5.0
_NAME_WIDTH = 24
_STEPS = "steps"
_BAR_WIDTH = 12
# Columns of a bar's other parts: spinner, bar, two times, and the gaps between all parts.
_FIXED_WIDTH = 34


def _figures(fields: Mapping[str, float], *, room: int | None = None) -> str:
    """Return figures as text; with `room`, the first ones that fit that many columns."""
    shown = ""
    for name, value in fields.items():
        longer = f"{shown}  {figure_text(name, value)}".lstrip()
        if room is not None and len(longer) > room:
            break
        shown = longer
    return shown


def _one_line() -> Column:
    return Column(no_wrap=True, overflow="ellipsis")


def _short(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"


class Terminal:
    """Rich bars: one per round or training run, replaced by a line when it is done."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.bars = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}", table_column=_one_line()),
            BarColumn(bar_width=_BAR_WIDTH),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}", table_column=_one_line()),
            TimeElapsedColumn(table_column=_one_line()),
            TimeRemainingColumn(compact=True, table_column=_one_line()),
            TextColumn("{task.fields[figures]}", table_column=_one_line()),
            console=self.console,
            transient=True,
        )
        self._open: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        """Start drawing."""
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop drawing."""
        self.bars.stop()

    def stage_started(self, stage: str) -> None:
        """Print the stage's name above its bars."""
        self.console.print(f"[bold cyan]{stage}[/]")

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        """Open a bar."""
        if num_done:
            self.console.print(f"  {name}: resuming, {num_done} of {num_tasks} tasks were already done")
        self._open[name] = self.bars.add_task(
            _short(name), total=num_tasks, completed=num_done, figures="", unit="tasks"
        )

    def task_finished(self, name: str, index: int, counts: Mapping[str, float]) -> None:
        """Advance the bar."""
        del index, counts
        self.bars.advance(self._open[name])

    def round_finished(self, name: str, seconds: float) -> None:
        """Close the bar."""
        del seconds
        self._close(name)

    def step(self, name: str, done: int, total: int, fields: Mapping[str, float]) -> None:
        """Draw progress inside one task."""
        if name not in self._open:
            self._open[name] = self.bars.add_task(_short(name), total=total, figures="", unit=_STEPS)
        taken = _FIXED_WIDTH + len(_short(name)) + 2 * len(str(total)) + len(_STEPS) + 1
        figures = _figures(fields, room=max(0, self.console.width - taken))
        self.bars.update(self._open[name], completed=done, total=total, figures=figures)

    def message(self, text: str) -> None:
        """Print one line."""
        self.console.print(f"  {mask_secrets(text)}", highlight=False, markup=False)

    def stage_finished(self, stage: str, seconds: float, *, reused: bool) -> None:
        """Close the open bars and print the stage's time."""
        for name in list(self._open):
            self._close(name)
        how = "already done, reused" if reused else f"done in {seconds:.1f} s"
        self.console.print(f"[bold green]{stage}[/] {how}", highlight=False)

    def _close(self, name: str) -> None:
        if name in self._open:
            self.bars.remove_task(self._open.pop(name))


class Lines:
    """Plain lines: each stage and round once, and long work every few seconds."""

    def __init__(self) -> None:
        self._last = 0.0

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
        if num_done:
            self.message(f"{name}: resuming, {num_done} of {num_tasks} tasks were already done")

    def task_finished(self, name: str, index: int, counts: Mapping[str, float]) -> None:
        """Print a line, at most every few seconds."""
        if self._due():
            self.message(
                f"{name}: task {index} done  {_figures({k: v for k, v in counts.items() if isinstance(v, int)})}"
            )

    def round_finished(self, name: str, seconds: float) -> None:
        """Print the round's time."""
        self.message(f"{name}: {seconds:.2f} s")

    def step(self, name: str, done: int, total: int, fields: Mapping[str, float]) -> None:
        """Print a line, at most every few seconds, and the last."""
        if self._due() or done == total:
            self.message(f"{name}: {done}/{total} {_STEPS}  {_figures(fields)}")

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


def open_progress() -> Terminal | Lines:
    """Return bars where stderr is a terminal, lines where it is not."""
    return Terminal() if sys.stderr.isatty() else Lines()
