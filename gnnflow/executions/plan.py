"""Plans of layers: terms, states and the order of computation, from the model and the columns of edges.

    plan  = plan_relation(layer, columns, map_first=...)     of one relation's pass
    plans = plan_layers(model, columns)                      of all layers, as GraphInfer computes them

A relation's pass runs over no nodes and no edges, and shapes are read off what it gives. So widths follow from the
layer's own code, whatever it is. Every execution, `gnnflow plan`, `gnnflow explain` and the memory budget read plans,
and count nothing themselves.

Shapes: N nodes, T targets, K packed width of a node's terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from gnnflow.executions.base import PassCounts, is_cheaper_first, is_narrower_first, layer_terms
from gnnflow.executions.propagate import block_messages, partial_state
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.arrays import FloatArray
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, Layer, Model, NodeContext, State, Terms

TermArrays = Mapping[str, FloatArray]

_MANY = 10**9
_COUNTS = (PassCounts(1, 1, 1), PassCounts(1, _MANY, 1), PassCounts(_MANY, 1, 1), PassCounts(1, 1, _MANY))
_NODES, _EDGES, _UNDER_WAY = 2, 1009, 3  # a layer's own Python is measured on these: no other dimension is 1009


@dataclass(frozen=True)
class EdgeColumns:
    """The columns that edges have: a weight, and attribute_width attributes."""

    has_weight: bool = False
    attribute_width: int = 0

    def of_no_edges(self, device: torch.device | None = None) -> EdgeContext:
        """Return the columns of no edges."""
        none = torch.zeros(0, device=device)
        attributes = none.new_zeros(0, self.attribute_width) if self.attribute_width else None
        return EdgeContext(0, none if self.has_weight else None, attributes)

    def empty_block(self, device: torch.device | None = None) -> BlockTensors:
        """Return a block without nodes and edges."""
        nowhere = torch.zeros(1, dtype=torch.int64, device=device)
        return BlockTensors(Csr(nowhere, nowhere[:0], 0), self.of_no_edges(device), None)


NO_COLUMNS = EdgeColumns()
"""Edges are nothing but their ends."""


@dataclass(frozen=True)
class TermLayout:
    """Layout of a node's terms, side by side in one float32 row: names in order, each with its shape per node."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, terms: Mapping[str, Tensor]) -> TermLayout:
        """Return the layout of these terms, sorted by name."""
        names = tuple(sorted(terms))
        return cls(names, tuple(tuple(terms[name].shape[1:]) for name in names))

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each term."""
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def width(self) -> int:
        """Columns K of a packed row."""
        return sum(self.widths)

    def without(self, name: str) -> TermLayout:
        """Return the layout without one of the terms."""
        shapes = {each: shape for each, shape in zip(self.names, self.shapes, strict=True) if each != name}
        return TermLayout(tuple(shapes), tuple(shapes.values()))

    def split(self, run: Tensor) -> dict[str, Tensor]:
        """Return the terms [N, ...] of a run of memory [N K], in which they lie one after the other."""
        num_rows = len(run) // self.width if self.width else 0
        parts = torch.split(run, [num_rows * width for width in self.widths])
        return {
            name: part.view(num_rows, *shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def pack(self, terms: TermArrays) -> FloatArray:
        """Return the terms side by side [N, K]."""
        assert tuple(sorted(terms)) == self.names
        num_nodes = len(terms[self.names[0]])
        columns = zip(self.names, self.widths, strict=True)
        return np.concatenate([terms[name].reshape(num_nodes, width) for name, width in columns], axis=1)

    def unpack(self, rows: FloatArray) -> dict[str, FloatArray]:
        """Return the terms of packed rows [N, K], in the order of `names`."""
        ends = np.cumsum(self.widths)
        parts = np.split(rows, ends[:-1], axis=1)
        return {
            name: part.reshape(len(rows), *shape)
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }


@dataclass(frozen=True, eq=False)
class RelationPlan:
    """One relation's pass of a layer over no nodes.

    terms: source and target terms [0, ...]. target_reads: names of the target terms that an edge reads. state: of no
    target [0, ...]; None where the states of parts of a target's in-edges do not merge. map_first: whether the layer's
    value_weight is applied before the aggregation.
    """

    layer: Layer
    terms: Terms
    target_reads: tuple[str, ...]
    state: State | None
    map_first: bool

    @cached_property
    def source(self) -> TermLayout:
        """Layout of a source's terms."""
        return TermLayout.of(self.terms.source)

    @cached_property
    def target(self) -> TermLayout:
        """Layout of a target's terms; it may have none."""
        return TermLayout.of(self.terms.target)

    @cached_property
    def read(self) -> TermLayout:
        """Layout of the target terms that an edge reads; it may have none."""
        return TermLayout.of({name: self.terms.target[name] for name in self.target_reads})

    @property
    def merges(self) -> bool:
        """True where states of parts of a target's in-edges can be merged."""
        return self.state is not None

    @cached_property
    def state_layout(self) -> TermLayout:
        """Layout of a target's state. Only where states merge."""
        assert self.state is not None, "states of this layer do not merge"
        return TermLayout.of(self.state)

    @property
    def learns(self) -> bool:
        """True where a gradient reaches the terms or the state; only of a plan made outside `torch.no_grad`."""
        tensors = (*self.terms.source.values(), *self.terms.target.values(), *(self.state or {}).values())
        return any(rows.requires_grad for rows in tensors)


