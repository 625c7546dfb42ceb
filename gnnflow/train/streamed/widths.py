"""How many numbers a layer's terms, states and rows have per node: asked of the model itself, of no rows.

On a typed graph a layer is a pass per relation, whose rows are those of one node type; what a phase of a type's nodes
holds is summed over the relations that lead to the type, or start at it. A graph without types has one of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnflow.executions.base import PassCounts, is_cheaper_first, terms_of
from gnnflow.executions.plan import EdgeColumns, RelationPlan, TermLayout, plan_relation
from gnnflow.executions.propagate import block_messages
from gnnflow.executions.streamed import SLOPE, Key, LayerRelations, added, are_features, attended, reads_values
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Csr, native
from gnnflow.layers import Layer, Model, NodeContext, Sum, Terms
from gnnflow.train.streamed import own_edges

NUMBER = 4  # bytes
DEGREES = 3  # numbers per relation

_MANY = 10**9
_COUNTS = (PassCounts(1, 1, 1), PassCounts(1, _MANY, 1), PassCounts(_MANY, 1, 1), PassCounts(1, 1, _MANY))


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
    they go by, else 0; values are then made where features lie. own_bytes: of an edge, what the layer's own Python
    makes of it; at_self: per target, of the same for its message to itself.
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
    own_bytes: int = 0
    at_self: int = 0


@dataclass(frozen=True)
class TypeWidths:
    """Numbers per node of one type in a layer: of its input rows and of what lies between this layer and the next.

    into and out_of: passes of the relations into the type and from it. own: what the type's own map gives. states: of
    whole states as they are kept. degrees: what the graph knows of a node. writes_rows: whether rows after the layer
    are read again, and not only as they are computed. read: of input rows, or the features that they are made of.
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
    read: int

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

    features: dense columns of each node type, and numbers of its sparse features as read. spread: how many times as
    many nodes there are as of the largest type. may_prune: whether layers may compute fewer targets than they have
    sources. picks: pieces of edges with leaves name the rows that they read. goes_round: whether source terms go from
    rank to rank. exact: layers are taken as the execution computes them, and not in any way it could. weighted: edges
    have a weight. makes_terms: source terms that are no more than features are made as they go by.
    """

    features: Sequence[tuple[int, int]]
    spread: int
    may_prune: bool
    has_leaves: bool
    picks: bool
    goes_round: bool
    exact: bool
    weighted: bool
    makes_terms: bool

    def columns(self, model: Model) -> EdgeColumns:
        """Return the columns that edges have."""
        return EdgeColumns(self.weighted, model.inputs.attribute_width)


def layer_widths(model: Model, index: int, asked: Asked) -> list[TypeWidths]:
    """Return the widths of a layer for each node type."""
    of = LayerRelations(model, index)
    schema, joined, in_width = of.schema, of.joins, of.layers[0].in_width
    passes = [_pass_widths(of, number, asked) for number in range(len(of.layers))]
    return [
        TypeWidths(
            into=[passes[number] for number in schema.relations_into(node_type)],
            out_of=[each for number, each in enumerate(passes) if of.source_type(number) in (None, node_type)],
            merges=joined.merges_states,
            h=in_width if index else max(in_width, columns),
            own=of.out_width if Key("own", node_type) in of.keys_at(node_type) else 0,
            out=of.out_width,
            degrees=DEGREES * schema.num_relations,
            has_shortcut=of.has_shortcut,
            writes_rows=of.reads_rows,
            read=in_width if index else max(in_width, columns, sparse),
        )
        for node_type, (columns, sparse) in enumerate(asked.features)
    ]


@dataclass(frozen=True)
class _Way:
    """What a relation's layer makes in one of the ways in which the execution may compute it.

    added: what is added to in place and, beside the state, kept for the backward pass, of no rows.
    """

    plan: RelationPlan
    added: Mapping[str, Tensor]


def _made(of: LayerRelations, relation: int, asked: Asked, block: BlockTensors) -> list[_Way]:
    """Return what a relation's layer makes in each way."""
    layer, learned = of.layers[relation], of.index > 0 or of.model.encoder is not None
    found = []
    for first in _ways(layer, asked, learned=learned, is_joined=of.joins.only is None):
        plan = plan_relation(layer, asked.columns(of.model), map_first=first, needs_gradient=learned)
        source, target = plan.terms
        found.append(_Way(plan, added(layer, None, source=source, target=target, block=block, with_slopes=True)))
    return found


