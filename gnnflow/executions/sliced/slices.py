"""A model cut into slices for GraphInfer (AGL section 3.4): pure functions of one partition, NumPy in and NumPy out.

    h = encode_slice(features, nodes)                                once, at each node's owner
    for each layer k:
        for each relation r:
            terms = term_slice(k, r, h, nodes of an end of r)        at the owner, who packs and sends the source terms
        h = layer_slice(k, own terms, source terms received, block)  at the target's owner, of one relation
        h = relations_slice(k, h, nodes, gather)                     at the target's owner, of several
            gather(r, own terms)                                     what came of r's in-edges: rows or states
    prediction_slice(outputs)                                        at the owner

What is given is computed on the device that holds the model, and comes back to the memory of the machine.

Only source terms travel, as one float32 row per node and relation that reads it. Of one relation its own terms stay
with a target; of several its input row, from which the owner computes its terms for every relation into its type. A
target whose edges lie in several places gets one `partial_slice` each; `finish_slice` merges them in the order given,
which must be the same in every run.

Shapes: N nodes, T targets, n of a run, T' of one type, S sources, W width, C outputs, K packed width of a node's source
terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gnnflow.executions.base import (
    BlockPart,
    Delivery,
    OneBlock,
    Received,
    is_narrower_first,
    layer_rows,
    layer_terms,
    takes_relu,
)
from gnnflow.executions.levels import leaf_closing
from gnnflow.executions.moving import Held, to_device
from gnnflow.executions.plan import NO_COLUMNS, EdgeColumns, TermArrays, TermLayout, plan_relation
from gnnflow.executions.relations import RelationPass, run_passes
from gnnflow.executions.sliced.term_arrays import SliceTerms, arrays_to_terms, terms_to_arrays
from gnnflow.executions.tensors import (
    block_tensors,
    feature_tensors,
    node_context,
    rows_of_types,
    tensor,
    types_of,
)
from gnnflow.graph.arrays import Array, FloatArray
from gnnflow.graph.batch import Block, Degrees, NodeFeatures
from gnnflow.graph.errors import LayerError
from gnnflow.layers import Layer, Model, NodeContext, Terms
from gnnflow.layers.terms import LinearUpdate
from gnnflow.native import core

_SHORTCUT = "model.shortcut"
"""Where the model has a residual, its part of a row: kept at the node's owner beside the layer's target terms."""
_OWN = "layer.own"
"""Where that is narrower, what a layer's `linear_update` makes of a target's term: kept in the term's place."""


@dataclass(frozen=True)
class Gathered:
    """The in-edges of T targets that a partition gathered: one block, or states of all their parts.

    source: source terms of the block's S sources, the T targets' own first; with states, of the T targets alone.
    room: how many more rows lie before them, which `gathered_runs` writes to unless `Block.own` is known.
    states: merged in this order. columns: the edges' columns, for the self message that joins states.
    """

    source: TermArrays
    block: Block | None = None
    states: Sequence[TermArrays] = ()
    columns: EdgeColumns = NO_COLUMNS
    room: int = 0


@torch.no_grad()
def encode_slice(model: Model, features: NodeFeatures, nodes: Degrees | None = None) -> FloatArray:
    """Return the rows the first layer starts from [N, W]. nodes: of the same rows, for types without features."""
    check_evaluating(model)
    held = _to_device(model, feature_tensors(features))
    return float_array(model.encode(held, None if nodes is None else _to_device(model, node_context(nodes))))


@torch.no_grad()
def term_slice(model: Model, index: int, relation: int = 0, *, h: FloatArray, nodes: Degrees) -> SliceTerms:
    """Return layer `index`'s terms in a relation, of nodes of one type whose input rows are h [N, W].

    Nodes of its source type have source terms, nodes of its target type target terms; ignore the others.
    """
    check_evaluating(model)
    rows, context = _to_device(model, (tensor(h), node_context(nodes)))
    return _as_arrays(_terms(model, index, rows, context.of_relation(relation), relation=relation))


