"""One layer over one block: from terms to a state over its edges, and from a whole state to aggregated rows.

Every execution that computes on blocks comes through here. Layers that define `coefficient` run on the fused kernels
and materialise nothing per edge but that scalar; layers that define `message` run over pieces of the edges, and in
training each piece is computed again during the backward pass rather than kept, so memory stays bounded there too. What
of a message depends on one end alone is computed once per node, and a message that a kernel sums is not materialised at
all (`layers.phases`).
Layers that define `propagate` get the block as it is.

For the same inputs the bits are the same: kernels sum in edge order and states merge in target order.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gnnflow.executions.levels import by_position, instance_terms, instances_of, leaf_closing, leaf_terms
from gnnflow.executions.pieces import Piece, cut
from gnnflow.executions.shapes import TermRows, check_rows, check_terms, reads_attributes
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import (
    Csr,
    Halves,
    Instances,
    Scales,
    coefficient_dtype,
    fuses_gates,
    gated_sum,
    gather_sources,
    gather_targets,
    identity,
)
from gnnflow.kernels.draws import repeated_draws
from gnnflow.layers import EdgeContext, Layer, Mean, Messages, State, Sum
from gnnflow.layers.phases import Phases, phases_of
from gnnflow.layers.terms import GatheredTerms

EDGES_PER_PIECE = 65_536


def partial_state(
    layer: Layer,
    *,
    source: TermRows,
    target: TermRows,
    block: BlockTensors,
    edges_per_piece: int = EDGES_PER_PIECE,
    onto: State | None = None,
) -> State:
    """Return the state over the block's edges alone, rescaled to the full in-degree but without the self message.

    onto: a state of the same targets over other edges, which the block's are merged into; it may be written to.

    source: terms of the block's S sources; target: terms of its T targets. Blocks that hold parts of the same targets'
    edges give states that `Aggregation.merge` joins. Raises LayerError where the layer's terms or messages do not have
    the shapes of the contract.
    """
    check_terms(layer, source, target, block)
    if layer.uses_propagate:
        inputs = _propagated_inputs(layer, source, target, block)
        rows = layer.propagate(inputs.source, target, inputs.csr, block.edge)
        check_rows(layer, "propagate()", rows, (block.num_targets, None, None))
        state = {"rows": rows}
    elif layer.uses_messages:
        state = _message_state(layer, source, target, block, edges_per_piece)
    else:
        messages = block_messages(layer, source, target, block)
        if onto is not None and block.sample_scale is None:
            return layer.levels.instance.add(onto, messages)
        state = layer.levels.instance.partial(messages)
    state = state if block.sample_scale is None else layer.levels.instance.rescale(state, block.sample_scale)
    return state if onto is None else layer.levels.instance.merge(onto, state)


def whole_rows(layer: Layer, *, source: TermRows, target: TermRows, block: BlockTensors) -> Tensor:
    """Return the aggregated rows [T, H, D (+ A)] of a block that holds all in-edges of its targets."""
    scaled = block.sample_scale is not None and layer.levels.instance.scaled_by_sample
    if scaled or not layer.uses_coefficients:
        return layer.levels.instance.finalize(partial_state(layer, source=source, target=target, block=block))
    check_terms(layer, source, target, block)
    return layer.levels.instance.whole(block_messages(layer, source, target, block))


def sort_edges(layer: Layer, block: BlockTensors) -> None:
    """Compute, and keep in the block, the orders of edges that a layer's backward pass reads."""
    instances = instances_of(layer, block)
    if instances is None:
        _ = block.csr.transposed
        return
    _ = instances.size, instances.leaves.transposed
    if layer.closes_leaves_with_roots:
        _ = instances.flat.transposed


def finished(
    layer: Layer, state: State, *, source: TermRows, target: TermRows, edge: EdgeContext, has_self: bool = False
) -> Tensor:
    """Return the aggregated rows [T, H, D (+ A)] of a whole state, with any self message.

    source: at least the targets' own source terms, as the first T rows. edge tells which edge columns the graph has.
    has_self: the self messages were edges of a block, and are in the state.
    """
    if layer.include_self and not has_self:
        num_targets = len(next(iter(state.values())))
        # the targets' own source terms [T, ...]
        own = {name: rows[:num_targets] for name, rows in source.items()}
        state = layer.levels.instance.merge(state, self_state(layer, source=own, target=target, edge=edge))
    return layer.levels.instance.finalize(state)


