"""Runs a model over the whole graph as one batch, on ranks that each own a run of nodes (GraphTheta).

    rows   = active_rows(blocks, targets, bounds=..., exchange=...)          once: who computes and sends what
    batch  = rank_batch(model, rows, features=..., nodes=..., exchange=...)  once: as tensors (`batch.py`)
    logits = forward(model, batch, exchange)                                 in every step, on all ranks together

A layer's terms are computed at each node's owner (NN-Transform). Source terms of rows that other ranks read leave at
once; meanwhile the edges between own rows are aggregated (Gather, Sum), then those from mirrors, and the states of both
are merged (Reduce). An aggregation whose states do not merge, and a layer that takes all in-edges at once, waits for
the rows first. `update` runs at the owner (NN-Apply). Of several relations it is the input rows that travel, after
dropout: a row once, however many relations read it.

Where the store has edges placed at their sources or on a grid, a layer may be computed there instead, and states go to
the targets (`placed.py`), where that is fewer bytes.

One rank is the same without mirrors. The order of sums depends on how nodes are divided among ranks, never on time.

Shapes: N rows, T targets, M mirrors, C outputs, W width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from gnnflow.executions.base import (
    OneBlock,
    first_rows,
    is_cheaper_first,
    layer_rows,
    takes_relu,
    terms_of,
    updated_rows,
)
from gnnflow.executions.globalbatch.active_sets import Gathered
from gnnflow.executions.globalbatch.batch import RankBatch, RankLayer
from gnnflow.executions.globalbatch.placed import (
    PlacedTensors,
    aggregated_by_place,
    route_of,
)
from gnnflow.executions.propagate import finished, partial_state, takes_self
from gnnflow.executions.relations import run_layer
from gnnflow.executions.row_exchange import Exchange, depart
from gnnflow.executions.stages import UNTIMED, Stages
from gnnflow.kernels.draws import repeated_draws
from gnnflow.layers import (
    Layer,
    Model,
    NodeContext,
    RelationLayers,
    Terms,
)


def forward(
    model: Model, batch: RankBatch, exchange: Exchange, *, recompute: bool = False, stages: Stages = UNTIMED
) -> Tensor:
    """Return the logits of this rank's targets [T, C], in the order of `ActiveRows.targets`.

    Called on all ranks together, and so is the backward pass of what it gives, which is to begin on each from its part
    of one sum over the targets of all ranks. recompute: see `layer_outputs`; stages: hears where the pass is. In
    training mode dropout reads torch's global generator; seed it to repeat a step.
    """
    return model.predict(layer_outputs(model, batch, exchange, recompute=recompute, stages=stages))


def with_mirrors(rows: Tensor, of: Gathered, exchange: Exchange) -> Tensor:
    """Return the rows [T, C] of `of.targets`, then its mirrors' rows: pairs of nodes are scored from them."""
    if of.traffic is None:
        return rows
    departed = depart(exchange, route_of(of.traffic, num_rows=len(rows)), {"rows": rows})
    return torch.cat([departed.terms["rows"], departed.arrive()["rows"]])


def layer_outputs(
    model: Model, batch: RankBatch, exchange: Exchange, *, recompute: bool = False, stages: Stages = UNTIMED
) -> list[Tensor]:
    """Return the rows [T, W] of this rank's targets after each layer, in layer order.

    recompute: keep a layer's input alone for the backward pass, which computes the layer again, its exchange included.
    """
    h, outputs = model.encode(batch.features, batch.nodes), []
    for index, layer in enumerate(batch.layers):
        own = batch.nodes.prefix(len(h))
        compute = partial(_Pass(model, index, own, exchange, stages).output, layer)
        if recompute and torch.is_grad_enabled():
            # An early stop would leave out the end of an exchange that other ranks wait in.
            with set_checkpoint_early_stop(False):
                h = checkpoint(compute, h, use_reentrant=False, context_fn=repeated_draws)
        else:
            h = compute(h)
        outputs.append(h)
    stages.leave(over=[h], back="apply")
    return [first_rows(each, batch.layers[-1].num_targets) for each in outputs]


