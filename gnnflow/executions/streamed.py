"""A model over a graph larger than memory, in one process (NGra, Ma et al. 2018, section 4; NeuGraph, USENIX ATC 2019).

    logits = forward(model, graph, targets)         in every step; its backward pass goes over the graph again

Nodes are cut into intervals and edges into chunks by the intervals of both ends (`streaming.py`). A layer is three
phases, of which each holds rows of one or two intervals:

    per interval i           terms of its nodes, once per node however many chunks read them       vertex phase
    per target interval i    for each source interval j: chunk (i, j), added to the state          edge phase
                             finalize, update, and the terms of the next layer                      vertex phase

The state of one target interval stays in memory until it is whole; the source terms and edges of the next pieces
are read in threads meanwhile, and what is written is written in another. A node's message to itself is an edge like
others, the first of chunk (i, i). Vertex phases take some rows of an interval at a time. Those behind one layer and
before the next are one: rows between the two are in the cache and in no file, unless something else reads them. What
the backward pass needs of a layer is its terms and whole states, which lie where they were written; rows and messages
it computes again. It takes the chunks the other way round, by source interval, so that the gradient of one source
interval's terms stays until it is whole (`streamed_backward.py`).

What is computed of some nodes or edges is in `streamed_layers.py`. The order of sums depends on how the graph is cut
and on nothing else.

Shapes: N nodes, n rows of an interval, T targets, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.executions.ring import passing
from gnnflow.executions.streamed_layers import LayerRoom, Named, Own, StreamedLayers, fill
from gnnflow.executions.streaming import Held, Piece, StreamedGraph, ahead, parts
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.arrays import IntArray
from gnnflow.kernels import empty_rows
from gnnflow.kernels.memory import give_back
from gnnflow.layers import FeatureTensors, Model, NodeContext, State, Terms


def forward(model: Model, graph: StreamedGraph, targets: IntArray) -> Tensor:
    """Return the logits [T, C] of some nodes, given by their rows, ascending.

    The backward pass of what it gives reads the graph again. In training mode dropout reads torch's global generator;
    seed it to repeat a step.
    """
    learned = [each for each in model.parameters() if each.requires_grad]
    if torch.is_grad_enabled() and learned:
        return cast("Tensor", _Streamed.apply(model, graph, targets, *learned))  # type: ignore[no-untyped-call]
    run = StreamedRun(model, graph, targets, keeps=False)
    try:
        return run.logits()
    finally:
        run.release()


class _Streamed(Function):
    """Logits [T, C], whose backward pass gives the gradients of the model's parameters."""

    @staticmethod
    def forward(ctx: Any, model: Model, graph: StreamedGraph, targets: IntArray, *_: Tensor) -> Tensor:
        ctx.run = StreamedRun(model, graph, targets, keeps=True)
        return cast("Tensor", ctx.run.logits())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from gnnflow.executions.streamed_backward import gradients

        try:
            return (None, None, None, *gradients(ctx.run, gradient))
        finally:
            ctx.run.release()


