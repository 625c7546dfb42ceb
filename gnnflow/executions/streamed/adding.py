"""States that grow piece by piece, and gradients that do: without a state per piece and a merge of the two.

    state = None
    for each piece: state = add_block(layer, state, ...)            the kernel adds to the state that is there
    for each piece: add_gradients(layer, gradients of terms, ...)      and to the gradients that are there

Where a layer's messages are summed with coefficients that nothing learns, or by the kernels for gates or for attention,
neither takes a message; `add_gradients` says where that is not so, and the piece has to be differentiated.

Shapes: T targets, S sources, H heads, D width of a head.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gnnflow.executions.levels import instances_of
from gnnflow.executions.propagate import block_messages, coefficient_terms, dropout_of, partial_state
from gnnflow.executions.shapes import TermRows
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import (
    Attended,
    Gates,
    Scales,
    add_gated_gradient,
    add_gated_sum,
    add_softmax_gradient,
    empty_rows,
    fuses_gates,
)
from gnnflow.kernels.memory import give_back_if_full
from gnnflow.layers import EdgeContext, Layer, Mean, Messages, SoftmaxAttention, State, Sum, Terms
from gnnflow.layers.phases import Fused, phases_of

SLOPE = "slope"
"""Names, in the state of a gated sum [T, H, D], the slope of the sums by the targets' half."""


def add_block(
    layer: Layer,
    state: State | None,
    *,
    source: TermRows,
    target: TermRows,
    block: BlockTensors,
    with_slopes: bool = False,
) -> State:
    """Add a block's edges to a state, in place where there is one, and return the state. Not differentiated.

    with_slopes: for a backward pass. The state of a gated sum then holds them too.
    """
    fused = gated(layer, source, target, block)
    if fused is not None:
        gates = _gates(fused, source, target, block)
        if state is None:
            rows = source[fused.row]
            shape = (block.num_targets, *rows.shape[1:])
            state = {name: empty_rows(*shape).zero_() for name in ("sum", *[SLOPE] * with_slopes)}
        add_gated_sum(state["sum"], state.get(SLOPE), gates)
        return state
    kind = layer.levels.instance
    if not (layer.uses_coefficients and (kind.adds or layer.logit_slope is not None)):
        give_back_if_full()  # what Python made of the edges before: kernels that add in place make nothing of an edge
    if state is None:
        state = partial_state(layer, source=source, target=target, block=block)
        # a message to oneself may be the source's own row, which other pieces still read
        return {name: rows.clone() for name, rows in state.items()} if block.csr.is_identity else state
    if layer.uses_coefficients and (messages := _sampled(layer, source, target, block)) is not None:
        return kind.add(state, messages)
    return kind.merge(state, partial_state(layer, source=source, target=target, block=block))


def add_gradients(
    layer: Layer,
    gradients: Terms,
    *,
    source: TermRows,
    target: TermRows,
    block: BlockTensors,
    by_state: State,
    has_slopes: bool,
) -> bool:
    """Add to the gradients of source terms [S, ...], given the gradient of the whole state, and return True.

    Return False, and add nothing, where the block has to be differentiated. Target terms have no gradients, or
    `target_gradients` knows them; for attention they are added to. by_state: as `for_parts` returns it. has_slopes: the
    whole state came with slopes.
    """
    fused = gated(layer, source, target, block)
    if fused is not None and has_slopes:
        assert fused.gate is not None
        by_rows, by_other = (gradients.source[name].flatten(1) for name in (fused.row, fused.gate[0]))
        grad = by_state["sum"].flatten(1).contiguous()
        add_gated_gradient(by_rows, by_other, _gates(fused, source, target, block), grad)
        return True
    with torch.no_grad():
        if (of := attended(layer, source, target, block)) is not None:
            made = gradients.source["logit"], gradients.target["logit"], gradients.source["value"]
            known = {"shift": by_state["max"], "by_each": by_state["denominator"], "by_mean": by_state["mean"]}
            add_softmax_gradient(made, of, **known)
            return True
    if not (layer.uses_coefficients and layer.levels.instance.adds):
        return False
    with torch.enable_grad():  # to see what of the coefficients learns
        messages = _sampled(layer, source, target, block)
    if messages is None or messages.value is not source["value"]:
        return False
    with torch.no_grad():
        return layer.levels.instance.add_value_gradient(gradients.source["value"], messages, by_state)


