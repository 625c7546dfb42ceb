"""What each layer sends, keeps and computes first: worked out once, from the model and the columns that edges have.

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

from gnnflow.executions.base import is_narrower_first, layer_terms
from gnnflow.executions.propagate import partial_state
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.arrays import FloatArray
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, Layer, Model, NodeContext, State, Terms

TermArrays = Mapping[str, FloatArray]


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


NO_COLUMNS = EdgeColumns()
"""Edges are nothing but their ends."""


@dataclass(frozen=True)
class TermLayout:
    """How some of a node's terms lie side by side in one float32 row: names in order, each with its shape per node."""

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
        """Whether states of parts of a target's in-edges can be merged."""
        return self.state is not None

    @cached_property
    def state_layout(self) -> TermLayout:
        """Layout of a target's state. Only where states merge."""
        assert self.state is not None, "states of this layer do not merge"
        return TermLayout.of(self.state)

    @property
    def learns(self) -> bool:
        """Whether a gradient reaches the terms or the state; only of a plan made outside `torch.no_grad`."""
        tensors = (*self.terms.source.values(), *self.terms.target.values(), *(self.state or {}).values())
        return any(rows.requires_grad for rows in tensors)


@dataclass(frozen=True)
class LayerPlan:
    """One layer: a plan per relation, one on a graph without types. output_width: columns of the rows it gives."""

    relations: tuple[RelationPlan, ...]
    output_width: int


def plan_layers(model: Model, columns: EdgeColumns = NO_COLUMNS) -> tuple[LayerPlan, ...]:
    """Return the plan of each layer where terms are sent: values are mapped first where that makes rows narrower."""
    return tuple(plan_layer(model, index, columns) for index in range(model.num_layers))


@torch.no_grad()
def plan_layer(model: Model, index: int, columns: EdgeColumns = NO_COLUMNS) -> LayerPlan:
    """Return the plan of layer `index` where terms are sent, as `plan_layers` does."""
    layers = model.relations(index)
    plans = tuple(plan_relation(layer, columns, map_first=is_narrower_first(layer)) for layer in layers.layers)
    return LayerPlan(plans, layers.out_width)


def plan_relation(layer: Layer, columns: EdgeColumns, *, map_first: bool, needs_gradient: bool = False) -> RelationPlan:
    """Return the plan of one relation's pass. needs_gradient: whether its input rows do."""
    none = next(iter(layer.parameters()), torch.zeros(0)).detach().new_zeros(0)
    h = none.new_zeros(0, layer.in_width).requires_grad_(needs_gradient)
    terms = layer_terms(layer, h=h, nodes=NodeContext(none, none, none), map_first=map_first)
    if not layer.levels.instance.mergeable:
        return RelationPlan(layer, terms, (), None, map_first)
    nowhere = none.new_zeros(1, dtype=torch.int64)
    block = BlockTensors(Csr(nowhere, nowhere[:0], 0), columns.of_no_edges(none.device), None)
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
