"""Ranks as threads of one process, one of which computes at a time: what they exchange, and draw, is always the same.

A rank computes until it waits for rows that are not there yet; then it is the next one's turn. An error of one rank
ends all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Condition
from typing import Any

import torch
from torch import Tensor


class AbandonedError(Exception):
    """Another rank has failed, or has ended without taking part."""


class Table:
    """Where the ranks lay their rows."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turn = 0
        self.left: set[int] = set()
        self.failed = False
        self.laid: dict[int, dict[int, Sequence[Tensor]]] = {}  # by number of exchange, then rank
        self.moved_bytes = 0
        self.changed = Condition()

    def take_turn(self, rank: int) -> None:
        """Wait until it is this rank's turn."""
        self.changed.wait_for(lambda: self.turn == rank or self.failed)
        if self.failed:
            raise AbandonedError("another rank has failed")

    def pass_on(self, rank: int) -> None:
        """Give the turn to the next rank that is there."""
        others = [(rank + step) % self.size for step in range(1, self.size + 1)]
        self.turn = next((other for other in others if other not in self.left), rank)
        self.changed.notify_all()


@dataclass
class InProcess:
    """One rank's connection to the others."""

    table: Table
    rank: int
    calls: int = 0

    @property
    def size(self) -> int:
        return self.table.size

    def begin(self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int], places: Tensor | None = None) -> Any:
        rows = rows if places is None else rows[places]
        assert len(rows) == sum(sent), (len(rows), sent)
        number, self.calls = self.calls, self.calls + 1
        parts = [part.clone() for part in rows.split(list(sent))]
        with self.table.changed:
            self.table.laid.setdefault(number, {})[self.rank] = parts
            self.table.moved_bytes += sum(part.nbytes for to, part in enumerate(parts) if to != self.rank)
        return Arriving(self, number, list(received))


@dataclass
class Arriving:
    exchange: InProcess
    number: int
    expected: list[int]

    def wait(self) -> Tensor:
        table, rank = self.exchange.table, self.exchange.rank
        with table.changed:
            laid = table.laid[self.number]
            while len(laid) < table.size:
                if absent := table.left - laid.keys():
                    raise AbandonedError(f"ranks {absent} have ended without exchange {self.number}")
                table.pass_on(rank)
                table.take_turn(rank)
            found = [laid[other][rank] for other in range(table.size)]
        assert [len(part) for part in found] == self.expected
        return torch.cat(found)


def on_ranks(size: int, function: Callable[[InProcess], Any], *, table: Table | None = None) -> list[Any]:
    """Return what the function returns on each rank. Raises what a rank raised."""
    table, with_gradient = table or Table(size), torch.is_grad_enabled()

    def one(rank: int) -> Any:
        try:
            with table.changed:
                table.take_turn(rank)
            with torch.set_grad_enabled(with_gradient):
                return function(InProcess(table, rank))
        except BaseException:
            with table.changed:
                table.failed = True
            raise
        finally:
            with table.changed:
                table.left.add(rank)
                table.pass_on(rank)

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
        errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None and not isinstance(error, AbandonedError):
            raise error
    return [future.result() for future in futures]