def takes_self(layer: Layer, block: BlockTensors) -> bool:
    """Return whether the self messages may be edges of the block: its scale would multiply them where sums are scaled.

    That saves merging two states, a pass over all rows forward and several backward.
    """
    scaled = block.sample_scale is not None and layer.levels.instance.scaled_by_sample
    return layer.include_self and layer.uses_coefficients and not scaled


def self_state(layer: Layer, *, source: TermRows, target: TermRows, edge: EdgeContext) -> State:
    """Return the state of one message from each target to itself: edge weight one, edge attributes zero.

    source and target: the targets' own terms, T rows each.
    """
    csr = identity(len(source["value"]), device=source["value"].device)
    block = BlockTensors(csr, edge.self_edges(csr.num_targets), None)
    if layer.uses_messages:
        return _message_state(layer, source, target, block, max(csr.num_targets, 1))
    return layer.levels.instance.partial(block_messages(layer, source, target, block))


def block_messages(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors) -> Messages:
    """Return a block's messages, over instances where the layer reads its in-edges so."""
    instances, csr = instances_of(layer, block), block.csr
    if instances is not None:
        csr = instances.roots
        if not layer.closes_leaves_with_roots:
            source = instance_terms(layer, source=source, target=target, instances=instances, edge=block.edge)
            instances = None
    scale = block.edge_scale
    return _coefficient_messages(layer, source, target, csr, block.edge, scale=scale, instances=instances)


def coefficient_terms(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors) -> frozenset[str]:
    """Return the names of the source terms that a layer's coefficient is made of."""
    by_source, by_target = _gathered_terms(source, target, block.csr)
    layer.coefficient(by_source, by_target, block.edge)
    return by_source.used


class _PropagatedInputs(NamedTuple):
    """Source terms and adjacency for `propagate`: of instances, the targets' own rows come first."""

    source: TermRows
    csr: Csr


def _propagated_inputs(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors) -> _PropagatedInputs:
    """Return what `propagate` reads of a block."""
    instances = instances_of(layer, block)
    if instances is None:
        return _PropagatedInputs(source, block.csr)
    rows = instance_terms(layer, source=source, target=target, instances=instances, edge=block.edge)
    # the targets' own rows in the first form [T, ...], then a row for each instance [E, ...]
    own = {name: by_position(layer, each)[:: layer.positions][: block.num_targets] for name, each in source.items()}
    joined = {name: torch.cat([own[name], each]) for name, each in rows.items()}
    sources = instances.roots.sources + block.num_targets
    if leaf_closing(layer, has_leaves=False) == "none":
        sources = torch.where(_loops(block), block.csr.targets, sources)
    csr = Csr(block.csr.offsets, sources, block.num_targets + block.csr.num_edges)
    return _PropagatedInputs(joined, csr)


def _loops(block: BlockTensors) -> Tensor:
    """Return a mask of the edges whose single leaf is their target [E].

    They are self-loops whatever other edges are in the block, where none may have more leaves.
    """
    assert block.leaves is not None
    # edges with one leaf [E], then of these the ones whose leaf is their target
    found = block.leaves.degree == 1
    found[found.clone()] = block.leaves.sources[block.leaves.offsets[:-1][found]] == block.csr.targets[found]
    return found


def _coefficient_messages(
    layer: Layer,
    source: TermRows,
    target: TermRows,
    csr: Csr,
    edge: EdgeContext,
    *,
    scale: Tensor | None,
    instances: Instances | None,
) -> Messages:
    value, coefficient, halves = source["value"], None, None
    # a value of one head serves the coefficients of many
    heads = None if value.shape[-2] == 1 else value.shape[-2]
    by_source, by_target = _gathered_terms(source, target, csr)
    if instances is not None:
        value, by_source = by_position(layer, value), leaf_terms(layer, source, instances)
    if layer.logit_slope is None:
        # a scalar per edge and head [E, H], None for ones; the value stays a row per source [S, H, D]
        coefficient = layer.coefficient(by_source, by_target, edge)
        if coefficient is not None:
            check_rows(layer, "coefficient()", coefficient, (csr.num_edges, heads))
    else:
        of_source = source["logit"] if instances is None else by_source["logit"]
        halves = Halves(of_source, target["logit"], layer.logit_slope)
        check_rows(layer, "the source half of the logit", halves.source, (csr.num_sources, heads))
        check_rows(layer, "the target half of the logit", halves.target, (csr.num_targets, heads))
    return Messages(
        csr,
        value,
        coefficient,
        attributes=edge.attributes if reads_attributes(layer) else None,
        dropout=dropout_of(layer),
        scale=scale,
        scales=Scales(source.get("scale"), target.get("scale")),
        halves=halves,
        instances=instances,
        leaf_mean=isinstance(layer.levels.leaf, Mean),
    )