def reads_values(layer: Layer, *, source: TermRows, target: TermRows, block: BlockTensors) -> bool:
    """Return whether a backward pass over a layer's edges reads source["value"]: not where gradients of sums are added.

    Terms and block: of no rows, and no edges with leaves.
    """
    kind = layer.levels.instance
    adds_scaled = isinstance(kind, Sum | Mean) and (kind.takes_scales or not kind.scaled_by_sample)
    if not (layer.uses_coefficients and adds_scaled) or "value" in coefficient_terms(layer, source, target, block):
        return True
    with torch.enable_grad():  # to see what of the coefficients learns
        messages = block_messages(layer, source, target, block)
    return messages.value is not source["value"] or not messages.only_value_learns


def attended(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors) -> Attended | None:
    """Return a layer's messages as the kernels for attention add them, both ways; None where they do not."""
    kind = layer.levels.instance
    if not layer.uses_coefficients or not isinstance(kind, SoftmaxAttention) or instances_of(layer, block) is not None:
        return None
    return kind.attended(block_messages(layer, source, target, block))


def target_gradients(layer: Layer, whole: State, by_state: State, like: Terms, edge: EdgeContext) -> dict[str, Tensor]:
    """Return the gradients of target terms that `add_gradients` leaves out, given whole states and their gradients.

    like: the layer's terms, of any rows; edge: the columns of its edges.
    """
    if SLOPE not in whole:
        return {}
    phases = phases_of(layer, like.source, like.target, edge)
    assert phases is not None
    assert phases.fused is not None
    assert phases.fused.gate is not None
    return {phases.fused.gate[1]: by_state["sum"] * whole[SLOPE]}


def gated(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors) -> Fused | None:
    """Return how the gate kernel sums a layer's messages; None where it cannot, or cannot use the terms unchanged."""
    if not (layer.uses_messages and isinstance(layer.levels.instance, Sum)) or dropout_of(layer):
        return None
    if block.sample_scale is not None or instances_of(layer, block) is not None:
        return None
    phases = phases_of(layer, source, target, block.edge)
    if phases is None or any(phases.hoisted.values()):
        return None
    fused = phases.fused
    if fused is None or fused.gate is None or fused.gate[0] == fused.row:
        return None
    rows = source[fused.row]
    alike = all(half.shape[1:] == rows.shape[1:] for half in (source[fused.gate[0]], target[fused.gate[1]]))
    return fused if alike and fuses_gates(block.csr, rows) else None


def _gates(fused: Fused, source: TermRows, target: TermRows, block: BlockTensors) -> Gates:
    assert fused.gate is not None
    weight = block.edge.weight if fused.weighted else None
    if block.edge_scale is not None:
        weight = block.edge_scale if weight is None else weight * block.edge_scale
    terms = target[fused.gate[1]], source[fused.gate[0]], source[fused.row]
    # halves of targets and sources, and rows of sources, all heads side by side: [T, H D], [S, H D], [S, H D]
    own, other, rows = (each.detach().flatten(1).contiguous() for each in terms)
    return Gates(block.csr, own, other, rows, weight)


def _sampled(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors) -> Messages | None:
    """Return a block's messages, whose sums are as if every in-edge were there; None where they cannot be made so."""
    kind, scale = layer.levels.instance, block.sample_scale
    messages = block_messages(layer, source, target, block)
    if scale is None or not kind.scaled_by_sample:
        return messages
    if not kind.takes_scales:
        return None
    own = messages.scales.target
    return replace(messages, scales=Scales(messages.scales.source, scale if own is None else own * scale))
