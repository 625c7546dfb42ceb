"""One layer's pass, which all executions share: a delivery brings source terms to the edges of its targets.

    terms  = layer_terms(layer, h, nodes)                    transform, per node, at the node's owner
    state  = merge of part.state(...) over delivery.parts    in the order the parts come in
    rows   = layer_rows(layer, terms, delivery)              state, self message, finalize, update, per target

A pass knows its layer alone. What the model does around it, dropout before and norm, activation and residual behind,
`relations.run_layer` adds once around the passes of all relations. An execution whose halves lie in different tasks
(`sliced`), or in different passes over the graph (one that streams a graph larger than memory), calls them apart.

A new execution is one module here. It provides

- a `Delivery` per layer, which says where in-edges and source terms come from. In-edges that lie in memory are a
  `BlockPart`; states that another process computed are a `Part` whose `state` returns them. A delivery that exchanges
  rows or states between ranks does so inside `parts`, with operations that autograd knows, so that gradients take the
  way back. One that reads chunks yields a part per chunk, so that memory holds a chunk or two and the merged state,
  and takes its reader as a Protocol: executions know nothing of files.
  A layer that defines `propagate` takes one part alone, whose sources begin with the T targets; a self-loop of target i
  comes from source i.
- the function that runs a model: encode, a layer at a time, predict. `relations.run_layer` runs a layer over blocks in
  memory, `relations.run_passes` over any deliveries, one per relation. A delivery serves all of its targets alike;
  where some of them are only context for the others, a mask picks the rows that count after the last layer.
- a row in `table.EXECUTIONS`, with the reason why it cannot run a layer, where there is one: an execution that yields
  several parts must refuse an aggregation that does not merge.
- an adapter in `tests/contracts/adapters.py`, by which the contract suite holds it to `reference`.

Shapes: T targets, S sources, H heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional

from gnnflow.executions.propagate import finished, partial_state, takes_self, whole_rows
from gnnflow.executions.shapes import TermRows
from gnnflow.executions.stages import UNTIMED, Stages
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.errors import LayerError
from gnnflow.kernels import Map, affine
from gnnflow.layers import EdgeContext, Layer, Model, NodeContext, State, Terms

# About what one number of a gathered row costs, in multiplications of a matrix product, which run many at a time.
_GATHER = 4


class Part(Protocol):
    """Some in-edges of a delivery's targets, or what was computed from them elsewhere."""

    def state(self, layer: Layer, target: TermRows) -> State:
        """Return the state of all T targets over these in-edges alone, without self messages.

        target: the T targets' own target terms. A sampled target is already rescaled, to its full in-degree.
        """


class Delivery(Protocol):
    """Brings source terms to the edges of one layer's T targets: parts of their in-edges, in a fixed order."""

    @property
    def num_targets(self) -> int:
        """Number of targets T."""

    @property
    def num_edges(self) -> int:
        """About how many in-edges the targets have here: it decides what is computed first, never what."""

    @property
    def edge(self) -> EdgeContext:
        """Tells which edge columns the graph has, for the self messages; only its columns' widths are read."""

    def parts(self, layer: Layer, terms: Terms) -> Iterator[Part]:
        """Yield parts that together hold each in-edge once; at least one, also where no target has an in-edge.

        terms: of the nodes that lie here, the T targets first; target terms of those T alone. The order of the parts
        must be the same in every run, because states are merged in it.
        """


@dataclass(frozen=True)
class BlockPart:
    """In-edges that lie here: the block that holds them, and the source terms of its S sources."""

    block: BlockTensors
    source: TermRows

    def state(self, layer: Layer, target: TermRows) -> State:
        """Return the targets' state over the block's edges."""
        return partial_state(layer, source=self.source, target=target, block=self.block)


@dataclass(frozen=True)
class OneBlock:
    """Delivers a block that holds all in-edges of its targets, as one part; its sources are the nodes that lie here."""

    block: BlockTensors

    @property
    def num_targets(self) -> int:
        """Number of targets T."""
        return self.block.num_targets

    @property
    def num_edges(self) -> int:
        """Number of the block's edges, or of their leaves."""
        return (self.block.csr if self.block.leaves is None else self.block.leaves).num_edges

    @property
    def edge(self) -> EdgeContext:
        """The block's edge columns."""
        return self.block.edge

    def parts(self, layer: Layer, terms: Terms) -> Iterator[BlockPart]:
        """Yield the block."""
        yield BlockPart(self.block, terms.source)


@dataclass(frozen=True)
class ReceivedPart:
    """A state that was computed before."""

    rows: State

    def state(self, layer: Layer, target: TermRows) -> State:
        """Return the received state."""
        return self.rows


@dataclass(frozen=True)
class Received:
    """Delivers states that were computed before, or elsewhere, in the order given."""

    num_targets: int
    num_edges: int
    edge: EdgeContext
    states: Sequence[State]

    def parts(self, layer: Layer, terms: Terms) -> Iterator[ReceivedPart]:
        """Yield the states."""
        for state in self.states:
            yield ReceivedPart(state)


def terms_of(layer: Layer, h: Tensor, *, nodes: NodeContext, num_targets: int, map_first: bool) -> Terms:
    """Return source terms of all nodes, and target terms of the first T, the targets. h: the nodes' input rows."""
    source, target = layer_terms(layer, h=h, nodes=nodes, map_first=map_first)
    return Terms(source, {name: first_rows(rows, num_targets) for name, rows in target.items()})


def first_rows(rows: Tensor, num_targets: int) -> Tensor:
    """Return the first T rows."""
    # a slice of all rows would cost a pass over them in the backward pass
    return rows[:num_targets] if num_targets < len(rows) else rows


