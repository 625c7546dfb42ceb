"""A model over a graph larger than memory, in one process (NGra, Ma et al. 2018, section 4; NeuGraph, USENIX ATC 2019).

    logits = forward(model, graph, targets)         in every step; its backward pass goes over the graph again

Nodes are cut into intervals and edges into chunks by the intervals of both ends (`streaming.py`). A layer is three
phases, of which each holds rows of one or two intervals:

    per interval i           terms of its nodes, once per node however many chunks read them       vertex phase
    per target interval i    for each source interval j: state over chunk (i, j), merged           edge phase
                             finalize, update: its rows after the layer                             vertex phase

The state of one target interval stays in memory until it is whole; the source terms and edges of the next pieces
are read in threads meanwhile, and what is written is written in another. What the backward pass needs of a layer is its
input rows, terms and whole states, which lie where they were written; messages it computes again. It takes the chunks
the other way round, by source interval, so that the gradient of one source interval's terms stays until it is whole
(`streamed_backward.py`).

Random draws are functions of (a seed drawn from torch's generator, layer, interval or piece), so that the backward pass
repeats them. The order of sums depends on how the graph is cut and on nothing else.

Shapes: N nodes, n rows of an interval, T targets, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, groupby
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gnnflow.executions.base import BlockPart, Received, is_cheaper_first, layer_rows, takes_relu, terms_of
from gnnflow.executions.shapes import TermRows
from gnnflow.executions.streaming import Held, Piece, Rows, StreamedGraph, ahead
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.errors import LayerError
from gnnflow.graph.hashing import seed_word
from gnnflow.layers import Aggregation, FeatureTensors, Layer, Model, NodeContext, State, Terms


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


@dataclass(frozen=True)
class Own:
    """What the last phase of a layer reads of a target interval's own nodes.

    source: its source terms, where the layer has messages of nodes to themselves. h: what its input rows are computed
    from, where the model adds these.
    """

    target: dict[str, Tensor]
    source: dict[str, Tensor]
    h: FeatureTensors | Tensor | None


@dataclass(frozen=True)
class LayerRoom:
    """Where the terms of a layer lie, and its whole states where they are kept for the backward pass."""

    source: Held
    target: Held
    state: Held | None


@dataclass
class StreamedRun:
    """One pass of a model over a graph. keeps: for a backward pass. outputs: the rows after each layer."""

    model: Model
    graph: StreamedGraph
    targets: IntArray
    keeps: bool
    outputs: list[Rows] = field(default_factory=list)
    layers: list[LayerRoom] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw the seed of its draws. Raises LayerError where a layer cannot be streamed."""
        for index in range(self.model.num_layers):
            layer = self.model.layer(index)
            if (reason := not_streamed(layer)) is not None:
                raise LayerError(reason, where=type(layer).__name__, fix="Train without train.memory.")
        self.seed = int(torch.randint(2**62, ()))

    @cached_property
    def firsts(self) -> list[int]:
        """Where each interval begins, and where the last one ends."""
        return [0, *accumulate(self.graph.sizes)]

    @property
    def intervals(self) -> range:
        """The intervals' numbers."""
        return range(len(self.graph.sizes))

    def targets_in(self, interval: int) -> tuple[slice, Tensor]:
        """Return which of the targets an interval has, and which of its rows they are."""
        first, last = np.searchsorted(self.targets, self.firsts[interval : interval + 2])
        return slice(first, last), torch.from_numpy(self.targets[first:last] - self.firsts[interval])

    def logits(self) -> Tensor:
        """Run all layers and return the targets' logits [T, C]."""
        with torch.no_grad():
            self.run_layers()
            found = torch.empty(len(self.targets), self.model.inputs.num_outputs)
            for interval, outputs in self.head_inputs():
                at, _ = self.targets_in(interval)
                found[at] = self.predicted(interval, outputs)
        return found

    def run_layers(self) -> None:
        """Compute the rows of all nodes after every layer."""
        for index in range(self.model.num_layers):
            self._terms_phase(index)
            self._edge_phase(index)
            room = self.layers[index]
            if not self.keeps:
                room.source.release()
                room.target.release()

    def release(self) -> None:
        """Give all room back."""
        for rows in self.outputs:
            rows.release()
        for room in self.layers if self.keeps else []:
            for held in (room.source, room.target, room.state):
                if held is not None:
                    held.release()
        self.outputs.clear()
        self.layers.clear()

    def seeded(self, *place: int | str) -> None:
        """Make the draws that follow a function of the pass and a place in it."""
        if self.model.training:
            # of the CPU's generator alone: `torch.manual_seed` asks every kind of device, at a millisecond each time
            torch.default_generator.manual_seed(int(seed_word(self.seed, *place)) >> 1)

    def needs_gradient(self, index: int) -> bool:
        """Return whether the input rows of a layer depend on a parameter."""
        return self.keeps and (index > 0 or self.model.encoder is not None)

    def maps_first(self, index: int) -> bool:
        """Return whether a layer's value_weight is applied before the aggregation."""
        num_nodes = self.firsts[-1]
        return is_cheaper_first(
            self.model.layer(index),
            num_sources=num_nodes,
            num_targets=num_nodes,
            num_edges=self.graph.num_edges(index),
            needs_gradient=self.needs_gradient(index),
        )

    def load_input(self, index: int, interval: int) -> FeatureTensors | Tensor:
        """Read what a layer's input rows are computed from: features, or the rows of the layer before."""
        if index == 0:
            return self.graph.features(interval)
        width = self.model.layer(index - 1).out_width
        return self.outputs[index - 1].read(interval).view(-1, width)

    def input_rows(self, held: FeatureTensors | Tensor) -> Tensor:
        """Return a layer's input rows [n, W]."""
        return held if isinstance(held, Tensor) else self.model.encode(held)

    def terms(self, index: int, interval: int, h: Tensor, nodes: NodeContext) -> Terms:
        """Return a layer's terms of an interval's nodes."""
        self.seeded("terms", index, interval)
        layer = self.model.layer(index)
        h = self.model.pre(index, h)
        return terms_of(layer, h, nodes=nodes, num_targets=len(h), map_first=self.maps_first(index))

    def part_state(self, index: int, piece: Piece, block: BlockTensors, source: TermRows, target: TermRows) -> State:
        """Return the state of a target interval over one piece of its in-edges."""
        self.seeded("piece", index, piece.target, piece.source, piece.number)
        return BlockPart(block, source).state(self.model.layer(index), target)

    def last_phase(self, index: int, state: State, own: Own) -> Tensor:
        """Return an interval's rows after a layer [n, W] from its whole state."""
        model, layer, first = self.model, self.model.layer(index), self.maps_first(index)
        relu = takes_relu(model, index, is_mapped=first)
        num_rows = len(next(iter(state.values())))
        delivery = Received(num_rows, 0, self.graph.edge(index), [state])
        terms = Terms(own.source, own.target)
        rows = layer_rows(layer, terms=terms, delivery=delivery, map_first=first, relu=relu)
        shortcut = None if own.h is None else model.shortcut(index, self.input_rows(own.h))
        return model.post(index, rows, shortcut, is_activated=relu)

    def has_shortcut(self, index: int) -> bool:
        """Return whether the model adds a layer's input to its rows."""
        layer = self.model.layer(index)
        return self.model.shortcut(index, torch.zeros(0, layer.in_width)) is not None

    def load_own(self, index: int, interval: int) -> Own:
        """Read what `last_phase` needs beside the state."""
        room = self.layers[index]
        # of the interval's nodes as sources of messages to themselves
        source = room.source.read(interval) if self.model.layer(index).include_self else {}
        h = self.load_input(index, interval) if self.has_shortcut(index) else None
        return Own(room.target.read(interval), source, h)

    def _terms_phase(self, index: int) -> None:
        loads = [partial(self._load_for_terms, index, interval) for interval in self.intervals]
        room: LayerRoom | None = None
        with ahead(loads) as found:
            for interval in self.intervals:
                held, nodes = next(found)
                terms = self.terms(index, interval, self.input_rows(held), nodes)
                if room is None:
                    room = LayerRoom(Held.room(self.graph, terms.source), Held.room(self.graph, terms.target), None)
                room.source.write(interval, terms.source)
                room.target.write(interval, terms.target)
        assert room is not None
        self.layers.append(room)

    def _load_for_terms(self, index: int, interval: int) -> tuple[FeatureTensors | Tensor, NodeContext]:
        return self.load_input(index, interval), self.graph.nodes(interval)

    def _edge_phase(self, index: int) -> None:
        """Aggregate target interval after target interval, whose state stays in memory until it is whole."""
        rows = self.graph.rows(self.model.layer(index).out_width)
        aggregation = self.model.layer(index).levels.instance
        with ahead(self._loads(index), number=2) as found:
            for interval, pieces in groupby(self.graph.pieces(index), key=lambda piece: piece.target):
                own = cast("Own", next(found))
                state: State | None = None
                source: dict[str, Tensor] = {}
                for piece in pieces:
                    block, read = cast("tuple[BlockTensors, dict[str, Tensor] | None]", next(found))
                    source = source if read is None else read
                    part = self.part_state(index, piece, block, source, own.target)
                    state = part if state is None else _merged(aggregation, state, part)
                    del block, read, part
                assert state is not None
                source = {}
                self._keep(index, interval, state)
                rows.write(interval, [self.last_phase(index, state, own)])
        self.outputs.append(rows)

    def _loads(self, index: int) -> Iterator[Callable[[], object]]:
        """Yield what the edge phase reads, in its order; a chunk's source terms come with its first piece."""
        before: tuple[int, int] | None = None
        for piece in self.graph.pieces(index):
            if before is None or before[0] != piece.target:
                yield partial(self.load_own, index, piece.target)
            chunk = (piece.target, piece.source)
            yield partial(self._load_piece, index, piece, with_source=chunk != before)
            before = chunk

    def _load_piece(
        self, index: int, piece: Piece, *, with_source: bool
    ) -> tuple[BlockTensors, dict[str, Tensor] | None]:
        return piece.load(), self.layers[index].source.read(piece.source) if with_source else None

    def _keep(self, index: int, interval: int, state: State) -> None:
        if not self.keeps:
            return
        room = self.layers[index]
        if room.state is None:
            room = self.layers[index] = LayerRoom(room.source, room.target, Held.room(self.graph, state))
        assert room.state is not None
        room.state.write(interval, state)

    def head_inputs(self) -> Iterator[tuple[int, list[Tensor | None]]]:
        """Yield each interval with its rows after the layers that `predict` reads."""
        with ahead([partial(self._load_outputs, interval) for interval in self.intervals]) as found:
            yield from zip(self.intervals, found, strict=True)

    def _load_outputs(self, interval: int) -> list[Tensor | None]:
        read = self.model.head_layers
        return [
            rows.read(interval).view(self.graph.sizes[interval], -1) if index in read else None
            for index, rows in enumerate(self.outputs)
        ]

    def predicted(self, interval: int, outputs: list[Tensor | None]) -> Tensor:
        """Return the logits of an interval's targets from the rows of all its nodes after each layer."""
        _, places = self.targets_in(interval)
        self.seeded("head", interval)
        return self.model.predict([None if rows is None else rows.index_select(0, places) for rows in outputs])


def _merged(aggregation: Aggregation, state: State, part: State) -> State:
    """Merge a part into a state that nobody else has, in its own memory where that is a sum."""
    if not aggregation.adds:
        return aggregation.merge(state, part)
    return {name: rows.contiguous().add_(part[name]) for name, rows in state.items()}


def not_streamed(layer: Layer) -> str | None:
    """Return why a layer cannot be streamed; None for one that can."""
    aggregation = layer.levels.instance
    kind = type(aggregation).__name__
    if layer.uses_propagate:
        return "propagate() needs all in-edges of a target at once, and chunks bring them one after the other"
    if not aggregation.mergeable:
        return f"chunks of a target's in-edges give a state each, and states of {kind} do not merge"
    if not aggregation.has_part_gradient:
        return f"{kind} defines no part_gradient(), by which a chunk is differentiated without the others"
    return None
