"""What the streamed execution computes of a model: terms, states and rows of some nodes, given what is read of them.

The order in which that happens is `streamed.py`'s forward and `streamed_backward.py`'s backward.

Random draws are functions of (a seed drawn from torch's generator, layer, interval and run of rows, or piece), so that
the backward pass repeats them.

Shapes: N nodes, n rows of an interval, T targets, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from gnnflow.executions.adding import added
from gnnflow.executions.base import is_cheaper_first, takes_relu, terms_of, updated_rows
from gnnflow.executions.ring import sources_of
from gnnflow.executions.streaming import Held, Piece, Rows, StreamedGraph, parts, runs
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.errors import LayerError
from gnnflow.graph.hashing import mix_one, seed_word
from gnnflow.kernels import Csr, identity
from gnnflow.kernels.device import generator_of
from gnnflow.layers import FeatureTensors, Layer, Model, NodeContext, State, Terms

Named = dict[str, Tensor]

_PLACES = 0x9E3779B97F4A7C15  # odd: places in a graph give different numbers


@dataclass(frozen=True)
class Own:
    """What the last phase of a layer reads of a target interval's own nodes, beside their state.

    h: what its input rows are computed from, where the model adds these. nodes: where another layer follows.
    """

    target: Named
    h: FeatureTensors | Tensor | None
    nodes: NodeContext | None

    def part(self, rows: slice) -> Own:
        """Return some of the rows."""
        h = None if self.h is None else some_rows(self.h, rows)
        return Own(parts(self.target, rows), h, None if self.nodes is None else self.nodes.part(rows))


@dataclass(frozen=True)
class LayerRoom:
    """Where the terms of a layer lie, and its whole states where they are kept for the backward pass."""

    source: Held
    target: Held
    state: Held | None = None


@dataclass
class StreamedLayers:
    """A model over a graph, interval by interval and piece by piece.

    keeps: for a backward pass. outputs: the rows after each layer that are read as such, by layer. layers: where the
    terms of each lie.
    """

    model: Model
    graph: StreamedGraph
    targets: IntArray
    keeps: bool
    outputs: dict[int, Rows] = field(default_factory=dict)
    layers: list[LayerRoom] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Draw the seed of its draws. Raises LayerError where a layer cannot be streamed."""
        for index in range(self.model.num_layers):
            layer = self.model.layer(index)
            if (reason := not_streamed(layer)) is not None:
                raise LayerError(reason, where=type(layer).__name__, fix="Train without train.memory.")
        self.seed = int(torch.randint(2**62, ()))

    @cached_property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.model.device

    @cached_property
    def firsts(self) -> list[int]:
        """Where each interval begins, and where the last one ends."""
        return [0, *accumulate(self.graph.sizes)]

    @property
    def intervals(self) -> range:
        """The numbers of the intervals that are computed here."""
        return range(len(self.graph.sizes)) if self.graph.ring is None else self.graph.ring.own

    def pieces(self, index: int) -> list[Piece]:
        """Return a layer's pieces, as the graph has them, with those of messages to oneself, numbered -1."""
        found = self.graph.pieces(index)
        if not self.model.layer(index).include_self:
            return list(found)
        sizes = self.graph.active(index + 1)
        own = [
            Piece(each, each, -1, sizes[each], partial(self._own_edges, index, sizes[each])) for each in self.intervals
        ]
        turn = {source: number for number, source in enumerate(sources_of(self.graph))}
        return sorted([*found, *own], key=lambda piece: (piece.target, turn[piece.source], piece.number))

    def _own_edges(self, index: int, size: int) -> BlockTensors:
        return BlockTensors(identity(size, device=self.device), self.graph.edge(index).self_edges(size), None)

    def targets_in(self, interval: int) -> tuple[slice, Tensor]:
        """Return which of the targets an interval has, and which of its rows they are."""
        first, last = np.searchsorted(self.targets, self.firsts[interval : interval + 2])
        return slice(first, last), torch.from_numpy(self.targets[first:last] - self.firsts[interval])

    def seeded(self, phase: str, *place: int) -> None:
        """Make the draws that follow a function of the pass and a place in it."""
        if self.model.training:
            number = 0
            for each in place:
                number = (number * _PLACES + each + 1) % 2**64
            word = mix_one(mix_one(self.seed ^ _word(phase)) ^ number)
            # of one generator alone: `torch.manual_seed` asks every kind of device, at a millisecond each time
            generator_of(self.device).manual_seed(word >> 1)

    def needs_gradient(self, index: int) -> bool:
        """Return whether the input rows of a layer depend on a parameter."""
        return self.keeps and (index > 0 or self.model.encoder is not None)

    def maps_first(self, index: int) -> bool:
        """Return whether a layer's value_weight is applied before the aggregation."""
        return is_cheaper_first(
            self.model.layer(index),
            num_sources=sum(self.graph.active(index)),
            num_targets=sum(self.graph.active(index + 1)),
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

    def runs(self, level: int, interval: int) -> Iterator[slice]:
        """Yield an interval's rows of a level as the vertex phase takes them that lies between two layers."""
        beside = [self.model.layer(index) for index in (level - 1, level) if 0 <= index < self.model.num_layers]
        width = max(max(layer.in_width, layer.out_width) for layer in beside)
        return runs(self.graph.active(level)[interval], width, self.device)

    def terms(self, index: int, h: Tensor, nodes: NodeContext, *, place: tuple[int, int] = (0, 0)) -> Terms:
        """Return a layer's terms of some nodes, target terms of those that are targets, the first ones.

        place: their interval, and the first of its rows that they are.
        """
        self.seeded("terms", index, *place)
        layer, (interval, first) = self.model.layer(index), place
        h = self.model.pre(index, h)
        num_targets = min(max(0, self.graph.active(index + 1)[interval] - first), len(h))
        return terms_of(layer, h, nodes=nodes, num_targets=num_targets, map_first=self.maps_first(index))

    def no_terms(self, index: int) -> Terms:
        """Return a layer's terms of no node."""
        none = torch.zeros(0, device=self.device)
        h = none.new_zeros(0, self.model.layer(index).in_width).requires_grad_(self.needs_gradient(index))
        return self.terms(index, h, NodeContext(none, none, none))

    def no_edges(self, index: int) -> BlockTensors:
        """Return a block of a layer's edge columns, of no edge and no node."""
        none = torch.zeros(0, dtype=torch.int64, device=self.device)
        return BlockTensors(Csr(none.new_zeros(1), none, 0), self.graph.edge(index), None)

    def last_phase(self, index: int, state: State, own: Own) -> Tensor:
        """Return some nodes' rows after a layer [n, W] from their whole state."""
        model, layer, first = self.model, self.model.layer(index), self.maps_first(index)
        relu = takes_relu(model, index, is_mapped=first)
        aggregated = layer.levels.instance.finalize(state)
        rows = updated_rows(layer, target=own.target, aggregated=aggregated, is_mapped=first, relu=relu)
        shortcut = None if own.h is None else model.shortcut(index, self.input_rows(own.h))
        return model.post(index, rows, shortcut, is_activated=relu)

    def reads_rows(self, index: int) -> bool:
        """Return whether the rows after a layer are written."""
        return reads_rows(self.model, index)

    def load_own(self, index: int, interval: int) -> Own:
        """Read what the phase behind a layer needs beside the state."""
        h = self.load_input(index, interval) if has_shortcut(self.model, index) else None
        nodes = self.graph.nodes(interval) if index + 1 < self.model.num_layers else None
        return Own(self.layers[index].target.read(interval), h, nodes)

    def add_piece(self, index: int, state: State | None, piece: Piece, block: BlockTensors, *, terms: Terms) -> State:
        """Return what the state of a target interval becomes with a piece of its in-edges.

        terms: source terms of the piece's sources, target terms of its targets.
        """
        layer = self.model.layer(index)
        self.seed_piece(index, piece)
        source = sources_in(block, terms.source)
        return added(layer, state, source=source, target=terms.target, block=block, with_slopes=self.keeps)

    def seed_piece(self, index: int, piece: Piece) -> None:
        """Make the draws of a piece's edges a function of the pass and the piece."""
        self.seeded("piece", index, piece.target, piece.source, piece.number)

    def predicted(self, interval: int, outputs: list[Tensor | None]) -> Tensor:
        """Return the logits of an interval's targets from the rows of all its nodes after each layer."""
        places = self.targets_in(interval)[1].to(self.device)
        self.seeded("head", interval)
        return self.model.predict([None if rows is None else rows.index_select(0, places) for rows in outputs])


@cache
def _word(phase: str) -> int:
    return int(seed_word(phase))


def has_shortcut(model: Model, index: int) -> bool:
    """Return whether a model adds a layer's input to its rows."""
    return model.shortcut(index, torch.zeros(0, model.layer(index).in_width, device=model.device)) is not None


def reads_rows(model: Model, index: int) -> bool:
    """Return whether the rows after a layer are read, and not only the terms that the next layer makes of them."""
    return index in model.head_layers or (index + 1 < model.num_layers and has_shortcut(model, index + 1))


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


def sources_in(block: BlockTensors, terms: Named) -> Named:
    """Return the rows of source terms that a block reads: of messages to oneself those of its targets, the first."""
    number = block.num_targets
    if not block.csr.is_identity or all(len(rows) == number for rows in terms.values()):
        return terms
    # a part of a leaf is one again: coefficients are asked whether they learn
    return {name: rows[:number].detach().requires_grad_(rows.requires_grad) for name, rows in terms.items()}


def some_rows(held: FeatureTensors | Tensor, rows: slice) -> FeatureTensors | Tensor:
    """Return a run of the rows of what input rows are computed from."""
    return held[rows] if isinstance(held, Tensor) else held.rows(rows.start, rows.stop)


def fill(made: Terms, rows: slice, terms: Terms) -> None:
    """Write some nodes' terms into those of an interval."""
    for into, of in zip(made, terms, strict=True):
        for name, each in of.items():
            into[name][rows] = each
