"""What executions have in common: one layer's pass, given how source terms reach the edges of its targets.

    terms  = layer_terms(h, nodes)                           transform, per node, at the node's owner
    state  = merge of part.state(...) over delivery.parts    in the order the parts come in
    h      = layer_rows(terms, delivery, shortcut)           state, self message, finalize, update, post, per target

`run_layer` is both halves in one call. An execution whose halves lie in different tasks (`sliced`), or in different
passes over the graph (one that streams a graph larger than memory), calls them apart.

A new execution is one module here. It provides

- a `Delivery` per layer, which says where in-edges and source terms come from. In-edges that lie in memory are a
  `BlockPart`; states that another process computed are a `Part` whose `state` returns them. A delivery that exchanges
  rows or states between ranks does so inside `parts`, with operations that autograd knows, so that gradients take the
  way back. One that reads chunks yields a part per chunk, so that memory holds a chunk or two and the merged state,
  and takes its reader as a Protocol: executions know nothing of files.
  A layer that defines `propagate` takes one part alone, whose sources begin with the T targets; a self-loop of target i
  comes from source i.
- the function that runs a model: encode, `run_layer` per layer, predict. A delivery serves all of its targets alike;
  where some of them are only context for the others, a mask picks the rows that count after the last layer.
- a row in `table.EXECUTIONS`, with the reason why it cannot run a layer, where there is one: an execution that yields
  several parts must refuse an aggregation that does not merge.
- an adapter in `tests/contracts/adapters.py`, by which the contract suite holds it to `reference`.

Shapes: T targets, S sources, H heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional

from gnnflow.executions.propagate import TermRows, finished, partial_state, takes_self, whole_rows
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
    """How source terms reach the edges of one layer's T targets: parts of their in-edges, in a fixed order."""

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
        """Number of the block's edges."""
        return self.block.csr.num_edges

    @property
    def edge(self) -> EdgeContext:
        """The block's edge columns."""
        return self.block.edge

    def parts(self, layer: Layer, terms: Terms) -> Iterator[BlockPart]:
        """Yield the block."""
        yield BlockPart(self.block, terms.source)


def run_layer(model: Model, index: int, *, h: Tensor, nodes: NodeContext, delivery: Delivery) -> Tensor:
    """Return layer `index`'s rows of the delivery's targets [T, W], after the activation.

    h and nodes: rows of the nodes that lie here, the T targets first. Raises LayerError where the layer's terms or
    messages do not have the shapes of the contract.
    """
    first = maps_first(model.layer(index), h, delivery.num_targets, delivery.num_edges)
    # source terms of all nodes that lie here, target terms of the T targets alone
    source, target = layer_terms(model, index, h=h, nodes=nodes, map_first=first)
    num_targets = delivery.num_targets
    if num_targets < len(h):  # a slice of all rows would cost a pass over them in the backward pass
        target, h = {name: rows[:num_targets] for name, rows in target.items()}, h[:num_targets]
    own = Terms(source, target)
    shortcut = model.shortcut(index, h)
    return layer_rows(model, index, terms=own, delivery=delivery, map_first=first, shortcut=shortcut)


def layer_terms(model: Model, index: int, *, h: Tensor, nodes: NodeContext, map_first: bool) -> Terms:
    """Return layer `index`'s terms of the nodes whose input rows are h: the half of a layer at each node's owner.

    map_first: apply the layer's value_weight, where it has one, to the values here and not to what they add up to.
    """
    layer = model.layer(index)
    terms = layer.transform(model.pre(index, h), nodes)
    if layer.value_weight is None or not map_first:
        return terms
    value = functional.linear(terms.source["value"], layer.value_weight)
    return Terms({**terms.source, "value": value}, terms.target)


def layer_rows(
    model: Model, index: int, *, terms: Terms, delivery: Delivery, map_first: bool, shortcut: Tensor | None
) -> Tensor:
    """Return layer `index`'s rows [T, W] from terms: the half of a layer at each target's owner.

    terms: source terms with at least the T targets' own as first rows; target terms of the T targets. map_first: as the
    terms were made. shortcut: `Model.shortcut` of the T targets' input rows.
    """
    aggregated = _aggregated(model.layer(index), terms, delivery)
    return updated_rows(
        model, index, target=terms.target, aggregated=aggregated, is_mapped=map_first, shortcut=shortcut
    )


def _aggregated(layer: Layer, terms: Terms, delivery: Delivery) -> Tensor:
    """Return what each target aggregates, its self message included [T, H, D (+ edge attributes)]."""
    if isinstance(delivery, OneBlock) and takes_self(layer, delivery.block):
        return whole_rows(layer, source=terms.source, target=terms.target, block=delivery.block.with_self)
    if isinstance(delivery, OneBlock) and not layer.include_self:
        return whole_rows(layer, source=terms.source, target=terms.target, block=delivery.block)
    parts = delivery.parts(layer, terms)
    if not layer.aggregation.mergeable:
        parts = iter([_only(parts, layer)])
    # A state per part; a delivery of one part merges nothing.
    state = layer.aggregation.merge_all(part.state(layer, terms.target) for part in parts)
    return finished(layer, state, source=terms.source, target=terms.target, edge=delivery.edge)


def updated_rows(
    model: Model, index: int, *, target: TermRows, aggregated: Tensor, is_mapped: bool, shortcut: Tensor | None
) -> Tensor:
    """Return layer `index`'s rows [T, W] from what its targets aggregated [T, H, D (+ A)].

    target: the T targets' target terms. is_mapped: the layer's value_weight was applied before the aggregation.
    shortcut: what `model.shortcut` gives for the T targets.
    """
    layer, linear = model.layer(index), model.layer(index).linear_update
    if layer.value_weight is None or is_mapped:
        return model.post(index, layer.update(target, aggregated), shortcut)
    if linear is None:
        mapped = functional.linear(aggregated, layer.value_weight)
        return model.post(index, layer.update(target, mapped), shortcut)
    maps = [Map(aggregated.flatten(1), layer.value_weight)]
    if linear.weight is not None:
        maps.append(Map(target[linear.term], linear.weight))
    relu = model.begins_with_relu(index)
    return model.post(index, affine(maps, linear.bias, relu=relu), shortcut, is_activated=relu)


def _only(parts: Iterator[Part], layer: Layer) -> Part:
    first, *others = parts
    if others:
        raise LayerError(
            f"its targets' in-edges come in {1 + len(others)} parts, and states of {type(layer.aggregation).__name__} "
            "do not merge",
            where=type(layer).__name__,
            fix="Use an execution that has all in-edges of a target in one block.",
        )
    return first


def maps_first(layer: Layer, h: Tensor, num_targets: int, num_edges: int) -> bool:
    """Return whether a layer's value_weight costs less per source, before the aggregation, than per target behind it.

    Counted in multiplications, forward and backward. Where h [S, W] needs no gradient, a map behind the aggregation
    leaves the aggregation without one too.
    """
    weight = layer.value_weight
    if weight is None:
        return True
    narrow, wide = weight.shape[1], weight.shape[0]  # columns to aggregate behind and before the map
    product, backward = weight.numel(), 2 if h.requires_grad else 1
    before = (1 + backward) * len(h) * product + 2 * _GATHER * num_edges * wide
    behind = (1 + backward) * num_targets * product + backward * _GATHER * num_edges * narrow
    return before < behind
