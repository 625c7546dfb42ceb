"""The same graph for a model on a graphics card.

Rows and edges stay with the machine, and pieces of them come to the card.

    card = Card(device)
    graph = CardGraph.of(files, card)          a `StreamedGraph` whose tensors are on the card

What is read comes through page-locked memory, on a stream for copies alone: the threads that read ahead wait for their
copies, the thread that computes does not. What is written goes back on another stream, and the thread that writes
waits. All memory of the card belongs to the stream that computes: a copy begins behind what was asked of the
card before it, so it never fills memory that is still read. The processor may run ahead of the card.

Edges travel as they lie in files (`packed.py`), at 4 bytes a number.

Shapes: n rows of an interval, K numbers per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from gnnflow.executions.moving import beside, mapped
from gnnflow.executions.streamed import GroupSizes, Piece, Ring
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext
from gnnflow.train.streamed.files import NodeFile, Scratch, ScratchFile
from gnnflow.train.streamed.graph import FileGraph, node_context
from gnnflow.train.streamed.packed import packed

_PACKING = 4  # pieces that are read and sorted at once, each in a thread


@dataclass(frozen=True)
class Card:
    """Copies between page-locked memory and one device. On the CPU they are plain copies."""

    device: torch.device
    _streams: list[torch.cuda.Stream] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make one stream of copies for each way."""
        if self.device.type == "cuda":
            self._streams.extend(torch.cuda.Stream(self.device) for _ in range(2))  # type: ignore[no-untyped-call]

    def fetched(self, held: Tensor) -> Tensor:
        """Return a copy on the device, which is there when this returns. held: page-locked, or it is copied twice."""
        if not self._streams:
            return held.to(self.device, copy=True)
        with torch.cuda.device(self.device):
            here, inward = torch.empty(held.shape, dtype=held.dtype, device=self.device), self._streams[0]
            inward.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(inward):
                here.copy_(held if held.is_pinned() else held.pin_memory(), non_blocking=True)
            inward.record_event().synchronize()
        return here

    def run(self, file: ScratchFile, at: int, num_bytes: int) -> Tensor:
        """Return whole numbers of 4 bytes that lie in a file, on the device."""
        return self.fetched(file.lent(at, num_bytes).view(torch.int32))

    def sent(self, parts: Sequence[Tensor], into: Tensor) -> Callable[[], None]:
        """Begin to copy tensors of the device into page-locked memory [K n], one behind the other.

        Returns what waits until they are there. The tensors must not change before.
        """
        flat = [part.reshape(-1) for part in parts]
        runs = torch.split(into, [len(part) for part in flat])
        if not self._streams:
            for run, part in zip(runs, flat, strict=True):
                run.copy_(part)
            return lambda: None
        outward = self._streams[1]
        outward.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(outward):
            for run, part in zip(runs, flat, strict=True):
                run.copy_(part, non_blocking=True)
        return partial(_wait, outward.record_event(), flat)


def _wait(done: torch.cuda.Event, parts: Sequence[Tensor]) -> None:
    """Wait for copies, and hold what they read until then."""
    done.synchronize()
    del parts


@dataclass(frozen=True)
class CardRows:
    """K numbers for each node that lie with the machine: `gnnflow.executions.streamed.graph.Rows` on a card."""

    held: NodeFile
    card: Card

    def read(self, interval: int, columns: int | None = None) -> Tensor:
        """Return an interval's numbers [n K], or the first so many columns of them."""
        held = self.held.lent(interval)
        return self.card.fetched(held if columns is None else held[: self.held.active[interval] * columns])

    def write(self, interval: int, parts: Sequence[Tensor]) -> None:
        """Have an interval's numbers copied back, and written where they lie in a file."""
        self.held.fill_by(interval, partial(self.card.sent, parts))

    def release(self) -> None:
        """Give the room back."""
        self.held.release()


@dataclass(frozen=True)
class CardGraph:
    """A graph in files as a `StreamedGraph` of tensors of a card. chunks: per layer, its pieces."""

    files: FileGraph
    card: Card
    chunks: tuple[Sequence[Piece], ...]

    @classmethod
    def of(cls, files: FileGraph, card: Card) -> CardGraph:
        """Return a graph whose chunks are written anew as the card reads them; the ones they were read from are closed.

        Raises IndexError where an edge leads outside of its rows: on a card nothing checks that.
        """
        made: dict[int, list[Piece]] = {}
        for layer, (chunks,) in enumerate(files.chunks):
            if id(chunks) not in made:
                pieces = files.plain_pieces(layer)
                made[id(chunks)] = packed(pieces, files.scratch, card.run, threads=_PACKING, plain=True)
                chunks.close()
        return cls(files, card, tuple(made[id(chunks)] for (chunks,) in files.chunks))

    @property
    def scratch(self) -> Scratch:
        """The files that it lies in."""
        return self.files.scratch

    @property
    def ring(self) -> Ring | None:
        """The ranks between which source intervals go round, from card to card; None: all intervals are here."""
        return self.files.ring

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of nodes of each interval."""
        return self.files.sizes

    @property
    def types(self) -> tuple[int, ...]:
        """The number of each interval's node type: there is one."""
        return self.files.types

    def num_edges(self, layer: int, relation: int = 0) -> int:
        """Return how many edges a layer aggregates in a relation."""
        return self.files.num_edges(layer, relation)

    def pieces(self, layer: int, relation: int = 0) -> Sequence[Piece]:
        """Return a layer's pieces in the order of target, source and number."""
        assert relation == 0, "the config refuses several relations on a card"
        return self.chunks[layer]

    def groups(self, layer: int, relation: int = 0) -> GroupSizes:
        """Return how many intervals stay together."""
        return self.files.groups(layer, relation)

    def edge(self, layer: int, relation: int = 0) -> EdgeContext:
        """Return the columns of a layer's edges in a relation, of no edge."""
        return beside(self.card.device, self.files.edge(layer, relation))

    def active(self, level: int) -> Sequence[int]:
        """Return how many nodes each interval has."""
        return self.sizes

    def features(self, interval: int) -> FeatureTensors:
        """Read the input features of an interval's nodes."""
        (inputs,) = self.files.inputs
        if inputs is None or inputs.dense is None:
            return mapped(self.files.features(interval), self.card.fetched)
        width = inputs.dense.width
        return FeatureTensors(width, dense=self.card.fetched(inputs.dense.lent(interval)).view(-1, width))

    def nodes(self, interval: int) -> NodeContext:
        """Read the degrees of an interval's nodes."""
        return node_context(self.card.fetched(self.files.degrees.lent(interval)))

    def rows(self, width: int, *, level: int, node_type: int | None = None) -> CardRows:
        """Return room for so many numbers per node."""
        return CardRows(self.files.rows(width, level=level, node_type=node_type), self.card)

    def source_rows(self, width: int, *, level: int, node_type: int | None = None) -> CardRows:
        """Return such room for what edges read of their sources: of all intervals, where ranks keep copies."""
        return CardRows(self.files.source_rows(width, level=level, node_type=node_type), self.card)
