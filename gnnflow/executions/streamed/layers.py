"""Computation of some nodes' terms, states and rows in the streamed execution, given what is read of them.

The order in which that happens is `run.py`'s forward and `backward.py`'s backward.

Random draws are functions of (a seed drawn from torch's generator, layer, interval and run of rows, or piece), so that
the backward pass repeats them. A node's input is dropped once for all relations.

Shapes: N nodes, n rows of an interval, T targets, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnflow.executions.base import PassCounts, first_rows, is_cheaper_first, layer_terms, takes_relu, updated_rows
from gnnflow.executions.propagate import partial_state
from gnnflow.executions.streamed.adding import add_block
from gnnflow.executions.streamed.graph import Piece, Rows, StreamedGraph, runs, sources_of
from gnnflow.executions.streamed.rooms import Key, LayerRelations, Named, OfNodes, OwnRows, Room, States, read
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.errors import LayerError
from gnnflow.graph.hashing import mix_one, seed_word
from gnnflow.kernels import Csr, identity
from gnnflow.kernels.device import CPU
from gnnflow.kernels.draws import generator_of, seed_draws
from gnnflow.layers import FeatureTensors, Layer, Model, NodeContext, State, Terms

_PLACES = 0x9E3779B97F4A7C15  # odd: places in a graph give different numbers


class Predicted(NamedTuple):
    """A run of the targets, and their logits."""

    targets: slice
    logits: Tensor


@dataclass
class StreamedLayers:
    """A model over a graph, interval by interval and piece by piece.

    keeps: for a backward pass. outputs: the rows after each layer that are read again, by layer. rooms: where what
    each layer holds of nodes lies.
    """

    model: Model
    graph: StreamedGraph
    targets: IntArray
    keeps: bool
    outputs: dict[int, Rows] = field(default_factory=dict)
    rooms: list[Room] = field(default_factory=list)
    _maps_first: dict[tuple[int, int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Draw the seed of its draws. Raises LayerError where a layer cannot be streamed."""
        self.layers = [LayerRelations(self.model, index) for index in range(self.model.num_layers)]
        for layer in (each.layers[0] for each in self.layers):
            if (reason := streaming_obstacle(layer)) is not None:
                raise LayerError(reason, where=type(layer).__name__, fix="Train without train.memory.")
        self.seed = int(torch.randint(2**62, (), generator=generator_of(CPU)))

    @cached_property
    def device(self) -> torch.device:
        """The device that the model computes on."""
        return self.model.device

    @cached_property
    def firsts(self) -> list[int]:
        """The first row of each interval, and the end of the last one."""
        return [0, *accumulate(self.graph.sizes)]

    @property
    def intervals(self) -> range:
        """The numbers of the intervals that are computed here."""
        return range(len(self.graph.sizes)) if self.graph.ring is None else self.graph.ring.own

    def intervals_of(self, node_type: int | None) -> list[int]:
        """Return the intervals computed here of a type, or all."""
        return [each for each in self.intervals if node_type in (None, self.graph.types[each])]

    def pieces(self, index: int, relation: int = 0) -> list[Piece]:
        """Return a relation's pieces, as the graph has them, and of messages to oneself, numbered -1.

        Where these are of other nodes than the relation's sources, they are a target interval's first.
        """
        found, of = self.graph.pieces(index, relation), self.layers[index]
        if not of.layers[relation].include_self:
            return list(found)
        sizes = self.graph.active(index + 1)
        own = [
            Piece(each, each, -1, sizes[each], partial(self._own_edges, index, relation, sizes[each]))
            for each in self.intervals_of(of.schema.target_types[relation])
        ]
        turn = {source: number for number, source in enumerate(sources_of(self.graph, of.source_type(relation)))}
        return sorted([*found, *own], key=lambda piece: (piece.target, turn.get(piece.source, -1), piece.number))

    def _own_edges(self, index: int, relation: int, size: int) -> BlockTensors:
        edge = self.graph.edge(index, relation)
        return BlockTensors(identity(size, device=self.device), edge.self_edges(size), None)

    def seeded(self, phase: str, *place: int) -> None:
        """Make the draws that follow a function of the pass and a place in it."""
        if self.model.training:
            number = 0
            for each in place:
                number = (number * _PLACES + each + 1) % 2**64
            word = mix_one(mix_one(self.seed ^ _word(phase)) ^ number)
            seed_draws(word, self.device)

    def needs_gradient(self, index: int) -> bool:
        """Return whether the input rows of a layer depend on a parameter."""
        return self.keeps and (index > 0 or self.model.encoder is not None)

    def maps_first(self, index: int, relation: int = 0) -> bool:
        """Return whether the value_weight of a relation's layer is applied before the aggregation."""
        if (index, relation) not in self._maps_first:  # every run of rows asks
            of = self.layers[index]
            counts = PassCounts(
                self._num_rows(index, of.source_type(relation)),
                self._num_rows(index + 1, of.schema.target_types[relation]),
                self.graph.num_edges(index, relation),
            )
            needs_gradient = self.needs_gradient(index)
            self._maps_first[index, relation] = is_cheaper_first(
                of.layers[relation], counts, needs_gradient=needs_gradient
            )
        return self._maps_first[index, relation]

    def _num_rows(self, level: int, node_type: int | None) -> int:
        active = zip(self.graph.active(level), self.graph.types, strict=True)
        return sum(rows for rows, each in active if node_type in (None, each))

    def load_input(self, index: int, interval: int) -> FeatureTensors | Tensor:
        """Read what a layer's input rows are computed from: features, or the rows of the layer before."""
        if index == 0:
            return self.graph.features(interval)
        return self.rows_after(index - 1, interval)

    def rows_after(self, index: int, interval: int) -> Tensor:
        """Read an interval's rows after a layer."""
        return self.outputs[index].read(interval).view(-1, self.layers[index].out_width)

    def input_rows(self, interval: int, held: FeatureTensors | Tensor, nodes: NodeContext | None) -> Tensor:
        """Return a layer's input rows [n, W]. nodes: of the same nodes, read where features of types are encoded."""
        if isinstance(held, Tensor):
            return held
        return self.model.encode_type(self.graph.types[interval], held, nodes)

    def runs(self, level: int, interval: int) -> Iterator[slice]:
        """Yield an interval's rows of a level as the vertex phase takes them that lies between two layers.

        Of several relations they are fewer at a time: what is made of them is made for each.
        """
        beside = [self.layers[index] for index in (level - 1, level) if 0 <= index < self.model.num_layers]
        held = max(len(each.keys_at(self.graph.types[interval])) for each in beside)
        width = max(max(each.layers[0].in_width, each.out_width) for each in beside) * max(1, held // 2)
        if level == self.model.num_layers:  # the head joins rows of layers, and makes logits of them
            read = sum(self.layers[index].out_width for index in self.model.head_layers)
            width = max(width, read, self.model.inputs.num_outputs)
        return runs(self.graph.active(level)[interval], width, self.device)

    def terms(self, index: int, h: Tensor, nodes: NodeContext, *, place: tuple[int, int]) -> OfNodes:
        """Return a layer's terms of nodes of one type; the targets are the first of them.

        place: their interval, and the first of its rows that they are.
        """
        self.seeded("terms", index, *place)
        interval, first = place
        h = self.model.pre(index, h)
        num_targets = min(max(0, self.graph.active(index + 1)[interval] - first), len(h))
        return self.terms_of(index, self.graph.types[interval], h, nodes, num_targets)

    def terms_of(self, index: int, node_type: int, h: Tensor, nodes: NodeContext, num_targets: int) -> OfNodes:
        """Return a layer's terms of nodes of a type. h: their rows, after dropout; the T targets first."""
        of, made = self.layers[index], OfNodes()
        found: dict[int, Terms] = {}
        for key in of.keys_at(node_type):
            if key.kind == "own":
                own = of.joins.own_rows(node_type, first_rows(h, num_targets))
                assert own is not None
                made[key] = {"rows": own}
                continue
            if key.number not in found:
                layer, context = of.layers[key.number], nodes.of_relation(key.number)
                first = self.maps_first(index, key.number)
                found[key.number] = layer_terms(layer, h=h, nodes=context, map_first=first)
            terms = found[key.number].target if key.kind == "target" else found[key.number].source
            made[key] = {
                name: rows if key.kind == "source" else first_rows(rows, num_targets) for name, rows in terms.items()
            }
        return made

    def empty_terms(self, index: int, interval: int, keys: Iterable[Key]) -> OfNodes:
        """Return some of what a layer holds of an interval's nodes, to be filled, as it is written."""
        of, room = self.layers[index], self.rooms[index]
        return {key: room[key].empty(self.graph.active(of.level_of(key))[interval], self.device) for key in keys}

    def no_terms(self, index: int) -> OfNodes:
        """Return a layer's terms of zero nodes."""
        none = torch.zeros(0, device=self.device)
        of = self.layers[index]
        h = none.new_zeros(0, of.layers[0].in_width).requires_grad_(self.needs_gradient(index))
        self.seeded("terms", index, 0, 0)
        h, nodes = self.model.pre(index, h), NodeContext(none, none, none)
        made = OfNodes()
        for node_type in range(of.schema.num_types):
            made |= self.terms_of(index, node_type, h, nodes, 0)
        return made

    def no_edges(self, index: int, relation: int) -> BlockTensors:
        """Return a block of a relation's edge columns, of no edge and no node."""
        none = torch.zeros(0, dtype=torch.int64, device=self.device)
        return BlockTensors(Csr(none.new_zeros(1), none, 0), self.graph.edge(index, relation), None)

    def edges_learn(self, index: int) -> bool:
        """Return whether the backward pass goes over a layer's edges.

        It does where the layer's terms, or what is sent of them along an edge, depend on a parameter.
        """
        with torch.enable_grad():
            terms = self.no_terms(index)
            learned = [rows for held in terms.values() for rows in held.values()]
            for relation, layer in enumerate(self.layers[index].layers):
                source, target = terms[Key("source", relation)], terms[Key("target", relation)]
                none = self.no_edges(index, relation)
                learned += partial_state(layer, source=source, target=target, block=none).values()
        return any(each.requires_grad for each in learned)

    def last_phase(self, index: int, interval: int, states: States, own: OwnRows) -> Tensor:
        """Return some nodes' rows after a layer [n, W] from their whole states."""
        model, of, node_type = self.model, self.layers[index], self.graph.types[interval]
        relu = takes_relu(model, index, is_mapped=self.maps_first(index))
        rows = [
            updated_rows(
                of.layers[relation],
                target=own.terms[Key("target", relation)],
                aggregated=of.layers[relation].levels.instance.finalize(states[relation]),
                is_mapped=self.maps_first(index, relation),
                relu=relu,
            )
            for relation in of.states_at(node_type)
        ]
        out = of.joins.joined_with(node_type, rows, own.terms.get(Key("own", node_type), {}).get("rows"))
        shortcut = None if own.h is None else model.shortcut(index, self.input_rows(interval, own.h, own.nodes))
        return model.post(index, out, shortcut, is_activated=relu)

    def reads_rows(self, index: int) -> bool:
        """Return whether the rows after a layer are written."""
        return self.layers[index].reads_rows

    def load_own(self, index: int, interval: int) -> OwnRows:
        """Read the terms and rows that the end of a layer needs, without the states."""
        h = self.load_input(index, interval) if self.layers[index].has_shortcut else None
        follows = index + 1 < self.model.num_layers or isinstance(h, FeatureTensors)
        nodes = self.graph.nodes(interval) if follows else None
        keys = self.layers[index].read_at_end(self.graph.types[interval])
        return OwnRows(read(self.rooms[index], keys, interval), h, nodes)

    def add_piece(
        self, index: int, relation: int, state: State | None, piece: Piece, block: BlockTensors, *, terms: Terms
    ) -> State:
        """Add a piece of a relation's in-edges to the state of a target interval, and return the state.

        terms: source terms of the piece's sources, target terms of its targets.
        """
        layer = self.layers[index].layers[relation]
        self.seed_piece(index, relation, piece)
        source = sources_in(block, terms.source)
        return add_block(layer, state, source=source, target=terms.target, block=block, with_slopes=self.keeps)

    def seed_piece(self, index: int, relation: int, piece: Piece) -> None:
        """Make the draws of a piece's edges a function of the pass and the piece."""
        of_relation = [relation] * (relation > 0)  # the first one's are as of a graph without types
        self.seeded("piece", index, piece.target, piece.source, piece.number, *of_relation)

    def predicted(self, interval: int, rows: slice, outputs: Sequence[Tensor]) -> Predicted:
        """Return the targets among some rows of an interval, and their logits. outputs: the rows by layer."""
        # where these rows begin and end among all nodes, and the run of targets between
        begin, end = self.firsts[interval] + rows.start, self.firsts[interval] + rows.stop
        at = slice(*np.searchsorted(self.targets, [begin, end]))
        # places of these targets among the rows
        places = torch.from_numpy(self.targets[at] - begin).to(self.device)
        self.seeded("head", interval, rows.start)
        unread: list[Tensor | None] = [None] * (self.model.num_layers - len(outputs))
        return Predicted(at, self.model.predict([*unread, *(each.index_select(0, places) for each in outputs)]))


@cache
def _word(phase: str) -> int:
    return int(seed_word(phase))


def streaming_obstacle(layer: Layer) -> str | None:
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
    """Return the rows of source terms that a block reads: of messages to oneself its targets' rows, the first."""
    number = block.num_targets
    if not block.csr.is_identity or all(len(rows) == number for rows in terms.values()):
        return terms
    # a part of a leaf is one again: coefficients are asked whether they learn
    return {name: rows[:number].detach().requires_grad_(rows.requires_grad) for name, rows in terms.items()}