def _pass_widths(of: LayerRelations, relation: int, asked: Asked) -> PassWidths:
    layer, inputs, block = of.layers[relation], of.model.inputs, _no_edges(asked.columns(of.model))
    ways, adds = _made(of, relation, asked, block), layer.levels.instance.adds
    plans = [way.plan for way in ways]
    source = max(each.source.width for each in plans)
    # what may be made of features as it goes by lies in no file
    by_features = [asked.makes_terms and not each.learns and are_features(of, each.terms.source) for each in plans]
    has_gates = any(SLOPE in way.added for way in ways)
    attends = not asked.has_leaves and not asked.exact
    attends = attends and all(attended(layer, *each.terms, block) is not None for each in plans)
    plain_sum = adds and layer.uses_coefficients and not layer.coefficient_dropout
    heads = max(each.terms.source["value"].shape[-2] for each in plans)
    own, several = _own_bytes(of, relation, asked), of.comes_from_several(relation)
    return PassWidths(
        source=source,
        target=max(each.target.width for each in plans),
        state=max(each.state_layout.width for each in plans),
        kept=max(TermLayout.of(way.added).width for way in ways),
        heads=heads if any(_has_numbers(layer, each.terms, block) for each in plans) else 0,
        passed=source if asked.goes_round else 0,
        adds=adds,
        in_place=has_gates or attends or plain_sum,
        learns=any(each.learns for each in plans),
        apart=source if of.has_self(relation) else 0,
        spread=asked.spread * (not asked.picks) if several else 1,
        instance=source // layer.positions if several else 0,
        read_back=max(_read_back(layer, each, block, asked) for each in plans),
        filed=max(0 if made else each.source.width for each, made in zip(plans, by_features, strict=True)),
        made_of=inputs.feature_width + DEGREES if any(by_features) else 0,
        own_bytes=own,
        at_self=own // NUMBER if layer.include_self else 0,
    )


def _own_bytes(of: LayerRelations, relation: int, asked: Asked) -> int:
    """Return the bytes per edge that a relation's layer makes by its own Python; those of leaves are counted apart."""
    if asked.has_leaves:
        return 0
    layer, attributes = of.layers[relation], of.model.inputs.attribute_width
    nodes = NodeContext(*[torch.ones(own_edges.NODES)] * 3)
    h = torch.zeros(own_edges.NODES, layer.in_width, requires_grad=True)
    found = []
    for first in _ways(layer, asked, learned=True, is_joined=of.joins.only is None):
        terms = terms_of(layer, h, nodes=nodes, num_targets=own_edges.NODES, map_first=first)
        found.append(own_edges.own_bytes_per_edge(layer, terms, attributes=attributes, weighted=asked.weighted))
    return max(found)


def _no_edges(columns: EdgeColumns) -> BlockTensors:
    """Return a block without edges."""
    csr = Csr(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), 0)
    return BlockTensors(csr, columns.of_no_edges(), None)


def _read_back(layer: Layer, plan: RelationPlan, block: BlockTensors, asked: Asked) -> int:
    """Return the numbers per row of the source terms that the backward pass reads: on a ring they come by whole."""
    (source, target), names = plan.terms, sorted(plan.terms.source)
    whole = asked.goes_round or asked.has_leaves or names[-1] != "value"
    if whole or reads_values(layer, source=source, target=target, block=block):
        return plan.source.width
    return TermLayout.of({name: source[name] for name in names[:-1]}).width


def _has_numbers(layer: Layer, terms: Terms, block: BlockTensors) -> bool:
    """Return whether a layer computes numbers for each edge, or has them widened for torch."""
    if not (layer.uses_coefficients and isinstance(layer.levels.instance, Sum)):
        return True
    messages = block_messages(layer, terms.source, terms.target, block)
    plain = messages.counted is None and not messages.dropout and messages.instances is None
    return not (plain and native.accepts(messages.csr, messages.value))


def _ways(layer: Layer, asked: Asked, *, learned: bool, is_joined: bool) -> list[bool]:
    """Return whether training or scoring applies a layer's linear map first, or whether either may be.

    Of as many targets as sources numbers of rows and edges do not matter; fewer targets speak for the map behind. Two
    types may have any numbers.
    """
    found: set[bool] = set()
    for needs_gradient in {learned, False}:
        counts = _COUNTS if is_joined else _COUNTS[:1]
        firsts = {is_cheaper_first(layer, each, needs_gradient=needs_gradient) for each in counts}
        found |= firsts | ({False} if True in firsts and asked.may_prune else set())
    return sorted(found)
