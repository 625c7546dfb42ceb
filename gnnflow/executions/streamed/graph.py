"""Reading a graph that is larger than memory: pieces of its edges, and rows of its nodes by interval.

Nodes are cut into intervals, runs of rows, and edges by the intervals of both ends into chunks; a chunk of many edges
is cut further, into pieces. The streamed execution says what is read and written and in which order; where it lies, in
files or elsewhere, is known to the `StreamedGraph` alone.

Shapes: n rows of an interval, K numbers per row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor

from gnnflow.executions.plan import TermLayout
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import empty_rows
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext

if TYPE_CHECKING:
    from gnnflow.executions.streamed.ring import Ring

T = TypeVar("T")

_RUN = {"cpu": 1 << 18, "cuda": 1 << 22}  # numbers: 1 MiB, or 16 so that a card has work for all of itself


EVERY = -1
"""In the place of a source interval: all of them, one after the other. An edge with leaves comes from several nodes,
which may be of several types."""


@dataclass(frozen=True)
class Piece:
    """Some edges of one relation from the nodes of one interval, or `EVERY`, to the nodes of another.

    number: tells it from the other pieces of its chunk. load: reads it as a block whose targets and sources are the
    active rows of the two intervals, behind its layer and before it. rows: where the sources are but some of `EVERY`,
    reads which of the rows of all intervals they are, ascending.
    """

    target: int
    source: int
    number: int
    num_edges: int
    load: Callable[[], BlockTensors]
    rows: Callable[[], Tensor] | None = None


@dataclass(frozen=True)
class GroupSizes:
    """Numbers of intervals that stay in memory together while an edge phase goes over a relation (`order.py`).

    targets: whose states grow in the forward pass. sources: whose terms have gradients that grow in the backward pass.
    """

    targets: int = 1
    sources: int = 1


class Rows(Protocol):
    """K numbers for each node, by interval. What is read or written is one run of memory [n K]."""

    def read(self, interval: int, columns: int | None = None) -> Tensor:
        """Return an interval's numbers as they were written last; or the first so many columns [n x columns].

        As a `TermLayout` splits a run, these lie before all others.
        """

    def write(self, interval: int, parts: Sequence[Tensor]) -> None:
        """Write an interval's numbers in the background: all parts, in order. The caller must not change them later.

        It may return before they are written; whoever reads them waits.
        """

    def release(self) -> None:
        """Note that nobody reads the rows again."""


class StreamedGraph(Protocol):
    """A graph whose parts are read when they are needed. ring: where several ranks have it, each some intervals."""

    @property
    def ring(self) -> Ring | None:
        """The ring by which source intervals of other ranks come; None where all intervals are here."""

    @property
    def sizes(self) -> Sequence[int]:
        """Numbers of nodes of each interval, of all ranks."""

    @property
    def types(self) -> Sequence[int]:
        """The type of each interval's nodes, by its number in the schema; every rank has as many intervals of each."""

    def active(self, level: int) -> Sequence[int]:
        """Return how many rows of each interval, its first ones, still reach a target after so many layers.

        Level 0 is what the first layer reads. Each level has some of the rows of the level before.
        """

    def num_edges(self, layer: int, relation: int = 0) -> int:
        """Return how many edges of a relation a layer aggregates, on all ranks."""

    def pieces(self, layer: int, relation: int = 0) -> Sequence[Piece]:
        """Return a relation's pieces of this rank's targets in the order of target, source (as it comes by) and number.

        Each interval of the type that the relation leads to has at least one.
        """

    def groups(self, layer: int, relation: int = 0) -> GroupSizes:
        """Return how many intervals of a relation's ends stay in memory together, on each rank."""

    def edge(self, layer: int, relation: int = 0) -> EdgeContext:
        """Return the columns of a relation's edges, of no edge."""

    def features(self, interval: int) -> FeatureTensors:
        """Read the input features of an interval's rows of level 0, of a type without any no columns.

        The caller may write to their memory.
        """

    def nodes(self, interval: int) -> NodeContext:
        """Read what the graph knows of an interval's nodes [n], of several relations [n, R]."""

    def rows(self, width: int, *, level: int, node_type: int | None = None) -> Rows:
        """Return room for so many numbers per row of a level, of this rank's intervals. node_type: None for all."""

    def source_rows(self, width: int, *, level: int, node_type: int | None = None) -> Rows:
        """Return room for sources' terms, as `rows` does: of all ranks' intervals, where ranks keep copies."""


