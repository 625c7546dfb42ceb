"""How many numbers a layer's terms, states and rows have per node: asked of the model itself, of no rows.

On a typed graph a layer is a pass per relation, whose rows are those of one node type; what a phase of a type's nodes
holds is summed over the relations that lead to the type, or start at it. A graph without types has one of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnflow.executions.adding import SLOPE, added, attended
from gnnflow.executions.base import is_cheaper_first, terms_of
from gnnflow.executions.propagate import block_messages, partial_state
from gnnflow.executions.streamed_rooms import Key, LayerRelations
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Csr, native
from gnnflow.layers import EdgeContext, Layer, Model, NodeContext, Sum, Terms

NUMBER = 4  # bytes
DEGREES = 3  # numbers per relation

# Intervals of source terms on their way round a ring: two read ahead, and what is computed on, waits to be taken and is
# coming, which lies in memory of the rank before, as the same of this rank does for the next one: each maps both.
_PASSED = 2 + 2 * 3
# With their gradients: what came and what is sent, in memory of either, a part that is made and two on their way home.
_PASSED_BACK = _PASSED + 2 * 2 + 3

_MANY = 10**9
_COUNTS = ((1, 1, 1), (1, _MANY, 1), (_MANY, 1, 1), (1, 1, _MANY))


@dataclass(frozen=True)
class PassWidths:
    """Numbers per node of the terms and states of one relation's pass.

    kept: of a whole state as the backward pass reads it. heads: per edge, of a coefficient; 0 where edges are read as
    they lie and nothing is computed for each. passed: of a source's terms, where they go round. in_place: whether
    pieces are added to states and gradients that are there. learns: whether the backward pass goes over its edges.
    apart: of a target's terms as the source of its message to itself, where its type is not that of the sources.
    spread: how many times as many rows the sources are as the largest type has, where they are of all types; 0 where
    pieces pick theirs. instance: per edge with leaves, of the row that these make.
    """

    source: int
    target: int
    state: int
    kept: int
    heads: int
    passed: int
    adds: bool
    in_place: bool
    learns: bool
    apart: int = 0
    spread: int = 1
    instance: int = 0


@dataclass(frozen=True)
class TypeWidths:
    """Numbers per node of one type in a layer: of its input rows and of what lies between this layer and the next.

    into and out_of: passes of the relations into the type and from it. own: what the type's own map gives. states: of
    whole states as they are kept. degrees: what the graph knows of a node. writes_rows: whether rows after the layer
    are read as such, and not only what the next layer makes of them.
    """

    into: Sequence[PassWidths]
    out_of: Sequence[PassWidths]
    merges: bool
    h: int
    own: int
    out: int
    degrees: int
    has_shortcut: bool
    writes_rows: bool

    @property
    def source(self) -> int:
        """Source terms of all relations from the type."""
        return sum(each.source for each in self.out_of)

    @property
    def target(self) -> int:
        """Target terms of all relations into the type."""
        return sum(each.target + each.apart for each in self.into)

    @property
    def states(self) -> int:
        """Whole states of all relations into the type, which are one where they are merged."""
        return self._of_states([each.kept for each in self.into])

    @property
    def summed(self) -> int:
        """The same states without what is kept for the backward pass alone."""
        return self._of_states([each.state for each in self.into])

    @property
    def rows(self) -> int:
        """Rows after the layer that are read as such."""
        return self.out * self.writes_rows

    @property
    def made(self) -> int:
        """What the vertex phase before the layer makes of a node."""
        return self.source + self.target + self.own

    @property
    def learns(self) -> bool:
        """Whether anything in the layer needs a gradient beside its last map."""
        return self.own > 0 or any(each.learns for each in (*self.into, *self.out_of))

    def _of_states(self, widths: Sequence[int]) -> int:
        return max(widths, default=0) if self.merges else sum(widths)


@dataclass(frozen=True)
class Asked:
    """What decides of a layer's terms beside the model.

    features: dense columns of each node type. spread: how many times as many nodes there are as of the largest type.
    may_prune: whether layers may compute fewer targets than they have sources. picks: pieces of edges with leaves name
    the rows that they read. goes_round: whether source terms go from rank to rank. exact: layers are taken as the
    execution computes them, and not in any way it could.
    """

    features: Sequence[int]
    spread: int
    may_prune: bool
    has_leaves: bool
    picks: bool
    goes_round: bool
    exact: bool


def layer_widths(model: Model, index: int, asked: Asked) -> list[TypeWidths]:
    """Return the widths of a layer for each node type."""
    of = LayerRelations(model, index)
    schema, joined, in_width = of.schema, of.joins, of.layers[0].in_width
    passes = [_pass_widths(of, number, asked) for number in range(len(of.layers))]
    return [
        TypeWidths(
            [passes[number] for number in schema.relations_into(node_type)],
            [each for number, each in enumerate(passes) if of.source_type(number) in (None, node_type)],
            joined is not None and joined.merges_states,
            in_width if index else max(in_width, columns),
            of.out_width if Key("own", node_type) in of.keys_at(node_type) else 0,
            of.out_width,
            DEGREES * schema.num_relations,
            of.has_shortcut,
            of.reads_rows,
        )
        for node_type, columns in enumerate(asked.features)
    ]


def bytes_per_layer(layer: list[TypeWidths], following: list[TypeWidths] | None) -> int:
    """Return the bytes per node of an interval that the largest phase of a layer holds, of whatever type it is."""
    none: list[TypeWidths | None] = [None] * len(layer)
    return max(map(_bytes_per_row, layer, following or none))


def _bytes_per_row(layer: TypeWidths, following: TypeWidths | None) -> int:
    """Return the bytes per node of an interval of a type that the largest phase of a layer holds.

    Of what a phase reads there is what it computes on and the next; of what it writes, what it fills and what is on its
    way to the file. Forward, pieces are read two ahead. What follows the edges of the type's last relation reads the
    states and target terms of the others, while source terms of the next pieces are there.
    """
    own = layer.target + layer.own + layer.h * layer.has_shortcut + layer.degrees * (following is not None)
    # what is written behind a layer, and whose gradients are read: rows where they are read as such, and next terms
    behind = layer.rows + (following.made if following is not None else 0)
    terms = 2 * (layer.h + layer.degrees + layer.made)
    # a state that relations have in common is read again for each of them
    again = 2 * layer.states * (layer.merges and len(layer.into) > 1)
    edges = 2 * layer.states + again + max(map(_piece, layer.into), default=0) + 2 * own + 2 * behind
    edges_back = max((_piece_back(each) for each in layer.into if each.learns), default=0)
    last_back = 2 * (own + layer.states + behind)
    if layer.learns:
        last_back += 2 * (layer.summed + layer.target + layer.own + layer.h * layer.has_shortcut)
    head = 6 * layer.rows
    return NUMBER * max(terms, edges, edges_back, last_back, head)


def bytes_per_picked(layer: list[TypeWidths]) -> int:
    """Return the bytes per row that a piece of edges with leaves picks: forward three pieces' are read.

    Backward: the terms of two, and of one the gradients, what autograd makes of them and what is added to an interval.
    """
    return 6 * NUMBER * max((each.source for of in layer for each in of.into if not each.spread), default=0)


def _piece(of: PassWidths) -> int:
    """Return the numbers per row that adding a relation's pieces takes beside the state they are added to."""
    # where pieces are not added in place: a part's state and what the two are merged with
    parts = 0 if of.in_place else 4 * of.state
    # where rows are picked, the interval that they are picked from in each of the two threads that read
    sources = 3 * of.spread * of.source if of.spread else 2 * of.source
    return parts + sources + _PASSED * of.passed


