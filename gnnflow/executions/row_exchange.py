"""Sends rows between ranks, and their gradients back.

An `Exchange` moves runs of rows between ranks and knows nothing of graphs or gradients. A `Route` says which rows of
one layer go where. Under autograd the exchange of a layer is two steps, so that other work lies between them:

    departed = depart(exchange, route, terms)      begins to send
    ...                                            whatever needs no row of another rank
    terms = departed.arrive()                      waits

Each term goes by itself: rows are gathered where the other rank reads them, and may be read where they lie.

The backward pass takes them in the reverse order. The gradients of received rows leave for their owners where the rows
arrived, the work in between is differentiated meanwhile, and they are waited for where the rows departed: autograd
computes what was made last first. The work in between reads the terms that `departed.terms` holds: their gradients come
by there, and the gradients of other ranks are added to them row by row. All ranks must call the same exchanges
in the same order, forward and backward; a rank that has no row to send or receive takes part all the same.

Shapes: N rows at hand, S rows sent, M rows received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.executions.stages import UNTIMED, Stages
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.kernels import Csr, add_value_gradient, empty_rows


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

    def begin(
        self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int], places: Tensor | None = None
    ) -> Arriving:
        """Begin to send rows [S, ...] and to receive others [M, ...] of the same type and width.

        sent: how many of the rows go to each rank, one rank's after the other's; received: how many come of each.
        places [S]: where what is sent lies among the rows; None where they are all sent as they are.
        """


class OneRank:
    """Connects a rank that is alone: it gives back what it is given."""

    rank = 0
    size = 1

    def begin(
        self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int], places: Tensor | None = None
    ) -> Arriving:
        """Return the rows."""
        return _Arrived(rows if places is None else rows.index_select(0, places))


@dataclass(frozen=True)
class _Arrived:
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

    def begin(
        self, rows: Tensor, *, sent: Sequence[int], received: Sequence[int], places: Tensor | None = None
    ) -> Arriving:
        """Count the rows that leave this rank, and begin to send them."""
        self.sent_bytes += (sum(sent) - sent[self.rank]) * prod(rows.shape[1:]) * rows.element_size()
        return self.exchange.begin(rows, sent=sent, received=received, places=places)


def swapped(exchange: Exchange, rows: Array, *, sent: Sequence[int], received: Sequence[int]) -> Array:
    """Return the rows [M, K] that other ranks send this one, for rows [S, K] of it: without gradients, and at once."""
    found = exchange.begin(torch.from_numpy(rows), sent=sent, received=received).wait()
    arrived: Array = found.numpy().copy()  # kept: where it came there is room for the next
    return arrived


def told_by_all(exchange: Exchange, figures: IntArray) -> IntArray:
    """Return the figures of every rank [ranks, n]. figures: this rank's [n]."""
    ones = [1] * exchange.size
    return swapped(exchange, figures[None].repeat(exchange.size, 0), sent=ones, received=ones)


def joined(exchange: Exchange, rows: Array) -> Array:
    """Return the rows [n, K] of all ranks, one rank's after the other's, on each of them."""
    received = told_by_all(exchange, np.array([len(rows)], np.int64))[:, 0].tolist()
    # this rank's rows once for each rank [ranks x n, K]
    told = np.tile(rows, (exchange.size, 1))
    return swapped(exchange, told, sent=[len(rows)] * exchange.size, received=received)


@dataclass(frozen=True)
class Route:
    """The rows of one layer that each rank sends and receives.

    rows: an edge for each row that is sent, from its place among the rows at hand, rank by rank. sent and received: how
    many rows go to each rank and come from each.
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
    """Begin to send the route's rows of the terms [N, ...].

    stages: hears of the waiting, in both directions.
    """
    way, names = _Transfer(exchange, route, stages), sorted(terms)
    way.forth = {name: way.begun(terms[name].detach(), back=False) for name in names}
    way.learned = tuple(name for name in names if terms[name].requires_grad and torch.is_grad_enabled())
    token, *learned = _Depart.apply(way, *(terms[name] for name in way.learned))  # type: ignore[no-untyped-call]
    return Departed(way, token, {**terms, **dict(zip(way.learned, learned, strict=True))})


@dataclass(frozen=True)
class Departed:
    """Terms on their way to other ranks, and other ranks' terms on their way here. terms [N, ...]: unchanged."""

    way: _Transfer
    token: Tensor
    terms: dict[str, Tensor]

    def arrive(self) -> dict[str, Tensor]:
        """Wait, and return the terms of the received rows [M, ...]."""
        forth, self.way.forth = self.way.forth, {}
        found = self.way.waited(forth)
        rows = _Arrive.apply(self.way, self.token, *(found[name] for name in self.way.learned))  # type: ignore[no-untyped-call]
        return {**found, **dict(zip(self.way.learned, rows, strict=True))}


@dataclass
class _Transfer:
    """One exchange under autograd: what is under way in either direction, by term. learned: terms with a gradient."""

    exchange: Exchange
    route: Route
    stages: Stages
    learned: tuple[str, ...] = ()
    forth: dict[str, Arriving] = field(default_factory=dict)
    back: dict[str, Arriving] = field(default_factory=dict)

    def begun(self, rows: Tensor, *, back: bool) -> Arriving:
        """Begin to send rows of a term, or their gradients on the way back."""
        of = self.route
        if back:
            return self.exchange.begin(rows, sent=of.received, received=of.sent)
        return self.exchange.begin(rows, sent=of.sent, received=of.received, places=of.rows.sources)

    def waited(self, arriving: Mapping[str, Arriving]) -> dict[str, Tensor]:
        """Wait for rows."""
        self.stages.enter("mirrors")
        found = {name: each.wait() for name, each in arriving.items()}
        self.stages.enter("gather_sum")
        return found


class _Depart(Function):
    """Adds the gradients of the rows sent to the gradients of the terms [N, ...] in the backward pass."""

    @staticmethod
    def forward(ctx: Any, way: _Transfer, *terms: Tensor) -> tuple[Tensor, ...]:
        ctx.way = way
        token = terms[0].new_empty(0) if terms else torch.empty(0)
        return token, *(each.view_as(each) for each in terms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        way: _Transfer = ctx.way
        back, way.back = way.back, {}
        found = way.waited(back)
        return None, *(
            _with_rows(way.route, each, found[name]) for name, each in zip(way.learned, gradients, strict=True)
        )


def _with_rows(route: Route, gradient: Tensor, rows: Tensor) -> Tensor:
    """Return a gradient [N, ...] plus the gradients of the rows that were sent [S, ...]."""
    # the gradient [N, ...] in memory that is used again; then the rows that were sent are added to it
    width = prod(gradient.shape[1:])
    plain = gradient.dtype == torch.float32
    whole = empty_rows(*gradient.shape, device=gradient.device) if plain else torch.empty_like(gradient)
    whole.copy_(gradient)
    add_value_gradient(whole.view(len(whole), 1, width), route.rows, None, rows.reshape(len(rows), 1, width))
    return whole


class _Arrive(Function):
    """Stands where rows of other ranks [M, ...] arrived: their gradients leave from here."""

    @staticmethod
    def forward(ctx: Any, way: _Transfer, _: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        ctx.way = way
        return tuple(each.view_as(each) for each in rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        way: _Transfer = ctx.way
        way.back = {name: way.begun(each, back=True) for name, each in zip(way.learned, gradients, strict=True)}
        return None, gradients[0].new_empty(0), *[None] * len(gradients)
