"""Source terms of an edge phase, and their gradients: read and written here, or sent round a ring (`ring.py`).

A thread passes terms on to the next rank while this one computes on them, and in the backward pass adds the rank's
parts of their gradients to what came from the rank before.

Shapes: n rows of an interval, K numbers per row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from threading import Condition, Thread
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from gnnflow.executions.row_exchange import Arriving
from gnnflow.executions.streamed.graph import Held, StreamedGraph, read_ahead
from gnnflow.executions.streamed.ring import Ring
from gnnflow.kernels import empty_rows


@dataclass(frozen=True)
class LocalTerms:
    """Source terms and their gradients of which every interval is read and written here."""

    terms: Held
    gradients: Held

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave all as it is."""


def passing_terms(
    graph: StreamedGraph,
    node_type: int | None,
    terms: Held,
    wanted: Sequence[Sequence[int]],
    gradients: Held | None = None,
    *,
    together: int = 1,
) -> LocalTerms | Relay:
    """Return the source terms that an edge phase reads as they come by, and where it writes their gradients.

    node_type: of the sources, None for all. wanted: the intervals that are read, by round; every round passes all of
    them on. gradients: room for the rank's own sources' in the end; there is one round then, in which every
    interval's part is written. together: so many intervals are taken before the first one's part is.
    """
    ring = graph.ring
    passed = [] if ring is None else [node_type in (None, graph.types[each]) for each in ring.own]
    if ring is None or terms.rows is None or not any(passed):
        return LocalTerms(terms, gradients or terms)
    numbers = tuple(number for number, is_passed in enumerate(passed) if is_passed)
    return Relay(replace(ring, passed=numbers), terms, wanted, gradients, together=together)


class _StoppedError(Exception):
    """The rank has failed elsewhere: nobody takes what comes by any more."""


