"""Progress that long work reports: to the command line, a log of a task, or a test that stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


def never() -> bool:
    """Return False: the work is still wanted. Default of functions that ask whether to stop."""
    return False


_ROUNDS = {
    "need": "find rows for layer",
    "slice": "compute layer",
    "states": "partial sums, layer",
    "hop": "neighbours at hop",
}
_WHOLE_ROUNDS = {
    "columns_fit": "find how columns are encoded",
    "nodes_read": "read nodes",
    "nodes_sort": "sort nodes by id",
    "nodes_statistics": "distributions of columns",
    "nodes_write": "write nodes",
    "edges_read": "read edges",
    "edges_src": "look up sources of edges",
    "edges_dst": "look up destinations of edges",
    "edges_build": "sort edges by destination",
    "degrees": "count edges of nodes",
    "labels_read": "read labels",
    "targets": "find targets",
    "place": "place targets in shards",
    "nodes": "send rows of nodes to shards",
    "shards": "write shards",
    "select": "choose neighbours",
}
_FIGURES = {
    "samples_per_second": "{:,.0f} targets per second",
    "eta_seconds": "about {} left",
    # two sides work at the same time, and one of them waits for the other
    "trainer_waits_percent": "computing stands still {:.0f} % of the time, until a batch is read",
    "reader_waits_percent": "reading stands still {:.0f} % of the time, as batches are ready early",
    "rank_waits_percent": "computing stands still {:.0f} % of the time, until other ranks answer",
}
_MINUTE, _LONG = 60, 100


def round_text(name: str) -> str:
    """Return the name of a round for people: `need_3` as `find rows for layer 3`."""
    if name in _WHOLE_ROUNDS:
        return _WHOLE_ROUNDS[name]
    first, _, rest = name.partition("_")
    return f"{_ROUNDS[first]} {rest}" if first in _ROUNDS and rest.isdigit() else name.replace("_", " ")


def figure_texts(fields: Mapping[str, float]) -> list[str]:
    """Return the figures of a step for people; `epoch` 3 and `epochs` 60 are one, `epoch 3 of 60`."""
    last = f" of {fields['epochs']:,.0f}" if "epochs" in fields else ""
    return [
        f"epoch {value:,.0f}{last}" if name == "epoch" else figure_text(name, value)
        for name, value in fields.items()
        if name != "epochs"
    ]


def figure_text(name: str, value: float) -> str:
    """Return a figure of a step for people, with its unit: `eta_seconds` and 12.3 as `about 12 s left`."""
    if name in _FIGURES:
        return _FIGURES[name].format(_time_text(value) if name == "eta_seconds" else value)
    words = name.removesuffix("_percent").replace("_", " ")
    return f"{words} {value:.0f} %" if name.endswith("_percent") else f"{words} {value:,.4g}"


def _time_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _LONG else f"{seconds / _MINUTE:,.0f} min"


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
