"""Batches of clusters that all ranks compute together: each rank has the targets in its part of the graph.

Every rank knows which nodes a batch has: clusters are runs of dense ids, and ranks tell each other the boundary and the
ends of pairs.

Shapes: n nodes of a batch, B own pairs, K negatives of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnflow.config import InBatchNegatives, LinkTask
from gnnflow.executions.row_exchange import joined
from gnnflow.graph.arrays import IntArray, distinct, ragged_ranges
from gnnflow.graph.batch import LayerEdges
from gnnflow.graph.facts import GraphFacts
from gnnflow.graphfeature.clusters import EdgesAmong
from gnnflow.neighbors.pairs import PoolPlan, StoredPairs
from gnnflow.train.clusterbatch.cutting import draw_pool, within
from gnnflow.train.heads import PairRule
from gnnflow.train.hybrid.part import RankPart
from gnnflow.train.minibatch.loader import Batch, Builder


@dataclass(frozen=True)
class ClusterPart:
    """Cuts clusters from the parts of all ranks. facts: say which nodes a cluster has."""

    part: RankPart
    facts: GraphFacts
    boundary_hops: int

    def layers(self, members: IntArray) -> Sequence[LayerEdges]:
        """Return each layer's in-edges among some nodes and their boundary. members [n]: ascending, on all ranks."""
        part, own = self.part, self.part.own
        nodes = fresh = members
        for _ in range(self.boundary_hops):
            read = own.edges.step_back(fresh[part.owned(fresh)] - own.first)
            fresh = part.union(np.asarray(read, np.int64))
            nodes = distinct(np.concatenate([nodes, fresh]))
        return [EdgesAmong(own.edges, part.num_nodes, own.nodes.in_degree, nodes)] * part.model.num_layers


@dataclass(frozen=True)
class RankClusterNodes(Builder[IntArray]):
    """Makes this rank's part of batches whose targets are the training nodes of their clusters."""

    clusters: ClusterPart

    def key(self, planned: IntArray, *, epoch: int) -> str:
        """Return the key of a batch that every epoch has, of one cluster; empty for one that hardly comes again."""
        return str(planned[0]) if len(planned) == 1 else ""

    def __call__(self, clusters: IntArray, *, epoch: int) -> Batch:
        """Return this rank's part of the batch of some clusters. All ranks make theirs together."""
        own, runs = self.clusters.part.own, self.clusters.facts.cluster_book.runs(clusters)
        train = own.of("train")
        rows = np.sort(train[within(own.rows[train] + own.first, *runs)])
        return self.clusters.part.batch_of_nodes(rows, self.clusters.layers(np.sort(ragged_ranges(*runs))))


@dataclass(frozen=True)
class RankClusterPairs(Builder[IntArray]):
    """Makes this rank's part of batches of the training pairs that lead to their clusters' nodes.

    rule: of the pairs' negatives.
    """

    clusters: ClusterPart
    stored: StoredPairs
    rule: PairRule

    def key(self, planned: IntArray, *, epoch: int) -> str:
        """Return no key: each epoch draws other negatives."""
        return ""

    def __call__(self, clusters: IntArray, *, epoch: int) -> Batch:
        """Return this rank's part of the batch of some clusters, with the negatives of an epoch."""
        part, stored = self.clusters.part, self.stored
        starts, lengths = self.clusters.facts.cluster_book.runs(clusters)
        train, members = stored.of("train"), ragged_ranges(starts, lengths)
        places = train[within(stored.targets[train], starts, lengths)]
        # ends of the pairs of all ranks, then in the order of the clusters' runs and of the store
        ends = joined(part.exchange, np.stack([stored.sources[places], stored.targets[places]], axis=1))
        begun = np.lexsort((lengths, starts))
        run = begun[np.searchsorted(starts[begun], ends[:, 1], side="right") - 1]
        ends = ends[np.argsort(run, kind="stable")]
        candidates = self.rule.candidates(
            stored, places, pool=self._pool(members), split="train", epoch=epoch, in_batch=ends[:, 1]
        )
        drawn = part.union(np.concatenate([ends[:, 0], candidates.ravel()]))
        nodes = distinct(np.concatenate([members, drawn]))
        layers, hidden = self.clusters.layers(nodes), None if self.rule.task.messages else ends
        return part.batch_of_pairs(stored, places, candidates, layers, hidden=hidden)

    def _pool(self, members: IntArray) -> IntArray:
        """Return the draws of members that a pair may lead to, which negatives of a batch are drawn from."""
        facts, part, task = self.clusters.facts, self.clusters.part, self.rule.task
        if not isinstance(task, LinkTask) or isinstance(task.negatives, InBatchNegatives):
            return members[:0]
        plan = PoolPlan.of(task, seed=part.seed)
        led_to, degrees = members[facts.book.type_of(members) == facts.pair_types.target], None
        if plan.power:
            at = part.owned(led_to)
            own = part.own.nodes.relation(facts.pair_relation).in_degree[led_to[at] - part.own.first]
            # place among led_to and degree of the nodes of all ranks
            told = joined(part.exchange, np.stack([at, own], axis=1))
            degrees = told[np.argsort(told[:, 0]), 1]
        return draw_pool(members, led_to, degrees, plan)