def _piece_back(of: PassWidths) -> int:
    """Return the numbers per row that differentiating a relation's pieces takes."""
    # where pieces are not added in place: the whole states, a part with its gradient, what that is made of, and the
    # gradients of terms
    differentiated = 0 if of.in_place else 5 * of.state + 2 * (of.spread * of.source + of.target)
    differentiated += 0 if of.in_place or of.adds else 3 * of.kept
    # attention keeps of each target what it needs of all its edges, and reads and writes the gradients of target terms
    attended = 4 * of.heads + 2 * of.target if of.in_place and not of.adds else 0
    # where rows are picked, of an interval: terms that are read, and gradients added to, written and about to be
    sources = 4 * (of.spread or 1) * of.source
    return sources + _PASSED_BACK * of.passed + 2 * (of.state + of.target) + differentiated + attended


def _pass_widths(of: LayerRelations, relation: int, asked: Asked) -> PassWidths:
    model, index, layer, none = of.model, of.index, of.layers[relation], torch.zeros(0)
    nodes, learned = NodeContext(none, none, none), index > 0 or model.encoder is not None
    h = none.new_zeros(0, layer.in_width).requires_grad_(learned)
    ways = _ways(layer, asked, learned=learned, is_typed=model.is_typed)
    either = [terms_of(layer, h, nodes=nodes, num_targets=0, map_first=first) for first in ways]
    edge = EdgeContext(0, none, torch.zeros(0, model.inputs.attribute_width) if model.inputs.attribute_width else None)
    csr = Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 0)
    block = BlockTensors(csr, edge, None)
    states = [partial_state(layer, source=each.source, target=each.target, block=block) for each in either]
    # what each way adds to in place, and keeps for the backward pass beside its state
    adding = [
        added(layer, None, source=each.source, target=each.target, block=block, with_slopes=True) for each in either
    ]
    aggregation = layer.levels.instance
    has_gates = any(SLOPE in each for each in adding)
    attends = not asked.has_leaves and not asked.exact
    attends = attends and all(attended(layer, *each, block) is not None for each in either)
    return PassWidths(
        max(_width(each.source) for each in either),
        max(_width(each.target) for each in either),
        max(map(_width, states)),
        max(map(_width, adding)),
        max(each.source["value"].shape[-2] for each in either)
        * any(_has_numbers(layer, each, block) for each in either),
        max(_width(each.source) for each in either) if asked.goes_round else 0,
        aggregation.adds,
        has_gates or attends or (aggregation.adds and layer.uses_coefficients and not layer.coefficient_dropout),
        any(rows.requires_grad for each in either for held in each for rows in held.values())
        or any(rows.requires_grad for each in states for rows in each.values()),
        max(_width(each.source) for each in either) if of.has_self(relation) else 0,
        asked.spread * (not asked.picks) if of.comes_from_several(relation) else 1,
        max(_width(each.source) for each in either) // layer.positions * of.comes_from_several(relation),
    )


