"""A case of the contract suite on several ranks: its nodes renumbered so that each rank owns a run of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from gnnflow.executions import globalbatch
from gnnflow.executions.globalbatch import PlacedEdges, RankBatch, active_rows, placed_layers, rank_batch
from gnnflow.executions.reference import WholeGraph
from gnnflow.executions.row_exchange import Exchange
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block
from gnnflow.graph.book import edge_partitions
from gnnflow.graph.schema import Placement
from gnnflow.layers import Model
from tests.contracts.dividing import owners_of
from tests.contracts.in_memory import rows_of
from tests.contracts.in_process import InProcess, Table, on_ranks


@dataclass(frozen=True)
class Divided:
    """A graph whose nodes `number` lists in the order of their new ids; rank r owns bounds[r] .. bounds[r + 1] - 1."""

    graph: WholeGraph
    per_layer: list[Block]
    targets: np.ndarray  # new ids, ascending
    places: np.ndarray  # where each of the targets asked for lies among these
    bounds: np.ndarray
    placement: Placement


def divided(
    graph, per_layer, targets, *, size: int, seed: int, kind: str = "chance", placement: Placement = ""
) -> Divided:
    """Divide a graph among ranks by a kind of partitioning; some ranks may get no node."""
    owner = owners_of(graph.adjacency, kind, parts=size, seed=seed)
    number = np.lexsort((np.random.default_rng(seed).permutation(len(owner)), owner))
    bounds = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=size))])
    made = {id(block): rows_of(block, number)[0] for block in per_layer}
    new = np.argsort(number)[targets]
    whole = WholeGraph(rows_of(graph.adjacency, number)[0], graph.nodes.take(number), graph.features.take(number))
    order = np.sort(new)
    return Divided(
        whole, [made[id(block)] for block in per_layer], order, np.searchsorted(order, new), bounds, placement
    )


def batch_of(model: Model, of: Divided, exchange: Exchange) -> RankBatch:
    """Return what one rank computes."""
    first, last = of.bounds[exchange.rank : exchange.rank + 2]
    own = np.arange(first, last)
    blocks = {id(block): own_rows(block, own) for block in of.per_layer}
    targets = of.targets[(of.targets >= first) & (of.targets < last)] - first
    rows = active_rows([blocks[id(block)] for block in of.per_layer], targets, bounds=of.bounds, exchange=exchange)
    held = own[rows.rows]
    placed = placed_layers(rows, placed_of(of, exchange), bounds=of.bounds, exchange=exchange) if of.placement else ()
    return rank_batch(
        model,
        rows,
        features=of.graph.features.take(held),
        nodes=of.graph.nodes.take(held),
        exchange=exchange,
        placed=placed,
    )


def placed_of(of: Divided, exchange: Exchange) -> PlacedEdges:
    """Return the edges that one rank computes, of a graph without relations."""
    edges, (first, last) = of.graph.adjacency.edges, of.bounds[exchange.rank : exchange.rank + 2]
    into = np.repeat(np.arange(edges.num_targets), edges.lengths)
    target, source = (np.searchsorted(of.bounds, ends, side="right") - 1 for ends in (into, edges.sources))
    here = edge_partitions(of.placement, target=target, source=source, partitions=exchange.size) == exchange.rank
    near, far = np.flatnonzero(here & (target == exchange.rank)), np.flatnonzero(here & (target != exchange.rank))
    ghosts, row = np.unique(into[far], return_inverse=True)
    return PlacedEdges(
        edges.take(near, offsets=offsets_of(np.bincount(into[near] - first, minlength=last - first))),
        edges.take(far, offsets=offsets_of(np.bincount(row, minlength=len(ghosts)))),
        ghosts,
    )


def own_rows(block: Block, own: np.ndarray) -> Block:
    """Return the in-edges of a rank's nodes; sources stay ids of the whole graph."""
    picked = block.edges.prefix(own, limit=None)
    scale = block.sample_scale
    return Block(
        block.edges.take(picked.positions, offsets=picked.offsets),
        block.num_sources,
        None if scale is None else scale.reshape(block.edges.num_relations, -1)[:, own].ravel(),
        None if block.edge_scale is None else block.edge_scale[picked.positions],
    )


class OnRanks(Function):
    """Outputs of all ranks [T, W], whose gradients the ranks compute together."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[InProcess], tuple[Tensor, ...]], size: int, *parameters: Tensor) -> Any:
        ctx.parameters, ctx.table = parameters, Table(size)
        exchanges: dict[int, InProcess] = {}

        def compute(exchange: InProcess) -> tuple[Tensor, ...]:
            exchanges[exchange.rank] = exchange
            return run(exchange)

        with torch.enable_grad():
            ctx.ran = on_ranks(size, compute, table=ctx.table)
        ctx.exchanges = exchanges
        return tuple(torch.cat([each.detach() for each in column]) for column in zip(*ctx.ran, strict=True))

    @staticmethod
    def backward(ctx: Any, *blame: Tensor) -> Any:
        ctx.table.left.clear()
        ctx.table.turn = 0
        given = [each.split([len(ran[place]) for ran in ctx.ran]) for place, each in enumerate(blame)]

        def gradients(exchange: InProcess) -> Any:
            own = [(out, of[exchange.rank]) for out, of in zip(ctx.ran[exchange.rank], given, strict=True)]
            own = [(out, of) for out, of in own if out.requires_grad]
            outputs, blames = zip(*own, strict=True) if own else ((), ())
            return torch.autograd.grad(outputs, ctx.parameters, blames, allow_unused=True) if own else None

        found = [each for each in on_ranks(len(ctx.ran), gradients, table=ctx.table) if each is not None]
        summed = [
            sum(held[1:], held[0]) if (held := [each for each in column if each is not None]) else None
            for column in zip(*found, strict=True)
        ]
        return None, None, *summed


def outputs_on_ranks(model: Model, of: Divided, *, size: int, recompute: bool = False) -> tuple[Tensor, Tensor]:
    """Return logits and embedding of the targets asked for, with gradients where they are wanted."""

    def run(exchange: InProcess) -> tuple[Tensor, ...]:
        batch = batch_of(model, of, exchange)
        outputs = globalbatch.layer_outputs(model, batch, exchange, recompute=recompute)
        return model.predict(outputs), model.embedding(outputs)

    if torch.is_grad_enabled():
        logits, embedding = OnRanks.apply(run, size, *model.parameters())
    else:
        logits, embedding = (torch.cat(column) for column in zip(*on_ranks(size, run), strict=True))
    return logits[of.places], embedding[of.places]
