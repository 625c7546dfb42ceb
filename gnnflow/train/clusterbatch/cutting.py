"""Batches of clusters: their nodes that are targets, or the pairs that lead to their nodes.

A pair is trained with the cluster that its target is in, so that each comes once per epoch. Its source is a row of the
batch wherever it lies, and negatives are drawn among the clusters' own nodes. Edges between the ends of the batch's
pairs leave its block, as they leave the blocks of mini-batches.

Shapes: B targets or pairs, K negatives of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.config import InBatchNegatives, LinkTask
from gnnflow.executions.clusterbatch import cluster_batch
from gnnflow.executions.tensors import batch_tensors
from gnnflow.graph.arrays import IntArray, distinct, ragged_ranges
from gnnflow.graph.batch import Degrees, MiniBatch
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graphfeature.clusters import cut_clusters
from gnnflow.graphfeature.exclusion import RowPairs, without_pairs
from gnnflow.graphfeature.neighborhood import Neighborhood, RowArray
from gnnflow.graphfeature.shards import PairShard
from gnnflow.layers.model import Model
from gnnflow.neighbors.pairs import PoolPlan
from gnnflow.neighbors.whole import SplitTargets
from gnnflow.sampling.pairs import pool_draws, pool_rows
from gnnflow.train.heads import PairHead, PairRule
from gnnflow.train.minibatch.loader import Batch, Builder


@dataclass(frozen=True)
class Clusters:
    """Cuts clusters from the whole graph, with every in-edge that is aggregated over.

    facts: say which nodes a cluster has. model: one like that which is trained.
    """

    graph: Neighborhood
    facts: GraphFacts
    model: Model
    boundary_hops: int
    scratch: RowArray

    def batch(self, targets: IntArray, members: IntArray) -> MiniBatch:
        """Return the batch of some nodes, its targets first."""
        rows = cut_clusters(
            self.graph, targets, members=members, boundary_hops=self.boundary_hops, scratch=self.scratch
        )
        return cluster_batch(
            rows.block,
            nodes=self.graph.degrees.take(rows.nodes),
            features=self.graph.features.take(rows.nodes),
            targets=targets,
            num_layers=self.model.num_layers,
        )


def within(ascending: IntArray, starts: IntArray, lengths: IntArray) -> IntArray:
    """Return which of some ascending ids lie in runs of ids, run by run."""
    first, last = (np.searchsorted(ascending, ends) for ends in (starts, starts + lengths))
    return ragged_ranges(first, last - first)


@dataclass(frozen=True)
class NodesOfClusters(Builder[IntArray]):
    """Makes batches whose targets are the training nodes of their clusters."""

    clusters: Clusters
    train: SplitTargets

    def key(self, planned: IntArray, *, epoch: int) -> str:
        """Return the key of a batch that every epoch has, of one cluster; empty for one that hardly comes again."""
        return str(planned[0]) if len(planned) == 1 else ""

    def __call__(self, clusters: IntArray, *, epoch: int) -> Batch:
        """Return the batch of some clusters, which is the same in every epoch."""
        starts, lengths = self.clusters.facts.cluster_book.runs(clusters)
        places = within(self.train.nodes, starts, lengths)
        targets = self.train.nodes[places]
        batch = self.clusters.batch(targets, ragged_ranges(starts, lengths))
        if self.train.labels is None:
            raise TrainingError(
                "the graph has no labels", where="graph.label", fix="Name the label column of the node table."
            )
        tensors = batch_tensors(batch, self.clusters.model.inputs.schema)
        return Batch(tensors, self.train.labels[places], targets)


@dataclass(frozen=True)
class PairsOfClusters(Builder[IntArray]):
    """Makes batches of the training pairs that lead to their clusters' nodes.

    train: in the order of their targets. degrees: of all nodes, which negatives may be drawn by.
    """

    clusters: Clusters
    train: PairShard
    degrees: Degrees
    rule: PairRule

    def key(self, planned: IntArray, *, epoch: int) -> str:
        """Return no key: each epoch draws other negatives."""
        return ""

    def __call__(self, clusters: IntArray, *, epoch: int) -> Batch:
        """Return the batch of some clusters, with the negatives of an epoch."""
        starts, lengths = self.clusters.facts.cluster_book.runs(clusters)
        # the clusters' nodes, and which training pairs lead to one of them [B]
        members, places = ragged_ranges(starts, lengths), within(self.train.targets, starts, lengths)
        sources, targets = self.train.sources[places], self.train.targets[places]
        pool = self._pool(members)
        candidates = self.rule.candidates(self.train, places, pool=pool, split="train", epoch=epoch)
        # ends of pairs and of negatives, each once, are the batch's targets; then the clusters' other nodes
        nodes = distinct(np.concatenate([sources, candidates.ravel()]))
        from_rows, to_rows = np.searchsorted(nodes, sources), np.searchsorted(nodes, candidates)
        batch = self.clusters.batch(nodes, distinct(np.concatenate([members, nodes])))
        if not self.rule.task.messages:
            batch = without_pairs(batch, RowPairs(from_rows, to_rows[:, 0], len(nodes)))
        model, attributes = self.clusters.model, self.train.attributes
        return Batch(
            batch_tensors(batch, model.inputs.schema),
            self.train.labels[places],
            targets,
            PairHead.of(from_rows, to_rows, model=model, attributes=attributes, places=places),
        )

    def _pool(self, members: IntArray) -> IntArray:
        """Return the draws of members that a pair may lead to, which negatives of a batch are drawn from."""
        facts, task = self.clusters.facts, self.rule.task
        if not isinstance(task, LinkTask) or isinstance(task.negatives, InBatchNegatives):
            return members[:0]
        plan = PoolPlan.of(task, seed=self.rule.seed)
        led_to = members[facts.book.type_of(members) == facts.pair_types.target]
        degrees = self.degrees.relation(facts.pair_relation).in_degree[led_to] if plan.power else None
        return draw_pool(members, led_to, degrees, plan)


def draw_pool(members: IntArray, led_to: IntArray, degrees: IntArray | None, plan: PoolPlan) -> IntArray:
    """Return draws of the nodes that a pair may lead to. degrees: of these nodes, where they are drawn by degree."""
    weights = np.ones(len(led_to)) if degrees is None else degrees.astype(np.float64) ** plan.power
    total = np.array([weights.sum()])
    points = pool_draws(members[:1], plan.size, seed=plan.seed, weights=total)[0]
    drawn: IntArray = led_to[pool_rows(points, 0, weights=total, nodes=weights)]
    return drawn