@dataclass(frozen=True)
class KeptTerms:
    """The terms of targets that are kept along with their source terms.

    layout: of its target terms that are no source term's rows; it may have none. same: the source term whose rows each
    other target term has, as GraphSAGE's h.
    """

    layout: TermLayout
    same: Mapping[str, str]

    def of(self, target: TermArrays) -> dict[str, FloatArray]:
        """Return the target terms that are kept."""
        return {name: target[name] for name in self.layout.names}

    def whole(self, source: dict[str, FloatArray], kept: TermArrays) -> SliceTerms:
        """Return all terms of targets from their source terms and what was kept."""
        named = [(name, source[of]) for name, of in self.same.items()]
        # the width is given, since -1 cannot be found where there are no rows
        same = {name: rows.reshape(len(rows), math.prod(rows.shape[1:])) for name, rows in named}
        return SliceTerms(source, {**kept, **same})


@torch.no_grad()
def kept_terms(model: Model, index: int) -> KeptTerms:
    """Return what is kept of a target's terms, as `term_slice` gives them."""
    one = torch.ones(1, device=model.device)
    terms = _terms(model, index, one.new_ones(1, model.relations(index).layer(0).in_width), NodeContext(one, one, one))
    same = {
        name: of
        for name, rows in terms.target.items()
        for of, sent in terms.source.items()
        if rows.data_ptr() == sent.data_ptr() and rows.shape == sent.reshape(1, -1).shape
    }
    return KeptTerms(TermLayout.of({name: rows[:0] for name, rows in terms.target.items() if name not in same}), same)


def reads_in_place(model: Model, index: int, block: Block) -> bool:
    """Return whether layer `index` takes `Block.own`: its kernels read terms edge by edge, wherever sources lie.

    Not where the message of a target to itself is merged as a separate state.
    """
    layer = model.relations(index).layer(0)
    if model.device.type != "cpu" or core() is None or not layer.uses_coefficients:
        return False
    if leaf_closing(layer, has_leaves=block.edges.leaves is not None) != "none":
        return False
    return not (layer.include_self and block.sample_scale is not None and layer.levels.instance.scaled_by_sample)


@torch.no_grad()
def layer_slice(model: Model, index: int, *, own: TermArrays, source: TermArrays, block: Block) -> FloatArray:
    """Return layer `index`'s rows of the block's targets [T, W], after the activation.

    own: the targets' target terms, T rows. source: the sources' source terms, S rows of which the first T are the
    targets' own. The block must hold all in-edges of its targets.
    """
    check_evaluating(model)
    terms = Terms(_tensors(model, source), _tensors(model, own))
    return _rows(model, index, terms, OneBlock(_to_device(model, block_tensors(block))))


@torch.no_grad()
def partial_slice(
    model: Model, index: int, *, own: TermArrays, source: TermArrays, block: Block, relation: int = 0
) -> dict[str, FloatArray]:
    """Return layer `index`'s states of the block's targets over the block's edges alone; see `finish_slice`.

    own and source as for `layer_slice`. sample_scale must count all kept edges, not the block's part. relation: of the
    block's edges, on a typed graph.
    """
    check_evaluating(model)
    layer = model.relations(index).layer(relation)
    _check_mergeable(layer, index)
    part = BlockPart(_to_device(model, block_tensors(block)), _tensors(model, source))
    return terms_to_arrays(part.state(layer, _tensors(model, own)))


@torch.no_grad()
def finish_slice(
    model: Model,
    index: int,
    *,
    own: TermArrays,
    own_source: TermArrays,
    states: Sequence[Mapping[str, FloatArray]],
    columns: EdgeColumns = NO_COLUMNS,
) -> FloatArray:
    """Return layer `index`'s rows [T, W] from the states of all parts of the targets' in-edges, merged in order.

    own and own_source: the targets' target and source terms, T rows. columns: those that edges have, for the self
    message.
    """
    check_evaluating(model)
    _check_mergeable(model.relations(index).layer(0), index)
    terms = Terms(_tensors(model, own_source), _tensors(model, own))
    gathered = Gathered(own_source, None, states, columns)
    return _rows(model, index, terms, _delivery_of(model, gathered))


