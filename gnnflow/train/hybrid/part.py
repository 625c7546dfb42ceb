"""A rank's part of the graph, and what the rank computes for the targets of a batch.

Shapes: N own nodes, B targets or pairs of this rank in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from torch import Tensor

from gnnflow.executions.globalbatch import Gathered, RankBatch, active_rows, forward, rank_batch, with_mirrors
from gnnflow.executions.row_exchange import Exchange, joined
from gnnflow.executions.stages import UNTIMED, StageClock
from gnnflow.graph.arrays import Array, IntArray, KeyArray
from gnnflow.graph.batch import LayerEdges, SampledEdges
from gnnflow.graph.edges import Fanout, InEdges
from gnnflow.layers.model import Model, build_model
from gnnflow.neighbors.selected import Neighbors
from gnnflow.neighbors.whole import drawn_edges, read_keys
from gnnflow.train.globalbatch.graph import OwnPart, bounds_of, partitions_of, read_part
from gnnflow.train.heads import PairHead
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.batches import FIXED_VIEW
from gnnflow.train.minibatch.loader import Batch

_MOST_INT32 = 2**31 - 1


@dataclass
class RankPart:
    """The part of one rank. own: its nodes and their in-edges, of which batches read a sample where there are fan-outs.

    limits: the fan-out of each hop, the targets' first. keys: of the edges, where each epoch draws another sample;
    then own has every edge.
    """

    own: OwnPart
    neighbors: Neighbors
    bounds: IntArray
    limits: Sequence[Fanout | None]
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
    def ids(self) -> range:
        """Dense ids of the rank's nodes."""
        return range(self.own.first, self.own.first + len(self.own.nodes))

    def layers(self, view: int = FIXED_VIEW) -> list[LayerEdges]:
        """Return the in-edges that each layer reads, first layer first; layers of one fan-out have them in common."""
        edges, sampling = self._edges(view), self.neighbors.sampling
        made = {
            limit: SampledEdges(edges, self.num_nodes, self.own.nodes.in_degree, limit, sampling)
            for limit in self.limits
        }
        return [made[limit] for limit in reversed(self.limits)]

    def _edges(self, view: int) -> InEdges:
        if self.keys is None:
            return self.own.edges
        if view not in self._views:
            # the sample that is scored on stays, and of those that are trained on the last
            self._views = {kept: each for kept, each in self._views.items() if FIXED_VIEW in (kept, view)}
            self._views[view] = drawn_edges(self.own.edges, self.keys, self.neighbors, seed=self.seed, view=view)
        return self._views[view]

    def tensors(self, targets: IntArray, layers: Sequence[LayerEdges]) -> RankBatch:
        """Return what this rank computes of its targets, by their places, ascending. All ranks call it together."""
        active = active_rows(layers, targets, bounds=self.bounds, exchange=self.exchange)
        features, nodes = self.own.features.take(active.rows), self.own.nodes.take(active.rows)
        return rank_batch(self.model, active, features=features, nodes=nodes, exchange=self.exchange)

    def nodes_batch(self, rows: IntArray, layers: Sequence[LayerEdges]) -> Batch:
        """Return this rank's part of a batch of nodes, by their places among its labelled nodes, ascending."""
        targets = self.own.rows[rows]
        tensors = self.tensors(targets, layers)
        return Batch(tensors, self.own.labels[rows], targets + self.own.first, rows=partial(_rows, self, None))

    def pairs_batch(
        self, found: Gathered, layers: Sequence[LayerEdges], *, head: PairHead, labels: Array, targets: IntArray
    ) -> Batch:
        """Return this rank's part of a batch of pairs. found: the nodes that it is scored from."""
        return Batch(self.tensors(found.targets, layers), labels, targets, head, partial(_rows, self, found))


def _rows(part: RankPart, found: Gathered | None, model: Model, tensors: RankBatch) -> Tensor:
    """Return the rows of a batch's targets, then of the mirrors that pairs have. All ranks compute them together."""
    rows = forward(model, tensors, part.exchange, stages=part.stages if model.training else UNTIMED)
    return rows if found is None else with_mirrors(rows, found, part.exchange)


def read_rank_part(job: TrainJob, *, edges: bool, draws_anew: bool, exchange: Exchange) -> RankPart:
    """Return this rank's part of a job. edges: False for the same nodes in the graph without its edges.

    Raises TrainingError where the graph has fewer partitions than there are ranks.
    """
    neighbors = job.neighbors
    assert neighbors is not None
    book = neighbors.store.book
    partitions = partitions_of(exchange.rank, exchange.size, book)
    read = replace(neighbors, artifact="", sampling="none", fanouts=None) if draws_anew else neighbors
    own = read_part(read, partitions)
    if book.num_nodes <= _MOST_INT32:
        own = replace(own, edges=replace(own.edges, sources=own.edges.sources.astype(np.int32)))
    return RankPart(
        own if edges else own.without_edges,
        neighbors,
        bounds_of(exchange.size, book),
        [None] * job.model.layers if job.fanouts is None else job.fanouts,
        build_model(job.model, job.inputs).eval(),
        exchange,
        job.seed,
        read_keys(neighbors, partitions) if draws_anew else None,
    )


def before(part: RankPart, counts: Sequence[int]) -> list[int]:
    """Return how much the ranks before this one have of each of some counts, the same on all ranks."""
    told = joined(part.exchange, np.array([counts], np.int64))
    counted: list[int] = told[: part.exchange.rank].sum(0).tolist()
    return counted
