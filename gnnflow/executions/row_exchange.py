"""Rows that go between ranks, with their gradients on the way back.

An `Exchange` moves runs of rows between ranks and knows nothing of graphs or gradients. A `Route` says which rows of
one layer go where. Under autograd the exchange of a layer is two steps, so that other work lies between them:

    departed = depart(exchange, route, terms)      begins to send
    ...                                            whatever needs no row of another rank
    terms = departed.arrive()                      waits

The backward pass takes them in the reverse order. The gradients of received rows leave for their owners where the rows
arrived, the work in between is differentiated meanwhile, and they are waited for where the rows departed: autograd
computes what was made last first. All ranks must call the same exchanges in the same order, forward and backward; a
rank that has no row to send or receive takes part all the same.

Shapes: N rows at hand, S rows sent, M rows received, K packed width of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.executions.stages import UNTIMED, Stages
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.kernels import Csr, gather_sources


class Arriving(Protocol):
    """Rows on their way."""

    def wait(self) -> Tensor:
        """Return the rows from all ranks, one rank's after the other's. Raises where another rank is gone."""


class Exchange(Protocol):
    """One rank's connection to the others. All ranks call it as often and in the same order."""

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def begin(self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int]) -> Arriving:
        """Begin to send rows [S, K] and to receive others [M, K] of the same type.

        sent: how many of the rows go to each rank, one rank's after the other's; received: how many come of each.
        """


class OneRank:
    """Connects a rank that is alone: it gives back what it is given."""

    rank = 0
    size = 1

    def begin(self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int]) -> Arriving:
        """Return the rows."""
        return _Here(rows)


@dataclass(frozen=True)
class _Here:
    rows: Tensor

    def wait(self) -> Tensor:
        return self.rows


@dataclass
class Counted:
    """A connection that counts what it sends to other ranks. sent_bytes: since it was made, in either direction."""

    exchange: Exchange
    sent_bytes: int = 0

    @property
    def rank(self) -> int:
        """Number of this rank."""
        return self.exchange.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.exchange.size

    def begin(self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int]) -> Arriving:
        """Count the rows that leave this rank, and begin to send them."""
        self.sent_bytes += (sum(sent) - sent[self.rank]) * prod(rows.shape[1:]) * rows.element_size()
        return self.exchange.begin(rows, sent=sent, received=received)


def swapped(exchange: Exchange, rows: Array, *, sent: Sequence[int], received: Sequence[int]) -> Array:
    """Return the rows [M, K] that other ranks send this one, for rows [S, K] of it: without gradients, and at once."""
    found = exchange.begin(torch.from_numpy(rows), sent=sent, received=received).wait()
    arrived: Array = found.numpy()
    return arrived


def told_by_all(exchange: Exchange, figures: IntArray) -> IntArray:
    """Return what every rank tells the others [ranks, n]. figures: of this one [n]."""
    ones = [1] * exchange.size
    return swapped(exchange, figures[None].repeat(exchange.size, 0), sent=ones, received=ones)


@dataclass(frozen=True)
class Route:
    """Which rows of one layer go where.

    rows: an edge for each row that is sent, from its place among the rows at hand, rank by rank. sent and received: how
    many go to each rank and come of each.
    """

    rows: Csr
    sent: tuple[int, ...]
    received: tuple[int, ...]

    @classmethod
    def of(cls, rows: Tensor, *, num_rows: int, sent: Sequence[int], received: Sequence[int]) -> Route:
        """Return the route of rows [S] among num_rows."""
        each = Csr(torch.arange(len(rows) + 1), rows, num_rows)
        return cls(each, tuple(sent), tuple(received))


def depart(exchange: Exchange, route: Route, terms: Mapping[str, Tensor], *, stages: Stages = UNTIMED) -> Departed:
    """Begin to send the route's rows of some terms [N, ...], all of them as one packed row.

    stages: hears of the waiting, in both directions.
    """
    layout = _Layout.of(terms)
    packed = gather_sources(route.rows, layout.packed(terms))
    way = _Way(exchange, route, stages)
    return Departed(way, layout, cast("Tensor", _Depart.apply(way, packed)))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Departed:
    """Terms on their way to other ranks, and those of other ranks on their way here."""

    way: _Way
    layout: _Layout
    token: Tensor

    def arrive_packed(self) -> Tensor:
        """Wait, and return the received rows as they came [M, K]."""
        return cast("Tensor", _Arrive.apply(self.way, self.token))  # type: ignore[no-untyped-call]

    def arrive(self) -> dict[str, Tensor]:
        """Wait, and return the terms of the received rows [M, ...]."""
        return self.layout.unpacked(self.arrive_packed())


@dataclass(frozen=True)
class _Layout:
    """How terms lie in a packed row: side by side in the order of their names, in the widest of their types."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, terms: Mapping[str, Tensor]) -> _Layout:
        names = tuple(sorted(terms))
        return cls(names, tuple(tuple(terms[name].shape[1:]) for name in names), tuple(terms[n].dtype for n in names))

    def packed(self, terms: Mapping[str, Tensor]) -> Tensor:
        columns = [
            terms[name].reshape(len(terms[name]), prod(shape))
            for name, shape in zip(self.names, self.shapes, strict=True)
        ]
        return columns[0] if len(columns) == 1 else torch.cat(columns, 1)

    def unpacked(self, rows: Tensor) -> dict[str, Tensor]:
        parts = torch.split(rows, [prod(shape) for shape in self.shapes], 1)
        return {
            name: part.reshape(len(rows), *shape).to(dtype)
            for name, shape, dtype, part in zip(self.names, self.shapes, self.dtypes, parts, strict=True)
        }


@dataclass
class _Way:
    """One exchange under autograd: what is under way in either direction."""

    exchange: Exchange
    route: Route
    stages: Stages
    forth: Arriving | None = None
    back: Arriving | None = field(default=None)

    def waited(self, rows: Arriving) -> Tensor:
        """Wait for rows."""
        self.stages.enter("mirrors")
        found = rows.wait()
        self.stages.enter("gather_sum")
        return found


class _Depart(Function):
    """Begins to send rows [S, K]; its result, of no columns, ties the arrival to it."""

    @staticmethod
    def forward(ctx: Any, way: _Way, rows: Tensor) -> Tensor:
        ctx.way = way
        route = way.route
        way.forth = way.exchange.begin(rows.contiguous(), sent=route.sent, received=route.received)
        return rows.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[None, Tensor]:
        assert ctx.way.back is not None
        rows = ctx.way.waited(ctx.way.back)
        ctx.way.back = None
        return None, rows


class _Arrive(Function):
    """Waits for the rows of other ranks [M, K]."""

    @staticmethod
    def forward(ctx: Any, way: _Way, _: Tensor) -> Tensor:
        ctx.way = way
        assert way.forth is not None
        rows = way.waited(way.forth)
        way.forth = None
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        way = ctx.way
        way.back = way.exchange.begin(grad.contiguous(), sent=way.route.received, received=way.route.sent)
        return None, grad.new_empty(0)
