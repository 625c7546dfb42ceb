"""One layer over one block: from terms to a state over its edges, and from a whole state to aggregated rows.

Every execution that computes on blocks comes through here. Layers that define `coefficient` run on the fused kernels
and materialise nothing per edge but that scalar; layers that define `message` run over pieces of the edges, and in
training each piece is computed again during the backward pass rather than kept, so memory stays bounded there too.
Layers that define `propagate` get the block as it is.

For the same inputs the bits are the same: kernels sum in edge order and states merge in target order.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gnnflow.executions.pieces import Piece, cut
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.errors import LayerError
from gnnflow.kernels import Csr, Halves, Scales, gather_sources, gather_targets, identity
from gnnflow.layers import EdgeContext, Layer, Messages, State
from gnnflow.layers.terms import GatheredTerms

EDGES_PER_PIECE = 65_536

TermRows = Mapping[str, Tensor]


def partial_state(
    layer: Layer, *, source: TermRows, target: TermRows, block: BlockTensors, edges_per_piece: int = EDGES_PER_PIECE
) -> State:
    """Return the state over the block's edges alone, rescaled to the full in-degree but without the self message.

    source: terms of the block's S sources; target: terms of its T targets. Blocks that hold parts of the same targets'
    edges give states that `Aggregation.merge` joins. Raises LayerError where the layer's terms or messages do not have
    the shapes of the contract.
    """
    _check_terms(layer, source, target, block)
    if layer.uses_propagate:
        rows = layer.propagate(source, target, block.csr, block.edge)
        _check_rows(layer, "propagate()", rows, (block.num_targets, None, None))
        state = {"rows": rows}
    elif layer.uses_messages:
        state = _message_state(layer, source, target, block, edges_per_piece)
    else:
        messages = _coefficient_messages(layer, source, target, block.csr, block.edge, scale=block.edge_scale)
        state = layer.aggregation.partial(messages)
    return state if block.sample_scale is None else layer.aggregation.rescale(state, block.sample_scale)


def whole_rows(layer: Layer, *, source: TermRows, target: TermRows, block: BlockTensors) -> Tensor:
    """Return the aggregated rows [T, H, D (+ A)] of a block that holds all in-edges of its targets."""
    scaled = block.sample_scale is not None and layer.aggregation.scaled_by_sample
    if scaled or not layer.uses_coefficients:
        return layer.aggregation.finalize(partial_state(layer, source=source, target=target, block=block))
    _check_terms(layer, source, target, block)
    messages = _coefficient_messages(layer, source, target, block.csr, block.edge, scale=block.edge_scale)
    return layer.aggregation.whole(messages)


def finished(layer: Layer, state: State, *, source: TermRows, target: TermRows, edge: EdgeContext) -> Tensor:
    """Return the aggregated rows [T, H, D (+ A)] of a whole state, after merging the self message where there is one.

    source: at least the targets' own source terms, as the first T rows. edge tells which edge columns the graph has.
    """
    if layer.include_self:
        num_targets = len(next(iter(state.values())))
        own = {name: rows[:num_targets] for name, rows in source.items()}
        state = layer.aggregation.merge(state, self_state(layer, source=own, target=target, edge=edge))
    return layer.aggregation.finalize(state)


def takes_self(layer: Layer, block: BlockTensors) -> bool:
    """Return whether the self messages may be edges of the block: its scale would multiply them where sums are scaled.

    That saves merging two states, a pass over all rows forward and several backward.
    """
    scaled = block.sample_scale is not None and layer.aggregation.scaled_by_sample
    return layer.include_self and layer.uses_coefficients and not scaled


def self_state(layer: Layer, *, source: TermRows, target: TermRows, edge: EdgeContext) -> State:
    """Return the state of one message from each target to itself: edge weight one, edge attributes zero.

    source and target: the targets' own terms, T rows each.
    """
    csr = identity(len(source["value"]), device=source["value"].device)
    context = edge.self_edges(csr.num_targets)
    if layer.uses_messages:
        return _piece_state(layer, source, target, csr, context)
    return layer.aggregation.partial(_coefficient_messages(layer, source, target, csr, context))


def _coefficient_messages(
    layer: Layer, source: TermRows, target: TermRows, csr: Csr, edge: EdgeContext, *, scale: Tensor | None = None
) -> Messages:
    value, coefficient, halves = source["value"], None, None
    if layer.logit_slope is None:
        by_source, by_target = _seen_from_edges(source, target, csr)
        # a scalar per edge and head [E, H], None for ones; the value stays a row per source [S, H, D]
        coefficient = layer.coefficient(by_source, by_target, edge)
        if coefficient is not None:
            _check_rows(layer, "coefficient()", coefficient, (csr.num_edges, value.shape[1]))
    else:
        halves = Halves(source["logit"], target["logit"], layer.logit_slope)
        _check_rows(layer, "the source half of the logit", halves.source, (csr.num_sources, value.shape[1]))
        _check_rows(layer, "the target half of the logit", halves.target, (csr.num_targets, value.shape[1]))
    return Messages(
        csr,
        value,
        coefficient,
        attributes=edge.attributes if layer.uses_edge_attributes else None,
        dropout=_dropout(layer),
        scale=scale,
        scales=Scales(source.get("scale"), target.get("scale")),
        halves=halves,
    )


def _message_state(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors, max_edges: int) -> State:
    groups = cut(block.csr.offsets, max_edges=max_edges, may_split_targets=layer.aggregation.mergeable)
    recompute = torch.is_grad_enabled() and sum(map(len, groups)) > 1

    def state_of(piece: Piece) -> State:
        csr, edge = block.csr.part(piece.targets, piece.edges), block.edge.part(piece.edges)
        # target terms of the piece's targets; its sources stay rows of the whole block
        scale = None if block.edge_scale is None else block.edge_scale[piece.edges]
        own = {name: rows[piece.targets] for name, rows in target.items()}
        run = functools.partial(_piece_state, layer, source, own, csr, edge, scale=scale)
        state: State = checkpoint(run, use_reentrant=False) if recompute else run()
        return state

    # a state per run of targets, which follow each other: side by side they are the state of all T
    states = [layer.aggregation.merge_all(state_of(piece) for piece in group) for group in groups]
    return states[0] if len(states) == 1 else {name: torch.cat([state[name] for state in states]) for name in states[0]}


def _piece_state(
    layer: Layer, source: TermRows, target: TermRows, csr: Csr, edge: EdgeContext, *, scale: Tensor | None = None
) -> State:
    by_source, by_target = _seen_from_edges(source, target, csr)
    # a row per edge and head [E, H, D], which is its own source from here on
    messages = layer.message(by_source, by_target, edge)
    _check_rows(layer, "message()", messages, (csr.num_edges, None, None))
    return layer.aggregation.partial(Messages(csr.edges, messages, dropout=_dropout(layer), scale=scale))


def _seen_from_edges(source: TermRows, target: TermRows, csr: Csr) -> tuple[GatheredTerms, GatheredTerms]:
    by_source = GatheredTerms(source, functools.partial(gather_sources, csr))
    return by_source, GatheredTerms(target, functools.partial(gather_targets, csr))


def _dropout(layer: Layer) -> float:
    return layer.coefficient_dropout if layer.training else 0.0


def _check_terms(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors) -> None:
    if "value" not in source:
        raise LayerError(
            f"transform() gave the source terms {', '.join(source) or 'none'}, without value",
            where=type(layer).__name__,
            fix='Return Terms(source={"value": rows [N, H, D], ...}, target={...}).',
        )
    _check_rows(layer, 'transform()\'s source term "value"', source["value"], (block.csr.num_sources, None, None))
    takes_scales = layer.aggregation.takes_scales and layer.uses_coefficients
    if not takes_scales and ("scale" in source or "scale" in target):
        raise LayerError(
            'transform() gave a term "scale", which only a sum of coefficient x value takes',
            where=type(layer).__name__,
            fix="Aggregate with Sum and define coefficient(), or give the term another name.",
        )
    if layer.uses_edge_attributes and block.edge.attributes is None:
        raise LayerError(
            "it needs edge attributes and the graph has none",
            where=type(layer).__name__,
            fix="Name the edge columns to use in graph.edge_features.",
        )


def _check_rows(layer: Layer, what: str, rows: Tensor, expected: tuple[int | None, ...]) -> None:
    fits = rows.dim() == len(expected) and all(
        want in {None, have} for want, have in zip(expected, rows.shape, strict=True)
    )
    if not fits:
        shape = ", ".join("any" if size is None else str(size) for size in expected)
        raise LayerError(
            f"{what} has shape {list(rows.shape)}, expected [{shape}]",
            where=type(layer).__name__,
            fix="Shapes are value [N, H, D], coefficient [E, H], message [E, H, D], propagate [T, H, D]; H is 1 in a "
            "layer without heads.",
        )