def layer_terms(layer: Layer, *, h: Tensor, nodes: NodeContext, map_first: bool) -> Terms:
    """Return a layer's terms of the nodes whose input rows, after dropout, are h: its half at each node's owner.

    map_first: apply the layer's value_weight, where it has one, to the values here and not to what they add up to.
    """
    terms, weight = layer.transform(h, nodes), layer.value_weight
    if weight is None or not map_first:
        return terms
    value = functional.linear(terms.source["value"], weight)
    return Terms({**terms.source, "value": value}, terms.target)


def layer_rows(
    layer: Layer,
    *,
    terms: Terms,
    delivery: Delivery,
    map_first: bool,
    relu: bool = False,
    own: Tensor | None = None,
    stages: Stages = UNTIMED,
) -> Tensor:
    """Return a layer's rows [T, W] from terms, before what the model does to them: its half at each target's owner.

    terms: source terms with at least the T targets' own as first rows; target terms of the T targets. map_first: as the
    terms were made. relu: as `takes_relu` says. own [T, W]: what `linear_update` makes of the target's term, where it
    was made with the terms.
    """
    stages.enter("gather_sum", over=terms.source.values(), back="transform")
    aggregated = _aggregated(layer, terms, delivery)
    stages.enter("apply", over=[aggregated], back="gather_sum")
    if own is not None:
        return own + aggregated.flatten(1)
    return updated_rows(layer, target=terms.target, aggregated=aggregated, is_mapped=map_first, relu=relu)


def _aggregated(layer: Layer, terms: Terms, delivery: Delivery) -> Tensor:
    """Return what each target aggregates, its self message included [T, H, D (+ edge attributes)]."""
    if isinstance(delivery, OneBlock) and takes_self(layer, delivery.block):
        return whole_rows(layer, source=terms.source, target=terms.target, block=delivery.block.with_self)
    if isinstance(delivery, OneBlock) and not layer.include_self:
        return whole_rows(layer, source=terms.source, target=terms.target, block=delivery.block)
    parts = delivery.parts(layer, terms)
    if not layer.levels.instance.mergeable:
        parts = iter([_only(parts, layer)])
    # A state per part; a delivery of one part merges nothing.
    state = layer.levels.instance.merge_all(part.state(layer, terms.target) for part in parts)
    return finished(layer, state, source=terms.source, target=terms.target, edge=delivery.edge)


def updated_rows(layer: Layer, *, target: TermRows, aggregated: Tensor, is_mapped: bool, relu: bool = False) -> Tensor:
    """Return a layer's rows [T, W] from what its targets aggregated [T, H, D (+ A)].

    target: the T targets' target terms. is_mapped: the layer's value_weight was applied before the aggregation. relu:
    as `takes_relu` says.
    """
    # asked for once: a layer may compute its weight, as one of shared bases does
    weight, linear = layer.value_weight, layer.linear_update
    if weight is None or is_mapped:
        return layer.update(target, aggregated)
    if linear is None:
        return layer.update(target, functional.linear(aggregated, weight))
    maps = [Map(aggregated.flatten(1), weight)]
    if linear.weight is not None:
        maps.append(Map(target[linear.term], linear.weight))
    return affine(maps, linear.bias, relu=relu)


def takes_relu(model: Model, index: int, *, is_mapped: bool) -> bool:
    """Return whether the relu that the model applies to a layer's rows is left to `updated_rows`, in the same pass.

    Not where rows of relations are joined first.
    """
    layer = model.relations(index).only
    if layer is None or layer.value_weight is None or is_mapped or layer.linear_update is None:
        return False
    return model.begins_with_relu(index)


def _only(parts: Iterator[Part], layer: Layer) -> Part:
    first, *others = parts
    if others:
        raise LayerError(
            f"its targets' in-edges come in {1 + len(others)} parts, and states of "
            f"{type(layer.levels.instance).__name__} do not merge",
            where=type(layer).__name__,
            fix="Use an execution that has all in-edges of a target in one block.",
        )
    return first


def maps_first(layer: Layer, h: Tensor, num_targets: int, num_edges: int) -> bool:
    """Return whether a layer's value_weight is applied before the aggregation, to rows h [S, W]."""
    return is_cheaper_first(layer, PassCounts(len(h), num_targets, num_edges), needs_gradient=h.requires_grad)


@dataclass(frozen=True)
class PassCounts:
    """The numbers of sources, targets and edges (or leaves of edges) in one relation's pass."""

    num_sources: int
    num_targets: int
    num_edges: int


def is_cheaper_first(layer: Layer, counts: PassCounts, *, needs_gradient: bool) -> bool:
    """Return whether a layer's value_weight costs less per source, before the aggregation, than per target after it.

    Counted in multiplications, forward and backward. Where the layer's input needs no gradient, a map behind the
    aggregation leaves the aggregation without one too.
    """
    weight = layer.value_weight
    if weight is None:
        return True
    narrow, wide = weight.shape[1], weight.shape[0]  # columns to aggregate behind and before the map
    product, backward = weight.numel(), 2 if needs_gradient else 1
    before = (1 + backward) * counts.num_sources * product + 2 * _GATHER * counts.num_edges * wide
    behind = (1 + backward) * counts.num_targets * product + backward * _GATHER * counts.num_edges * narrow
    return before < behind


def is_narrower_first(layer: Layer) -> bool:
    """Return whether a layer's value_weight is applied before source terms travel, so that narrow rows do.

    Of one width rows travel as they are: a target may keep the same ones. The layer alone decides it: all who send and
    receive must agree.
    """
    weight = layer.value_weight
    return weight is None or weight.shape[0] < weight.shape[1]
