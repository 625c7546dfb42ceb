"""Sends every epoch's row to the sinks of learning curves, and training waits for none of them.

A `Sink` is a file, TensorBoard or a tracking server. Each has one thread, so one that is slow or gone delays
neither training nor the others; its first failure ends it and is logged once. What a curve shows decides no result.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from gnnflow.storage.writing import replace_file
from gnnflow.train.state import Row

SECONDS_BETWEEN = 1.0
_SHARE = 20
"""After a write a sink rests so many times as long as it took: rewriting a long file stays a twentieth of the time."""
_LAST_SECONDS = 30.0

FitRow = tuple[str, Row]


class Sink(Protocol):
    """Something that shows rows. Its methods are called from one thread, in order."""

    def write(self, rows: Sequence[FitRow]) -> None:
        """Show epochs of fits. A fit that goes on after a kill gives all of its epochs again, with equal values."""

    def close(self, *, finished: bool) -> None:
        """End; finished says that training did not fail."""


class EpochLog(Protocol):
    """Takes the rows of the training loop."""

    def epochs(self, fit: str, rows: Iterable[Row]) -> None:
        """Take a fit's rows: its checkpoint's as it begins, then each epoch's."""


class NoLog:
    """Takes rows and shows them nowhere."""

    def epochs(self, fit: str, rows: Iterable[Row]) -> None:
        """Ignore."""


class Curves:
    """Gives rows to sinks by name. Leaving the `with` block waits for what is under way, half a minute at most."""

    def __init__(self, sinks: Mapping[str, Sink], *, say: Callable[[str], None]) -> None:
        self._feeders = [_Feeder(name, sink) for name, sink in sinks.items()]
        self._say = say

    def __enter__(self) -> Self:
        """Start the sinks' threads."""
        for feeder in self._feeders:
            feeder.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show what is left and close the sinks."""
        for feeder in self._feeders:
            feeder.end(finished=kind is None)
        deadline = time.monotonic() + _LAST_SECONDS
        for feeder in self._feeders:
            feeder.thread.join(max(0.0, deadline - time.monotonic()))
        if kind is None:
            self._tell()

    def epochs(self, fit: str, rows: Iterable[Row]) -> None:
        """Hand rows to every sink and return."""
        taken = [(fit, row) for row in rows]
        for feeder in self._feeders:
            feeder.add(taken)
        self._tell()

    def _tell(self) -> None:
        for feeder in self._feeders:
            if problem := feeder.failure_text():
                self._say(problem)


class _Feeder:
    """One sink, its thread, and what it has not shown yet."""

    def __init__(self, name: str, sink: Sink) -> None:
        self._name, self._sink = name, sink
        self._change = threading.Condition()
        self._rows: list[FitRow] = []
        self._ending, self._finished = False, False
        self._problem, self._ended = "", False
        self.thread = threading.Thread(target=self._work, name=f"gnnflow-{name}", daemon=True)

    def add(self, rows: Sequence[FitRow]) -> None:
        """Queue rows for the sink, unless it has failed."""
        with self._change:
            if not self._ended:
                self._rows += rows
                self._change.notify()

    def end(self, *, finished: bool) -> None:
        """Let the sink show the last rows and close it."""
        with self._change:
            self._ending, self._finished = True, finished
            self._change.notify()

    def failure_text(self) -> str:
        """Return, once, why the sink has stopped; an empty text while it works."""
        problem, self._problem = self._problem, ""
        if not problem and self._ending and self.thread.is_alive():
            return f"{self._name} did not answer for {_LAST_SECONDS:.0f} s and may lack the curves' last epochs"
        return problem

    def _work(self) -> None:
        try:
            while rows := self._next():
                begin = time.monotonic()
                self._sink.write(rows)
                took = time.monotonic() - begin
                with self._change:
                    self._change.wait_for(lambda: self._ending, max(SECONDS_BETWEEN, _SHARE * took))
            self._sink.close(finished=self._finished)
        except Exception as error:  # noqa: BLE001 - of a library's own kinds; no curve is worth a training run
            with self._change:
                self._ended, self._rows = True, []
            self._problem = f"learning curves are no longer sent to {self._name} ({type(error).__name__}: {error})"

    def _next(self) -> list[FitRow]:
        """Wait for rows and return them; none at the end."""
        with self._change:
            self._change.wait_for(lambda: self._rows or self._ending)
            taken, self._rows = self._rows, []
            return taken


class HistoryFile:
    """All rows so far as JSON lines, `{"fit": ..., "epoch": ..., ...}`, the file replaced as a whole."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lines: dict[tuple[str, float], bytes] = {}

    def write(self, rows: Sequence[FitRow]) -> None:
        """Add rows, each in place of one of the same fit and epoch."""
        for fit, row in rows:
            self._lines[fit, row["epoch"]] = json.dumps({"fit": fit, **row}).encode() + b"\n"
        replace_file(self._uri, b"".join(self._lines.values()), durable=False)

    def close(self, *, finished: bool) -> None:
        """Leave the file."""