@dataclass(frozen=True)
class _Pass:
    """One layer of a step. nodes: of the layer's input rows."""

    model: Model
    index: int
    nodes: NodeContext
    exchange: Exchange
    stages: Stages

    def output(self, held: RankLayer | PlacedTensors, h: Tensor) -> Tensor:
        """Return the layer's rows of this rank's targets [T, W], from its input rows h."""
        self.stages.enter("transform", over=[h], back="apply" if self.index else "")
        dropped, layers = self.model.pre(self.index, h), self.model.relations(self.index)
        if isinstance(held, PlacedTensors) or (held.route is not None and layers.only is not None):
            return self._by_terms(held, h, dropped)
        return self._by_rows(held, h, dropped)

    def _by_terms(self, held: RankLayer | PlacedTensors, h: Tensor, dropped: Tensor) -> Tensor:
        """Return the rows of a layer of one relation, whose terms travel, or states of edges that lie elsewhere."""
        model, index, num_targets = self.model, self.index, held.num_targets
        of, first = model.relations(index).layer(0), self._maps_first(held, h)
        terms = terms_of(of, dropped, nodes=self.nodes, num_targets=num_targets, map_first=first)
        shortcut, relu = model.shortcut(index, first_rows(h, num_targets)), takes_relu(model, index, is_mapped=first)
        if isinstance(held, PlacedTensors):
            found = aggregated_by_place(of, terms, held, self.exchange, self.stages)
        elif held.mirrored is not None and num_targets:
            found = _aggregated(of, terms, held, self.exchange, self.stages)
        else:
            assert held.route is not None
            departed = depart(self.exchange, held.route, terms.source, stages=self.stages)
            if not num_targets:  # still one of those that send rows, and hear of their gradients
                return model.post(index, _no_rows(departed.arrive(), of), shortcut)
            delivery = OneBlock(held.block.relations[0].block)
            terms = Terms(_joined(departed.terms, departed.arrive()), terms.target)
            rows = layer_rows(of, terms=terms, delivery=delivery, map_first=first, relu=relu, stages=self.stages)
            return model.post(index, rows, shortcut, is_activated=relu)
        rows = updated_rows(of, target=terms.target, aggregated=found, is_mapped=first, relu=relu)
        return model.post(index, rows, shortcut, is_activated=relu)

    def _by_rows(self, held: RankLayer, h: Tensor, dropped: Tensor) -> Tensor:
        """Return the rows of a layer whose input rows travel, a row once for all relations, or nothing does."""
        model, index, nodes, arrived = self.model, self.index, self.nodes, {"h": dropped}
        if held.route is not None:
            assert held.mirror_nodes is not None
            departed = depart(self.exchange, held.route, {"h": dropped}, stages=self.stages)
            arrived = departed.arrive()
            dropped, nodes = torch.cat([departed.terms["h"], arrived["h"]]), nodes.joined(held.mirror_nodes)
        if not held.num_targets:
            return model.post(index, _no_rows(arrived, model.relations(index)), model.shortcut(index, h[:0]))
        first = None
        if model.relations(index).only is None:
            h = first_rows(h, held.num_targets)  # taken before the passes: gradients of h are added up in that order
        else:
            first = self._maps_first(held, h)
        stages, block = self.stages, held.block
        return run_layer(model, index, h=h, dropped=dropped, nodes=nodes, block=block, map_first=first, stages=stages)

    def _maps_first(self, held: RankLayer | PlacedTensors, h: Tensor) -> bool:
        """Return whether a layer of one relation maps its values first: the same on every rank."""
        layer = self.model.relations(self.index).layer(0)
        return is_cheaper_first(layer, held.totals, needs_gradient=h.requires_grad)


def _no_rows(received: Mapping[str, Tensor], layer: Layer | RelationLayers) -> Tensor:
    """Return an empty output [0, W] of a layer, whose backward pass joins the exchanges of the received rows.

    It needs a gradient where the rows of other ranks do: all ranks must agree which exchanges have a backward pass.
    """
    learned = (each for each in (*received.values(), *layer.parameters()) if each.requires_grad)
    made_of = next(learned, next(iter(received.values())))
    return made_of.reshape(-1, 1)[:0].expand(0, layer.out_width)


def _joined(own: Mapping[str, Tensor], received: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([rows, received[name]]) for name, rows in own.items()}


def _aggregated(layer: Layer, terms: Terms, held: RankLayer, exchange: Exchange, stages: Stages) -> Tensor:
    """Return each target's aggregated rows [T, H, D (+ A)]: of own rows while others travel, then of these."""
    assert held.mirrored is not None
    assert held.route is not None
    block = held.block.relations[0].block
    own = block.with_self if takes_self(layer, block) else block
    stages.enter("gather_sum", over=terms.source.values(), back="transform")
    departed = depart(exchange, held.route, terms.source, stages=stages)
    terms = Terms(departed.terms, terms.target)
    state = partial_state(layer, source=terms.source, target=terms.target, block=own)
    received = departed.arrive()
    source = _joined(terms.source, received) if held.reads_own else received
    kind = layer.levels.instance
    # sums are merged by the kernel that makes them
    onto = state if kind.adds else None
    others = partial_state(layer, source=source, target=terms.target, block=held.mirrored, onto=onto)
    stages.enter("reduce")
    whole = others if kind.adds else kind.merge(state, others)
    has_self = own is not block
    found = finished(layer, whole, source=terms.source, target=terms.target, edge=own.edge, has_self=has_self)
    stages.enter("apply", over=[found], back="reduce")
    # behind that hook: what is aggregated may be the state itself
    stages.enter("apply", over=[*(() if kind.adds else state.values()), *others.values()], back="gather_sum")
    return found