@dataclass(frozen=True)
class LayerPlan:
    """One layer: a plan per relation, one on a graph without types."""

    relations: tuple[RelationPlan, ...]


def plan_layers(model: Model, columns: EdgeColumns = NO_COLUMNS) -> tuple[LayerPlan, ...]:
    """Return the plan of each layer where terms are sent: values are mapped first where that makes rows narrower."""
    return tuple(plan_layer(model, index, columns) for index in range(model.num_layers))


@torch.no_grad()
def plan_layer(model: Model, index: int, columns: EdgeColumns = NO_COLUMNS) -> LayerPlan:
    """Return the plan of layer `index` where terms are sent, as `plan_layers` does."""
    layers = model.relations(index)
    plans = tuple(plan_relation(layer, columns, map_first=is_narrower_first(layer)) for layer in layers.layers)
    return LayerPlan(plans)


def possible_orders(layer: Layer, *, learned: bool, may_prune: bool, is_joined: bool) -> list[bool]:
    """Return the values of `map_first` that training or scoring may choose, whatever the graph's counts are.

    learned: the layer's input depends on a parameter. may_prune: there may be fewer targets than sources. Without it
    there are as many, and the order follows from the layer; two types may have any numbers of nodes.
    """
    found: set[bool] = set()
    for needs_gradient in {learned, False}:
        counts = _COUNTS if is_joined else _COUNTS[:1]
        firsts = {is_cheaper_first(layer, each, needs_gradient=needs_gradient) for each in counts}
        found |= firsts | ({False} if True in firsts and may_prune else set())
    return sorted(found)


def own_edge_bytes(layer: Layer, columns: EdgeColumns, *, map_first: bool) -> int:
    """Return the bytes per edge that a layer's own `coefficient` or `message` makes; 0 where kernels make everything.

    It is run once on some edges. What autograd keeps with a row per edge is counted, and a few of the widest rows for
    what is not kept and for gradients under way.
    """
    if layer.uses_propagate or (layer.uses_coefficients and layer.logit_slope is not None):
        return 0
    h, nodes = torch.zeros(_NODES, layer.in_width, requires_grad=True), NodeContext(*[torch.ones(_NODES)] * 3)
    source, target = layer_terms(layer, h=h, nodes=nodes, map_first=map_first)
    # a block of few nodes and many edges, half of them into each node
    csr = Csr(torch.tensor([0, _EDGES // _NODES, _EDGES]), torch.arange(_EDGES) % _NODES, _NODES)
    width, weight = columns.attribute_width, torch.ones(_EDGES) if columns.has_weight else None
    block = BlockTensors(csr, EdgeContext(_EDGES, weight, torch.zeros(_EDGES, width) if width else None), None)
    held: dict[int, int] = {}  # bytes by place in memory

    def kept(tensor: Tensor) -> Tensor:
        if tensor.dim() and len(tensor) == _EDGES:
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.random.fork_rng(devices=[]), torch.enable_grad(), saved_tensors_hooks(kept, lambda tensor: tensor):
        if layer.uses_messages:
            made = list(partial_state(layer, source=source, target=target, block=block).values())
        else:
            coefficient = block_messages(layer, source, target, block).coefficient
            made = [] if coefficient is None else [coefficient]
    sizes = [*held.values(), *(each.nbytes for each in made if len(each) == _EDGES)]
    return (sum(held.values()) + _UNDER_WAY * max(sizes, default=0)) // _EDGES


def plan_relation(layer: Layer, columns: EdgeColumns, *, map_first: bool, needs_gradient: bool = False) -> RelationPlan:
    """Return the plan of one relation's pass. needs_gradient: whether its input rows do."""
    none = next(iter(layer.parameters()), torch.zeros(0)).detach().new_zeros(0)
    # input rows of no nodes [0, W]
    h = none.new_zeros(0, layer.in_width).requires_grad_(needs_gradient)
    terms = layer_terms(layer, h=h, nodes=NodeContext(none, none, none), map_first=map_first)
    if not layer.levels.instance.mergeable:
        return RelationPlan(layer, terms, (), None, map_first)
    block = columns.empty_block(none.device)
    reads = _target_reads(layer, terms, block)
    state = partial_state(layer, source=terms.source, target=terms.target, block=block)
    return RelationPlan(layer, terms, reads, state, map_first)


def _target_reads(layer: Layer, terms: Terms, block: BlockTensors) -> tuple[str, ...]:
    """Return the target terms that an edge reads: those without which no state can be made.

    A factor of a target's whole sum ("scale") is no such term: the target's owner applies it.
    """
    given = dict[str, Tensor]()
    while True:
        try:
            partial_state(layer, source=terms.source, target=given, block=block)
        except KeyError as missing:  # a term of the target that an edge asked for
            (name,) = missing.args
            given[name] = terms.target[name]
        else:
            return tuple(sorted(given))
