"""Progress that long work reports: to the command line, a log of a task, or a test that stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


_PLAIN = {
    "trainer_waits_percent": "training waits for batches",
    "reader_waits_percent": "batches wait for training",
    "rank_waits_percent": "waits for other ranks",
    "need": "find rows for layer",
    "slice": "compute layer",
    "states": "partial sums, layer",
    "hop": "neighbours at hop",
}


def round_text(name: str) -> str:
    """Return the name of a round for people: `need_3` as `find rows for layer 3`."""
    first, _, rest = name.partition("_")
    return f"{_PLAIN[first]} {rest}" if first in _PLAIN and rest.isdigit() else name.replace("_", " ")


def figure_text(name: str, value: float) -> str:
    """Return a figure of a step for people: `trainer_waits_percent` and 12.3 as `training waits for batches 12 %`."""
    words = _PLAIN.get(name, name.removesuffix("_percent").replace("_", " "))
    return f"{words} {value:.0f} %" if name.endswith("_percent") else f"{words} {value:,.4g}"


def place_text(epoch: int, step: int) -> str:
    """Return a place in training for people, who count from 1: epoch 2 and step 4 as `epoch 3, step 5`."""
    return f"epoch {epoch + 1}, step {step + 1}"


class Progress(Protocol):
    """Receives events in the driver process, in order. Implementations must be quick and must not raise."""

    def stage_started(self, stage: str) -> None:
        """Report that a stage begins its work (it was not reused)."""

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        """Report that a round begins; num_done of its tasks were already committed by an earlier attempt."""

    def task_finished(self, name: str, index: int, counts: Mapping[str, float]) -> None:
        """Report that a task committed its output."""

    def round_finished(self, name: str, seconds: float) -> None:
        """Report that every task of a round is committed."""

    def step(self, name: str, done: int, total: int, fields: Mapping[str, float]) -> None:
        """Report progress inside a task without rounds (training): `done` of `total` steps, with figures to show."""

    def message(self, text: str) -> None:
        """Report something worth one line."""

    def stage_finished(self, stage: str, seconds: float, *, reused: bool) -> None:
        """Report that a stage's manifest is committed, or was found."""


class Silent:
    """A progress that shows nothing."""

    def stage_started(self, stage: str) -> None:
        """Ignore."""

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        """Ignore."""

    def task_finished(self, name: str, index: int, counts: Mapping[str, float]) -> None:
        """Ignore."""

    def round_finished(self, name: str, seconds: float) -> None:
        """Ignore."""

    def step(self, name: str, done: int, total: int, fields: Mapping[str, float]) -> None:
        """Ignore."""

    def message(self, text: str) -> None:
        """Ignore."""

    def stage_finished(self, stage: str, seconds: float, *, reused: bool) -> None:
        """Ignore."""