def _has_numbers(layer: Layer, terms: Terms, block: BlockTensors) -> bool:
    """Return whether a layer computes numbers for each edge, or has them widened for torch."""
    if not (layer.uses_coefficients and isinstance(layer.levels.instance, Sum)):
        return True
    messages = block_messages(layer, terms.source, terms.target, block)
    plain = messages.counted is None and not messages.dropout and messages.instances is None
    return not (plain and native.accepts(messages.csr, messages.value))


def _ways(layer: Layer, asked: Asked, *, learned: bool, is_typed: bool) -> list[bool]:
    """Return whether training or scoring applies a layer's linear map first, or whether either may be.

    Of as many targets as sources numbers of rows and edges do not matter; fewer targets speak for the map behind. Two
    types may have any numbers.
    """
    found: set[bool] = set()
    for needs_gradient in {learned, False}:
        counts = _COUNTS if is_typed else _COUNTS[:1]
        firsts = {
            is_cheaper_first(
                layer, num_sources=sources, num_targets=targets, num_edges=edges, needs_gradient=needs_gradient
            )
            for sources, targets, edges in counts
        }
        found |= firsts | ({False} if True in firsts and asked.may_prune else set())
    return sorted(found)


def _width(tensors: Mapping[str, Tensor]) -> int:
    return sum(math.prod(each.shape[1:]) for each in tensors.values())