class StreamedRun(StreamedLayers):
    """One pass of a model over a graph: its layers one after the other, each interval by interval."""

    def logits(self) -> Tensor:
        """Run all layers and return the targets' logits [T, C]."""
        with torch.no_grad():
            self.run_layers()
            found = torch.empty(len(self.targets), self.model.inputs.num_outputs, device=self.device)
            for interval, outputs in self.head_inputs():
                at, _ = self.targets_in(interval)
                found[at] = self.predicted(interval, outputs)
        return found

    def run_layers(self) -> None:
        """Compute the rows after every layer that still reach a target."""
        self._make_room(0)
        self._first_phase()
        for index in range(self.model.num_layers):
            self.make_room_behind(index)
            self._edge_phase(index)
            room = self.layers[index]
            if not self.keeps:
                room.source.release()
                room.target.release()

    def release(self) -> None:
        """Give all room back."""
        for rows in self.outputs.values():
            rows.release()
        for room in self.layers if self.keeps else []:
            for held in (room.source, room.target, room.state):
                if held is not None:
                    held.release()
        self.outputs.clear()
        self.layers.clear()
        give_back()  # what this pass leaves between others' memory serves the next one badly

    def _make_room(self, index: int) -> None:
        like = self.no_terms(index)
        source = Held.room(self.graph, like.source, level=index, of_sources=True)
        self.layers.append(LayerRoom(source, Held.room(self.graph, like.target, level=index + 1)))

    def make_room_behind(self, index: int) -> None:
        """Make room for what `finish` writes of a layer."""
        if self.reads_rows(index):
            self.outputs[index] = self.graph.rows(self.model.layer(index).out_width, level=index + 1)
        if index + 1 < self.model.num_layers:
            self._make_room(index + 1)

    def _empty_terms(self, index: int, interval: int) -> Terms:
        room, device = self.layers[index], self.device
        num_rows, num_targets = (self.graph.active(level)[interval] for level in (index, index + 1))
        return Terms(room.source.empty(num_rows, device), room.target.empty(num_targets, device))

    def _write_terms(self, index: int, interval: int, made: Terms) -> None:
        self.layers[index].source.write(interval, made.source)
        self.layers[index].target.write(interval, made.target)

    def _first_phase(self) -> None:
        """Compute the terms of the first layer."""
        with ahead([partial(self.load_first, interval) for interval in self.intervals]) as found:
            for interval in self.intervals:
                held, nodes = next(found)
                made = self._empty_terms(0, interval)
                for rows in self.runs(0, interval):
                    h = self.model.encode(held.rows(rows.start, rows.stop))
                    fill(made, rows, self.terms(0, h, nodes.part(rows), place=(interval, rows.start)))
                self._write_terms(0, interval, made)
                del held, nodes, made

    def load_first(self, interval: int) -> tuple[FeatureTensors, NodeContext]:
        """Read what the terms of the first layer are computed from."""
        return self.graph.features(interval), self.graph.nodes(interval)

    def _edge_phase(self, index: int) -> None:
        """Aggregate target interval after target interval, whose state stays in memory until it is whole."""
        passed = passing(self.graph, self.layers[index].source, self._sources(index))
        with ahead(self._loads(index, passed.terms), number=2) as found, passed:
            for interval, pieces in groupby(self.pieces(index), key=lambda piece: piece.target):
                own = cast("Own", next(found))
                state: State | None = None
                source: Named = {}
                for piece in pieces:
                    block, read = cast("tuple[BlockTensors, Named | None]", next(found))
                    source = source if read is None else read
                    state = self.add_piece(index, state, piece, block, terms=Terms(source, own.target))
                    del block, read
                assert state is not None
                source = {}
                self._keep(index, interval, state)
                self.finish(index, interval, state, own)

    def finish(self, index: int, interval: int, state: State, own: Own) -> None:
        """Compute what lies between a layer and the next of an interval: from whole states to rows and next terms."""
        written, follows = self.outputs.get(index), index + 1 < self.model.num_layers
        num_rows, width = self.graph.active(index + 1)[interval], self.model.layer(index).out_width
        out = empty_rows(num_rows, width, device=self.device) if written is not None else None
        terms = self._empty_terms(index + 1, interval) if follows else None
        for rows in self.runs(index + 1, interval):
            held = own.part(rows)
            after = self.last_phase(index, parts(state, rows), held)
            if out is not None:
                out[rows] = after
            if terms is not None and held.nodes is not None:
                fill(terms, rows, self.terms(index + 1, after, held.nodes, place=(interval, rows.start)))
        if written is not None and out is not None:
            written.write(interval, [out])
        if terms is not None:
            self._write_terms(index + 1, interval, terms)

    def _sources(self, index: int) -> list[list[int]]:
        """Return the source intervals whose chunks the edge phase reads, by target interval."""
        by_target = groupby(self.pieces(index), key=lambda piece: piece.target)
        return [[source for source, _ in groupby(piece.source for piece in pieces)] for _, pieces in by_target]

    def _loads(self, index: int, terms: Held) -> Iterator[Callable[[], object]]:
        """Yield what the edge phase reads, in its order; a chunk's source terms come with its first piece."""
        before: tuple[int, int] | None = None
        for piece in self.pieces(index):
            if before is None or before[0] != piece.target:
                yield partial(self.load_own, index, piece.target)
            chunk = (piece.target, piece.source)
            yield partial(self._load_piece, piece, terms if chunk != before else None)
            before = chunk

    def _load_piece(self, piece: Piece, terms: Held | None) -> tuple[BlockTensors, Named | None]:
        block = piece.load()
        _ = block.csr.numbers  # read here, and not where they are computed on
        return block, None if terms is None else terms.read(piece.source)

    def _keep(self, index: int, interval: int, state: State) -> None:
        if not self.keeps:
            return
        room = self.layers[index]
        if room.state is None:
            room = self.layers[index] = LayerRoom(
                room.source, room.target, Held.room(self.graph, state, level=index + 1)
            )
        assert room.state is not None
        room.state.write(interval, state)

    def head_inputs(self) -> Iterator[tuple[int, list[Tensor | None]]]:
        """Yield each interval with its rows after the layers that `predict` reads."""
        with ahead([partial(self._load_outputs, interval) for interval in self.intervals]) as found:
            yield from zip(self.intervals, found, strict=True)

    def _load_outputs(self, interval: int) -> list[Tensor | None]:
        read = self.model.head_layers
        return [
            self.outputs[index].read(interval).view(-1, self.model.layer(index).out_width) if index in read else None
            for index in range(self.model.num_layers)
        ]