def gathered_slice(model: Model, index: int, *, own: TermArrays, gathered: Gathered) -> FloatArray:
    """Return layer `index`'s rows [T, W] from what was gathered of all in-edges. own: the targets' target terms."""
    if gathered.block is not None:
        return layer_slice(model, index, own=own, source=gathered.source, block=gathered.block)
    return finish_slice(
        model,
        index,
        own=own,
        own_source=gathered.source,
        states=gathered.states,
        columns=gathered.columns,
    )


def gathered_runs(
    model: Model, index: int, *, own: TermArrays, gathered: Gathered, runs: Sequence[slice]
) -> Iterator[FloatArray]:
    """Yield layer `index`'s rows of each run of the T targets [n, W]: one run's are sent while the next is computed.

    A row is the same as of `gathered_slice`, but for the last bits of matrix products, which may depend on how many
    rows they have.

    own and gathered: as for `gathered_slice`; a block's sources have `room_for(runs)` before them.
    """
    if len(runs) == 1:
        yield gathered_slice(model, index, own=own, gathered=gathered)
        return
    for run in runs:
        targets = {name: rows[run] for name, rows in own.items()}
        yield gathered_slice(model, index, own=targets, gathered=_of_run(gathered, run))


def room_for(runs: Sequence[slice]) -> int:
    """Return how much room a block's sources need before them: none for one run, else the longest run's length."""
    return max(run.stop - run.start for run in runs) if len(runs) > 1 else 0


def _of_run(gathered: Gathered, run: slice) -> Gathered:
    """Return the gathered edges of a run of targets, whose own source terms are copied to before all sources."""
    if gathered.block is None:
        of_targets = {name: rows[run] for name, rows in gathered.source.items()}
        states = [{name: rows[run] for name, rows in state.items()} for state in gathered.states]
        return replace(gathered, source=of_targets, states=states)
    if gathered.block.own is not None:
        return replace(gathered, block=gathered.block.run(run))
    # the run's own source terms lie right before all sources [n + S, ...]
    begin = gathered.room - (run.stop - run.start)
    source = {}
    for name, rows in gathered.source.items():
        rows[begin : gathered.room] = rows[gathered.room :][run]
        source[name] = rows[begin:]
    return replace(gathered, source=source, block=gathered.block.run(run), room=0)


@torch.no_grad()
def relations_slice(
    model: Model, index: int, *, h: FloatArray, nodes: Degrees, gather: Callable[[int, SliceTerms], Gathered]
) -> FloatArray:
    """Return layer `index`'s rows of T targets [T, W], after the activation.

    h and nodes: input rows, degrees and types of the targets. gather: gives what came of a relation's in-edges for its
    T' targets, which are all of the T of the type that it leads to, from their own terms in it; called once per
    relation in the order of `RelationLayers.order`.
    """
    check_evaluating(model)
    layers = model.relations(index)
    targets = rows_of_types(types_of(nodes), layers.schema.num_types)
    rows, context, targets = _to_device(model, (tensor(h), node_context(nodes), targets))
    dropped = model.pre(index, rows)

    def pass_of(relation: int) -> RelationPass:
        # the relation's targets among the T, and their own terms
        layer, target_type = layers.layer(relation), layers.schema.target_types[relation]
        degrees = context.of_type(targets, target_type).of_relation(relation)
        own = layer_terms(layer, h=targets.of(target_type, dropped), nodes=degrees, map_first=is_narrower_first(layer))
        gathered = gather(relation, _as_arrays(own))
        terms = Terms(_tensors(model, gathered.source), own.target)
        return RelationPass(layer, terms, _delivery_of(model, gathered), is_narrower_first(layer))

    return float_array(run_passes(model, index, pass_of, h=rows, dropped=dropped, targets=targets))


