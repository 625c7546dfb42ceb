"""Progress on stderr: bars on a terminal, one line every few seconds elsewhere (a log, CI).

A bar takes one line of any terminal, also one of 80 columns: its name and count come first, then as many figures as
fit.
"""

from __future__ import annotations

import sys
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

from gnnflow.api.lines import STEPS, Lines, figures_text
from gnnflow.graph.secrets import mask_secrets
from gnnflow.progress import round_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.progress import TaskID

_NAME_WIDTH = 24
_BAR_WIDTH = 12
# Columns of a bar's other parts: spinner, bar, two times, and the gaps between all parts.
_FIXED_WIDTH = 34


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
            self.console.print(f"  {round_text(name)}: {num_done} of {num_tasks} tasks were already done")
        self._open[name] = self.bars.add_task(
            _short(round_text(name)), total=num_tasks, completed=num_done, figures="", unit="tasks"
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
            self._open[name] = self.bars.add_task(_short(name), total=total, figures="", unit=STEPS)
        taken = _FIXED_WIDTH + len(_short(name)) + 2 * len(str(total)) + len(STEPS) + 1
        shown = {key: value for key, value in fields.items() if key != "eta_seconds"}  # which has its own column
        figures = figures_text(shown, room=max(0, self.console.width - taken))
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


def open_progress() -> Terminal | Lines:
    """Return bars where stderr is a terminal, lines where it is not."""
    return Terminal() if sys.stderr.isatty() else Lines()