def _message_state(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors, max_edges: int) -> State:
    instances = instances_of(layer, block)
    # terms of leaves are not those that an instance's message reads
    phases = phases_of(layer, source, target, block.edge) if instances is None else None
    if phases is not None:
        source, target = phases.terms(layer, "source", source), phases.terms(layer, "target", target)
        if (sums := _fused_sums(layer, phases, source, target, block)) is not None:
            return sums
    groups = cut(block.csr.offsets, max_edges=max_edges, may_split_targets=layer.levels.instance.mergeable)
    recompute = torch.is_grad_enabled() and sum(map(len, groups)) > 1
    message = layer.message if phases is None else functools.partial(phases.message, layer)

    def state_of(piece: Piece) -> State:
        csr, edge = block.csr.part(piece.targets, piece.edges), block.edge.part(piece.edges)
        held = None if instances is None else instances.part(piece.targets, piece.edges)
        # target terms of the piece's targets; its sources stay rows of the whole block
        scale = None if block.edge_scale is None else block.edge_scale[piece.edges]
        own = {name: rows[piece.targets] for name, rows in target.items()}
        how = functools.partial(_piece_state, message=message, scale=scale, instances=held)
        run = functools.partial(how, layer, source, own, csr, edge)
        state: State = checkpoint(run, use_reentrant=False, context_fn=repeated_draws) if recompute else run()
        return state

    # a state per run of targets, which follow each other: side by side they are the state of all T
    states = [layer.levels.instance.merge_all(state_of(piece) for piece in group) for group in groups]
    return states[0] if len(states) == 1 else {name: torch.cat([state[name] for state in states]) for name in states[0]}


def _fused_sums(layer: Layer, phases: Phases, source: TermRows, target: TermRows, block: BlockTensors) -> State | None:
    """Return the state of sums that one kernel makes of the messages; None where none does."""
    fused, kind = phases.fused, layer.levels.instance
    if fused is None or not isinstance(kind, Sum) or dropout_of(layer):
        return None
    # source rows [S, H, D], and each edge's factor [E]: its weight times what it stands for in a sample
    rows, weight = source[fused.row], block.edge.weight if fused.weighted else None
    if block.edge_scale is not None:
        weight = block.edge_scale if weight is None else weight * block.edge_scale
    if fused.gate is None:
        coefficient = None if weight is None else weight[:, None].to(coefficient_dtype(rows))
        return kind.partial(Messages(block.csr, rows, coefficient))
    # the two halves of the gate's argument, one per source and one per target; both must be as wide as the rows
    halves = source[fused.gate[0]], target[fused.gate[1]]
    if not fuses_gates(block.csr, rows) or any(half.shape[1:] != rows.shape[1:] for half in halves):
        return None
    summed = gated_sum(block.csr, halves[1].flatten(1), halves[0].flatten(1), rows.flatten(1), weight)
    return kind.of_sums(summed.view(-1, *rows.shape[1:]))


def _piece_state(
    layer: Layer,
    source: TermRows,
    target: TermRows,
    csr: Csr,
    edge: EdgeContext,
    *,
    message: Callable[..., Tensor],
    scale: Tensor | None,
    instances: Instances | None,
) -> State:
    if instances is not None:
        source = instance_terms(layer, source=source, target=target, instances=instances, edge=edge)
        csr = instances.roots
    by_source, by_target = _gathered_terms(source, target, csr)
    # a row per edge and head [E, H, D], which is its own source from here on
    messages = message(by_source, by_target, edge)
    check_rows(layer, "message()", messages, (csr.num_edges, None, None))
    return layer.levels.instance.partial(Messages(csr.edges, messages, dropout=dropout_of(layer), scale=scale))


def _gathered_terms(source: TermRows, target: TermRows, csr: Csr) -> tuple[GatheredTerms, GatheredTerms]:
    if csr.is_identity:  # a gather would give the nodes' own rows, into which a layer may write as into an edge's
        return GatheredTerms(source, torch.clone), GatheredTerms(target, torch.clone)
    by_source = GatheredTerms(source, functools.partial(gather_sources, csr))
    return by_source, GatheredTerms(target, functools.partial(gather_targets, csr))


def dropout_of(layer: Layer) -> float:
    """Return the rate at which a layer drops coefficients now."""
    return layer.coefficient_dropout if layer.training else 0.0
