"""A rank's part of the graph, and its part of each batch.

Shapes: N own nodes, B targets or pairs of this rank in a batch, K negatives of a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from torch import Tensor

from gnnflow.executions.globalbatch import Gathered, RankBatch, active_rows, forward, gathered, rank_batch, with_mirrors
from gnnflow.executions.row_exchange import Exchange, joined
from gnnflow.executions.stages import UNTIMED, StageClock
from gnnflow.graph.arrays import Array, IntArray, KeyArray, distinct
from gnnflow.graph.batch import LayerEdges, SampledEdges
from gnnflow.graph.edges import InEdges
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.exclusion import RowPairs, WithoutPairs
from gnnflow.layers.model import Model
from gnnflow.neighbors.pairs import StoredPairs
from gnnflow.neighbors.selected import Neighbors
from gnnflow.neighbors.whole import draw_edges, read_keys
from gnnflow.train.globalbatch.graph import OwnPart, bounds_of, read_part
from gnnflow.train.globalbatch.pairs import pair_head
from gnnflow.train.heads import PairHead
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.batches import FIXED_VIEW
from gnnflow.train.minibatch.loader import Batch
from gnnflow.train.minibatch.memory import array_bytes

_MOST_INT32 = 2**31 - 1


@dataclass
class RankPart:
    """The part of one rank. own: its nodes and their in-edges; with fan-outs, batches read a sample of these.

    keys: of the edges, where each epoch draws another sample; own then
    has every edge.
    """

    own: OwnPart
    neighbors: Neighbors
    bounds: IntArray
    model: Model
    exchange: Exchange
    seed: int
    keys: KeyArray | None = None
    stages: StageClock = field(default_factory=StageClock)
    _views: dict[int, InEdges] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all ranks."""
        return int(self.bounds[-1])

    @property
    def num_bytes(self) -> int:
        """Bytes of the own nodes and edges, and of the samples of edges that were drawn last."""
        return array_bytes([self.own, self.keys, self._views])

    def owned(self, ids: IntArray) -> IntArray:
        """Return the places of this rank's nodes among some dense ids."""
        return np.flatnonzero((ids >= self.own.first) & (ids < self.own.first + len(self.own.nodes)))

    def union(self, ids: IntArray) -> IntArray:
        """Return the ids that any rank gives, ascending."""
        return distinct(joined(self.exchange, distinct(ids)[:, None])[:, 0])

    def begins(self, targets: OwnPart | StoredPairs) -> dict[str, int]:
        """Return the number of targets on the ranks before this one, by split."""
        counts = np.array([[len(targets.of(split)) for split in SPLITS]], np.int64)
        before = joined(self.exchange, counts)[: self.exchange.rank]
        return dict(zip(SPLITS, before.sum(0).tolist(), strict=True))

    def layers(self, view: int = FIXED_VIEW) -> list[LayerEdges]:
        """Return the in-edges of each layer, first layer first; layers of the same fan-out share them."""
        edges, degrees = self._edges(view), self.own.nodes.in_degree
        limits, kind = self.neighbors.sampling.of_hops(self.model.num_layers), self.neighbors.sampling.kind
        made = {limit: SampledEdges(edges, self.num_nodes, degrees, limit, kind) for limit in limits}
        return [made[limit] for limit in reversed(limits)]

    def _edges(self, view: int) -> InEdges:
        if self.keys is None:
            return self.own.edges
        if view not in self._views:
            # the sample for scoring stays, and the last one for training
            self._views = {kept: each for kept, each in self._views.items() if FIXED_VIEW in (kept, view)}
            self._views[view] = draw_edges(self.own.edges, self.keys, self.neighbors, seed=self.seed, view=view)
        return self._views[view]

    def batch_of_nodes(self, rows: IntArray, layers: Sequence[LayerEdges]) -> Batch:
        """Return this rank's part of a batch of nodes. rows [B]: of its labelled nodes, ascending."""
        targets = self.own.rows[rows]
        return self.batch(targets, layers, labels=self.own.labels[rows], ids=targets + self.own.first)

    def batch_of_pairs(
        self,
        stored: StoredPairs,
        places: IntArray,
        candidates: IntArray,
        layers: Sequence[LayerEdges],
        *,
        hidden: IntArray | None,
    ) -> Batch:
        """Return this rank's part of a batch of its pairs at some places [B].

        candidates [B, 1 + K]: dense ids. hidden: ends [n, 2] of pairs of all ranks, whose edges are left out.
        """
        if hidden is not None:
            keys = RowPairs(hidden[:, 0], hidden[:, 1], self.num_nodes).keys()
            # layers that share edges still share them
            made = {id(each): WithoutPairs(each, keys, self.num_nodes, self.own.first) for each in layers}
            layers = [made[id(each)] for each in layers]
        nodes = distinct(np.concatenate([stored.sources[places], candidates.ravel()]))
        ends = gathered(nodes, bounds=self.bounds, exchange=self.exchange)
        head = pair_head(stored, places, candidates, ends, model=self.model)
        labels, ids = stored.labels[places], stored.targets[places]
        return self.batch(ends.targets, layers, labels=labels, ids=ids, head=head, ends=ends)

    def batch(
        self,
        targets: IntArray,
        layers: Sequence[LayerEdges],
        *,
        labels: Array,
        ids: IntArray,
        head: PairHead | None = None,
        ends: Gathered | None = None,
    ) -> Batch:
        """Return this rank's part of a batch. All ranks make theirs together.

        targets: places of the own nodes whose outputs are computed, ascending. ids [B]: dense ids of the targets. ends:
        of the pairs that the head scores.
        """
        active = active_rows(layers, targets, bounds=self.bounds, exchange=self.exchange)
        features, nodes = self.own.features.take(active.rows), self.own.nodes.take(active.rows)
        tensors = rank_batch(self.model, active, features=features, nodes=nodes, exchange=self.exchange)
        return Batch(tensors, labels, ids, head, partial(_rows, self, ends))


def _rows(part: RankPart, ends: Gathered | None, model: Model, tensors: RankBatch) -> Tensor:
    """Return the rows of a batch's targets, then of the mirrors of pairs' ends. All ranks compute them together."""
    rows = forward(model, tensors, part.exchange, stages=part.stages if model.training else UNTIMED)
    return rows if ends is None else with_mirrors(rows, ends, part.exchange)


def read_rank_part(
    job: TrainJob, partitions: Sequence[int], *, edges: bool, draws_anew: bool, exchange: Exchange
) -> RankPart:
    """Return this rank's part of a job. edges: False for the same nodes in the graph without its edges."""
    neighbors = job.neighbors
    book = neighbors.store.book
    read = Neighbors(neighbors.store) if draws_anew else neighbors
    own = read_part(read, partitions)
    if book.num_nodes <= _MOST_INT32:
        own = replace(own, edges=replace(own.edges, sources=own.edges.sources.astype(np.int32)))
    return RankPart(
        own if edges else own.without_edges,
        neighbors,
        bounds_of(exchange.size, book),
        job.model.build().eval(),
        exchange,
        job.seed,
        read_keys(neighbors, partitions) if draws_anew else None,
    )
