"""The clusters of each step of each rank, a function of (seed, epoch) and the clusters with training targets.

Nothing is drawn from a stream, so a resumed run asks for the step it stopped at. Clusters without training targets are
never drawn: nothing would be learned from them. The others come once per epoch, in an order of the epoch's own, dealt
to steps and ranks in runs that differ by one cluster at most: each has at least `per_batch` of them, because a rank
without a target could not take part in its step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnflow.graph.arrays import IntArray
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.hashing import combine, hash_integers, seed_word


@dataclass(frozen=True)
class ClusterPlan:
    """The order of clusters in an epoch. clusters: the numbers of all that have training targets, ascending [C]."""

    clusters: IntArray
    per_batch: int
    seed: int
    num_ranks: int = 1

    def groups(self, epoch: int, share: int) -> list[IntArray]:
        """Return the clusters of each step of a rank's share, ascending in each; as many steps for every rank."""
        num_steps = max(len(self.clusters) // (self.per_batch * self.num_ranks), 1)
        keys = combine(hash_integers(self.clusters), seed_word("clusters", self.seed, epoch))
        drawn = self.clusters[np.argsort(keys, kind="stable")]
        dealt = np.array_split(drawn, num_steps * self.num_ranks)
        return [np.sort(group) for group in dealt[share :: self.num_ranks]]


def check_clusters(num_clusters: int, *, per_batch: int) -> None:
    """Raise TrainingError where a graph cannot be trained on by so many of its clusters at a time."""
    # One cluster is the whole graph at once, whatever it is called.
    if num_clusters == 1:
        raise TrainingError(
            "the graph is one cluster",
            where="train.strategy",
            fix="Set partition to {kind: metis, clusters: ...}, raise graph.partitions, or train with mini-batch.",
        )
    if per_batch > num_clusters:
        raise TrainingError(
            f"{per_batch} clusters per batch of one rank, and the graph has {num_clusters}",
            where="train.clusters_per_batch",
            fix=f"Lower it to {num_clusters} or less, or cut the graph into more: partition, graph.partitions.",
        )


def plan_clusters(with_targets: IntArray, *, per_batch: int, seed: int, num_ranks: int) -> ClusterPlan:
    """Return the plan. Raises TrainingError where there are fewer clusters with targets than ranks."""
    if len(with_targets) < num_ranks:
        raise TrainingError(
            f"{len(with_targets)} clusters with training targets cannot be dealt to {num_ranks} ranks",
            where="train.workers",
            fix="Lower it, or cut the graph into more clusters: partition, graph.partitions.",
        )
    return ClusterPlan(with_targets, per_batch, seed, num_ranks)
