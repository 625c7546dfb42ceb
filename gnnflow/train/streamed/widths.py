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

from gnnflow.executions.adding import SLOPE, added, attended, reads_values
from gnnflow.executions.base import is_cheaper_first, terms_of
from gnnflow.executions.propagate import block_messages, partial_state
from gnnflow.executions.streamed_first import are_features
from gnnflow.executions.streamed_rooms import Key, LayerRelations
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Csr, native
from gnnflow.layers import EdgeContext, Layer, Model, NodeContext, Sum, Terms

NUMBER = 4  # bytes
DEGREES = 3  # numbers per relation

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
    pieces pick theirs. instance: per edge with leaves, of the row that these make. read_back: of a source's terms what
    gradients depend on. filed: of a source's terms in a file. made_of: what is read for them where they may be made as
    they go by, else 0; values are then made where features lie.
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
    read_back: int = 0
    filed: int = 0
    made_of: int = 0


@dataclass(frozen=True)
class TypeWidths:
    """Numbers per node of one type in a layer: of its input rows and of what lies between this layer and the next.

    into and out_of: passes of the relations into the type and from it. own: what the type's own map gives. states: of
    whole states as they are kept. degrees: what the graph knows of a node. writes_rows: whether rows after the layer
    are read again, and not only as they are computed.
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
        """Source terms in files of all relations from the type."""
        return sum(each.filed for each in self.out_of)

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
        """Rows after the layer that are read again."""
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
    execution computes them, and not in any way it could. weighted: edges have a weight. makes_terms: source terms that
    are no more than features are made as they go by.
    """

    features: Sequence[int]
    spread: int
    may_prune: bool
    has_leaves: bool
    picks: bool
    goes_round: bool
    exact: bool
    weighted: bool
    makes_terms: bool


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


def _pass_widths(of: LayerRelations, relation: int, asked: Asked) -> PassWidths:
    model, index, layer, none = of.model, of.index, of.layers[relation], torch.zeros(0)
    nodes, learned = NodeContext(none, none, none), index > 0 or model.encoder is not None
    h = none.new_zeros(0, layer.in_width).requires_grad_(learned)
    ways = _ways(layer, asked, learned=learned, is_typed=model.is_typed)
    either = [terms_of(layer, h, nodes=nodes, num_targets=0, map_first=first) for first in ways]
    columns = model.inputs.attribute_width
    edge = EdgeContext(0, none if asked.weighted else None, torch.zeros(0, columns) if columns else None)
    csr = Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 0)
    block = BlockTensors(csr, edge, None)
    states = [partial_state(layer, source=each.source, target=each.target, block=block) for each in either]
    # what each way adds to in place, and keeps for the backward pass beside its state
    adding = [
        added(layer, None, source=each.source, target=each.target, block=block, with_slopes=True) for each in either
    ]
    made = [asked.makes_terms and are_features(of, each.source) for each in either]
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
        max(_read_back(layer, each, block, asked) for each in either),
        max(_width(each.source) * (not is_made) for each, is_made in zip(either, made, strict=True)),
        any(made) * (model.inputs.feature_width + DEGREES),
    )


def _read_back(layer: Layer, terms: Terms, block: BlockTensors, asked: Asked) -> int:
    """Return the numbers per row of the source terms that the backward pass reads: on a ring they come by whole."""
    rows, names = terms.source, sorted(terms.source)
    whole = asked.goes_round or asked.has_leaves or names[-1] != "value"
    if whole or reads_values(layer, source=rows, target=terms.target, block=block):
        return _width(rows)
    return _width({name: rows[name] for name in names[:-1]})


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