class Relay:
    """Passes source terms on in a thread, and sums their gradients.

    At most one interval that is not asked for yet is held, besides one on its way here and one of this rank's read
    ahead. Leaving the block waits until all gradients are at home; after an error nobody is waited for.
    """

    def __init__(
        self, ring: Ring, terms: Held, wanted: Sequence[Sequence[int]], gradients: Held | None, *, together: int
    ) -> None:
        assert terms.rows is not None
        self._together = together
        self.ring, self._wanted, self._width = ring, wanted, terms.columns.width
        self._from, self._sums = terms.rows, None if gradients is None else gradients.rows
        self.terms = Held(terms.columns, _PassingTerms(self))
        self.gradients = Held(terms.columns, _RingSums(self))
        self._changed = Condition()
        self._offered: dict[int, Tensor] = {}
        self._parts: deque[Tensor] = deque()  # of gradients, in the order of turns
        self._sum: Arriving | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="gnnflow-ring", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until nothing is under way, or say that nobody waits any more."""
        if error is not None:
            self._fail(_StoppedError())
            return
        self._thread.join()
        if self._error is not None:
            raise self._error

    def take(self, interval: int) -> Tensor:
        """Return an interval's numbers when they come by. Raises what passing on has raised."""
        with self._changed:
            self._changed.wait_for(lambda: interval in self._offered or self._error)
            if self._error is not None:
                raise self._error
            self._changed.notify_all()
            return self._offered.pop(interval)

    def add(self, part: Tensor) -> None:
        """Add this rank's part of the gradients of the next interval to the sum."""
        with self._changed:
            self._parts.append(part)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            with torch.no_grad():
                kept = self.ring.copies and self._sums is not None  # since the forward pass
                for wanted in self._wanted:
                    self._run_turns(frozenset(wanted), kept=kept)
                    kept = self.ring.copies
        except BaseException as error:  # noqa: BLE001 - raised where the rows are taken
            self._fail(error)

    def _run_turns(self, wanted: frozenset[int], *, kept: bool) -> None:
        coming = self._read_intervals(wanted) if kept else self._pass_intervals()
        with closing(coming):
            for turn, (interval, run) in enumerate(coming):
                if run is not None and interval in wanted:
                    self._offer(interval, run)
                del run  # before the next one comes
                if self._sums is not None and turn >= self._together:
                    self._reduce(turn - self._together)
        if self._sums is not None:
            turns = len(self.ring.order)
            for turn in range(max(0, turns - self._together), turns):
                self._reduce(turn)
            self._write_sum(turns)

    def _read_intervals(self, wanted: frozenset[int]) -> Generator[tuple[int, Tensor | None]]:
        """Yield every interval of a round, and its numbers where it is wanted, all of them read by this rank."""
        order = self.ring.order
        with read_ahead([partial(self._from.read, each) for each in order if each in wanted]) as found:
            for interval in order:
                yield interval, next(found) if interval in wanted else None

    def _pass_intervals(self) -> Generator[tuple[int, Tensor | None]]:
        """Yield every interval of a round as it comes by, on its way to the next rank."""
        ring, coming = self.ring, None
        with read_ahead([partial(self._from.read, each) for each in ring.sent]) as found:
            for turn, interval in enumerate(ring.order):
                if interval in ring.own:
                    run = next(found)
                else:
                    assert coming is not None
                    run = coming.wait()
                if not ring.ends(turn):
                    coming = ring.send(run, turn, width=self._width)
                if ring.copies and interval not in ring.own:
                    self._from.write(interval, [run])
                yield interval, run
                del run

    def _offer(self, interval: int, run: Tensor) -> None:
        """Wait until the interval is taken."""
        with self._changed:
            self._offered[interval] = run
            self._changed.notify_all()
            self._changed.wait_for(lambda: interval not in self._offered or self._error)
            if self._error is not None:
                raise self._error

    def _reduce(self, turn: int) -> None:
        """Send this rank's part of a turn's gradients on, with what came of them."""
        with self._changed:
            self._changed.wait_for(lambda: self._parts or self._error)
            if self._error is not None:
                raise self._error
            part = self._parts.popleft()
        if self.ring.order[turn] in self.ring.own:
            self._write_sum(turn)
        else:
            assert self._sum is not None
            part.add_(self._sum.wait())
        self._sum = self.ring.send(part, turn, width=self._width)

    def _write_sum(self, turn: int) -> None:
        """Write the gradients of the rank's own interval that ended at the rank before in the last turn."""
        if self._sum is None:
            return
        assert self._sums is not None
        home = self.ring.sent[turn // self.ring.exchange.size - 1]
        self._sums.write(home, [self._sum.wait()])
        self._sum = None


@dataclass(frozen=True)
class _PassingTerms:
    """Terms by interval, as they come by."""

    relay: Relay

    def read(self, interval: int, columns: int | None = None) -> Tensor:
        """Return an interval's numbers, once."""
        assert columns is None, "terms that come by are taken whole"
        return self.relay.take(interval)

    def write(self, interval: int, parts: Sequence[Tensor]) -> None:
        """Refuse: terms are written where they are computed."""
        raise AssertionError("terms that come by are not written")

    def release(self) -> None:
        """Do nothing: the terms themselves are of their owner."""


@dataclass(frozen=True)
class _RingSums:
    """Gradients by interval: this rank writes its part of them."""

    relay: Relay

    def read(self, interval: int, columns: int | None = None) -> Tensor:
        """Raise: a sum is not known before it is back at its owner."""
        raise AssertionError("gradients that go by are not read")

    def write(self, interval: int, parts: Sequence[Tensor]) -> None:
        """Add a part of an interval's gradients to the sum; intervals come in their order."""
        flat = [part.reshape(-1) for part in parts]
        # in memory that serves again: of others' sizes, they would leave holes in what the C library has
        into = empty_rows(sum(map(len, flat)), device=flat[0].device)
        self.relay.add(torch.cat(flat, out=into))

    def release(self) -> None:
        """Do nothing: the sums themselves are of their owner."""