def _delivery_of(model: Model, gathered: Gathered) -> Delivery:
    """Return a delivery of the gathered edges."""
    if gathered.block is not None:
        return OneBlock(_to_device(model, block_tensors(gathered.block)))
    # no edges, but the columns that a self message needs
    edge = _to_device(model, gathered.columns.of_no_edges())
    received = [_tensors(model, state) for state in gathered.states]
    return Received(len(gathered.source["value"]), 0, edge, received)


@torch.no_grad()
def prediction_slice(model: Model, outputs: Sequence[FloatArray | None]) -> FloatArray:
    """Return logits [N, C] from one output per layer; those outside `model.head_layers` may be None."""
    check_evaluating(model)
    return float_array(model.predict([_to_device(model, tensor(output)) for output in outputs]))


@torch.no_grad()
def embedding_slice(model: Model, outputs: Sequence[FloatArray | None]) -> FloatArray:
    """Return embeddings [N, W] from one output per layer; those outside `model.embedding_layers` may be None."""
    check_evaluating(model)
    return float_array(model.embedding([_to_device(model, tensor(output)) for output in outputs]))


def _to_device(model: Model, held: Held) -> Held:
    return to_device(model.device, held)


def _tensors(model: Model, arrays: TermArrays) -> dict[str, Tensor]:
    return _to_device(model, arrays_to_terms(arrays))


def _as_arrays(terms: Terms) -> SliceTerms:
    return SliceTerms(terms_to_arrays(terms.source), terms_to_arrays(terms.target))


def _terms(model: Model, index: int, h: Tensor, nodes: NodeContext, *, relation: int = 0) -> Terms:
    """Return a relation's terms of nodes; where terms stay at their owner, with the model's shortcut among them."""
    layers = model.relations(index)
    layer = layers.layer(relation)
    terms = layer_terms(layer, h=model.pre(index, h), nodes=nodes, map_first=is_narrower_first(layer))
    if layers.only is None:
        return terms
    target, linear, shortcut = dict(terms.target), _narrowing(layer), model.shortcut(index, h)
    if linear is not None and linear.weight is not None:
        target[_OWN] = functional.linear(target.pop(linear.term), linear.weight, linear.bias)
    if shortcut is not None:
        target[_SHORTCUT] = shortcut
    return Terms(terms.source, target)


def _narrowing(layer: Layer) -> LinearUpdate | None:
    """Return the layer's update where it makes the row that a target keeps narrower, and no edge reads that row."""
    linear = layer.linear_update
    if layer.value_weight is None or linear is None or linear.weight is None or not is_narrower_first(layer):
        return None
    narrows = linear.weight.shape[0] < linear.weight.shape[1]
    return (
        linear if narrows and linear.term not in plan_relation(layer, NO_COLUMNS, map_first=True).target_reads else None
    )


def _rows(model: Model, index: int, terms: Terms, delivery: Delivery) -> FloatArray:
    own = dict(terms.target)
    # the residual of the targets' rows [T, W], which was kept with their terms
    shortcut, mapped = own.pop(_SHORTCUT, None), own.pop(_OWN, None)
    layer = model.relations(index).layer(0)
    first = is_narrower_first(layer)
    relu = takes_relu(model, index, is_mapped=first)
    rows = layer_rows(layer, terms=Terms(terms.source, own), delivery=delivery, map_first=first, relu=relu, own=mapped)
    return float_array(model.post(index, rows, shortcut, is_activated=relu))


def _check_mergeable(layer: Layer, index: int) -> None:
    aggregation = layer.levels.instance
    if not aggregation.mergeable:
        raise LayerError(
            f"layer {index + 1} aggregates with {type(aggregation).__name__}, whose states do not merge",
            where=type(layer).__name__,
            fix="Use layer_slice on a block with all in-edges of its targets.",
        )


def check_evaluating(model: Model) -> None:
    """Assert that a model is in evaluation mode."""
    assert not model.training, "slices run in evaluation mode: call model.eval() first"


def float_array(rows: Tensor) -> FloatArray:
    """Return rows as float32 in the memory of the machine."""
    result: Array = rows.cpu().numpy()
    return result.astype(np.float32, copy=False)
