"""Rows written to the exchange in the background, while a task computes the ones after them.

Each run of rows is a file of its own, which appears whole or not at all, so a task that dies leaves files that no
record names: it runs again and writes the same. `write_behind` returns when all are written, and the task's record,
which says how many files there are, comes after that.
"""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

from gnnflow.mapreduce.exchange import exchange_file, write_exchange

if TYPE_CHECKING:
    from collections.abc import Generator

    from gnnflow.mapreduce.exchange import Emit

_AT_ONCE = 2
"""How many files are written at the same time: one is compressed while another is on its way."""
_UNWRITTEN = 4
"""How many emits are written, or wait for it, before the task computes no further: memory holds no more of them."""


class ExchangeWriter:
    """Writes what one task sends. files: how many it wrote for each channel; num_bytes: of all."""

    def __init__(self, work: str, round_name: str, task: int, num_destinations: int) -> None:
        self._work, self._round, self._task = work, round_name, task
        self._num_destinations = num_destinations
        self.files: Counter[str] = Counter()
        self.num_bytes = 0

    def write(self, emit: Emit) -> None:
        """Write one emit."""
        self.num_bytes += write_exchange(self._next_file(emit.channel), emit, self._num_destinations)

    def write_behind(self, emits: Generator[Emit]) -> None:
        """Write emits while those after them are made; the first error of making or writing one is raised.

        No file is being written any more when this returns or raises.
        """
        unwritten: deque[Future[int]] = deque()
        # left from the right: waits for the writers, then leaves what the generator holds
        with closing(emits), ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="gnnflow-write") as threads:
            try:
                for emit in emits:
                    if len(unwritten) == _UNWRITTEN:
                        self.num_bytes += unwritten.popleft().result()
                    uri = self._next_file(emit.channel)
                    unwritten.append(threads.submit(write_exchange, uri, emit, self._num_destinations))
                self.num_bytes += sum(each.result() for each in unwritten)
            finally:
                threads.shutdown(cancel_futures=True)

    def _next_file(self, channel: str) -> str:
        number = self.files[channel]
        self.files[channel] += 1
        return exchange_file(self._work, self._round, channel, self._task, number)