@dataclass(frozen=True)
class Held:
    """Named tensors of all nodes."""

    columns: TermLayout
    rows: Rows | None

    @classmethod
    def room(
        cls,
        graph: StreamedGraph,
        like: Mapping[str, Tensor] | TermLayout,
        *,
        level: int,
        node_type: int | None = None,
        of_sources: bool = False,
    ) -> Held:
        """Return room for such tensors of a level's rows; none is asked for where they have no columns.

        node_type: of this type's rows alone. of_sources: edges read them.
        """
        columns = like if isinstance(like, TermLayout) else TermLayout.of(like)
        make = graph.source_rows if of_sources else graph.rows
        return cls(columns, make(columns.width, level=level, node_type=node_type) if columns.width else None)

    def empty(self, num_rows: int, device: torch.device) -> dict[str, Tensor]:
        """Return tensors for so many nodes that lie as they are written."""
        return self.columns.split(empty_rows(num_rows * self.columns.width, device=device))

    def read(self, interval: int) -> dict[str, Tensor]:
        """Return an interval's tensors."""
        return {} if self.rows is None else self.columns.split(self.rows.read(interval))

    def write(self, interval: int, tensors: Mapping[str, Tensor]) -> None:
        """Write an interval's tensors in the background."""
        if self.rows is not None:
            self.rows.write(interval, [tensors[name].detach().float() for name in self.columns.names])

    def release(self) -> None:
        """Give the room back."""
        if self.rows is not None:
            self.rows.release()


@dataclass(frozen=True)
class WithoutValues:
    """Source terms as a pass reads them that needs no values: of these it has zeros. sizes: rows of each interval."""

    held: Held
    sizes: Sequence[int]

    @classmethod
    def of(cls, held: Held, sizes: Sequence[int]) -> WithoutValues | Held:
        """Return the terms without their values, or all terms where others lie after the values."""
        return cls(held, sizes) if held.columns.names[-1:] == ("value",) else held

    def read(self, interval: int) -> dict[str, Tensor]:
        """Return an interval's tensors."""
        assert self.held.rows is not None
        columns = self.held.columns.without("value")
        run = self.held.rows.read(interval, columns.width)
        # the interval's terms without values, and zeros in their place that take no memory [n, H, D]
        zeros = run.new_zeros(()).expand(self.sizes[interval], *self.held.columns.shapes[-1])
        return {**columns.split(run), "value": zeros}


def _listed(load: Callable[[], T]) -> list[T]:
    return [load()]


@contextmanager
def read_ahead(loads: Iterable[Callable[[], T]], *, number: int = 1) -> Iterator[Iterator[T]]:
    """Give what some functions return, in their order; so many are called, each in a thread, before they are asked for.

    With two, one waits for the disk while what the other read is put in order.
    An error is raised where its result is taken. Leaving the block drops what was not taken. What was taken belongs to
    the caller alone: a thread that has not come to run since holds on to the list that it was in, which is empty.
    """
    coming = iter(loads)
    with ThreadPoolExecutor(number, thread_name_prefix="gnnflow-ahead") as thread:
        begun: deque[Future[list[T]]] = deque()

        def begin() -> None:
            for load in coming:
                begun.append(thread.submit(_listed, load))
                return

        def taken() -> Iterator[T]:
            while begun:
                result = begun.popleft().result().pop()
                begin()
                yield result
                del result  # not held until the next one is there

        for _ in range(number):
            begin()
        try:
            yield taken()
        finally:
            thread.shutdown(wait=True, cancel_futures=True)


def runs(num_rows: int, width: int, device: torch.device) -> Iterator[slice]:
    """Yield runs of rows that have so many numbers each, of which a run's lie in a processor's cache.

    What torch makes of a run is also small enough that the C library has its memory at hand. No rows are one run: what
    is learned of them has a gradient of zeros, and not none.
    """
    step = max(1, _RUN[device.type] // max(width, 1))
    for first in range(0, max(num_rows, 1), step):
        yield slice(first, min(first + step, num_rows))


def parts(held: Mapping[str, Tensor], rows: slice) -> dict[str, Tensor]:
    """Return a run of the rows of some tensors."""
    return {name: each[rows] for name, each in held.items()}


def joined(held: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return tensors of the same names one after the other."""
    return dict(held[0]) if len(held) == 1 else {name: torch.cat([each[name] for each in held]) for name in held[0]}


def sources_of(graph: StreamedGraph, node_type: int | None) -> Sequence[int]:
    """Return the source intervals of a type (None: of all) in the order in which a rank sees them."""
    every = range(len(graph.sizes)) if graph.ring is None else graph.ring.order
    return [each for each in every if node_type in (None, graph.types[each])]
