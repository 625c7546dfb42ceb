"""Clusters as a source of training steps; outputs are those of whole neighbourhoods, never of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
import torch

from gnnflow.config import ClusterBatchConfig, MiniBatchConfig
from gnnflow.executions.moving import Mover
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graphfeature.blocks import new_scratch
from gnnflow.layers.model import Model, build_model
from gnnflow.train.clusterbatch.cutting import Clusters, NodesOfClusters, PairsOfClusters
from gnnflow.train.clusterbatch.plan import ClusterPlan, plan_clusters
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.in_memory import PairsInMemory, ShardsInMemory, hold_graph
from gnnflow.train.minibatch.loader import BatchLoader
from gnnflow.train.minibatch.opening import open_store_source
from gnnflow.train.minibatch.preparing import Preparing
from gnnflow.train.minibatch.source import BatchStep, MiniBatchSource, steps_at
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import added
from gnnflow.train.source import DealtBatch
from gnnflow.train.state import Row

_MOST_PAIRS = 2048


@dataclass(frozen=True)
class ClusterBatchSource:
    """One rank's clusters. scored: gives its part of each split's outputs, and labels, from the graph in memory."""

    plan: ClusterPlan
    loader: BatchLoader[IntArray]
    scored: MiniBatchSource

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the threads of both loaders."""
        self.loader.close()
        self.scored.loader.close()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have targets."""
        return self.scored.splits

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps, the same for every rank."""
        return self.plan.num_steps

    def steps(self, epoch: int, *, since: int) -> Iterator[BatchStep]:
        """Yield the steps of an epoch from step `since` on."""
        return self.chosen(epoch, (DealtBatch(self.plan.rank, step) for step in range(since, self.plan.num_steps)))

    def chosen(self, epoch: int, places: Iterable[DealtBatch]) -> Iterator[BatchStep]:
        """Yield the steps at these places, whichever share they were dealt to."""
        plan = partial(self.plan.groups, epoch)
        return steps_at(places, plan=plan, loader=self.loader, seed=self.plan.seed, epoch=epoch)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of this rank's part of a split over whole neighbourhoods, in dense id order."""
        return self.scored.outputs(model, split)

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of this rank's part of the train split."""
        return self.scored.train_labels()

    def spent(self) -> Row:
        """Return the seconds that making batches ready has taken so far, by part."""
        return added(self.loader.spent(), self.scored.spent())


def open_cluster_source(job: TrainJob, *, edges: bool = True) -> ClusterBatchSource:
    """Return a job's clusters as a source. Raises TrainingError where there are fewer with targets than ranks."""
    train = job.train
    assert isinstance(train, ClusterBatchConfig)
    assert job.neighbors is not None
    facts, graph = job.neighbors.store.facts, hold_graph(job.neighbors)
    whole, model = graph.neighborhood, build_model(job.model, job.inputs).eval()
    if not edges:
        whole = replace(whole, degrees=whole.degrees.zeros, edges=whole.edges.none)
    clusters = Clusters(whole, facts, model, train.boundary_hops, new_scratch(whole.num_nodes))
    build: NodesOfClusters | PairsOfClusters
    if job.task.kind == "node":
        targets = graph.splits["train"]
        build, nodes = NodesOfClusters(clusters, targets), targets.nodes
    else:
        entry = next(entry for entry in job.entries if entry.split == "train")
        pairs = PairsInMemory(ShardsInMemory(job.neighbors, job.seed), job.task, job.seed)(entry)
        build, nodes = PairsOfClusters(clusters, pairs, graph.neighborhood.degrees, job.task, job.seed), pairs.targets
    plan = plan_clusters(
        np.unique(facts.cluster_book.number(nodes)),
        per_batch=train.clusters_per_batch,
        seed=job.seed,
        rank=job.rank,
        num_ranks=job.num_ranks,
    )
    preparing = Preparing(train.cache, train.prefetch, open_shards=0, mover=Mover(torch.device(job.device)))
    loader = BatchLoader[IntArray](build, model=model, preparing=preparing)
    return ClusterBatchSource(plan, loader, open_store_source(replace(job, train=scoring_of(job)), edges=edges))


def scoring_of(job: TrainJob) -> MiniBatchConfig:
    """Return how outputs are computed: by default each rank's part of a split at once, a row only once then.

    Pairs have a row for each of many negatives, so at most so many of them.
    """
    train = job.train
    assert isinstance(train, ClusterBatchConfig)
    most = max(entry.num_samples for entry in job.entries)
    size = train.eval_batch_size or -(-most // job.num_ranks)
    if job.task.kind != "node" and not train.eval_batch_size:
        size = min(size, _MOST_PAIRS)
    return MiniBatchConfig(source="store", batch_size=size, cache=train.cache, prefetch=train.prefetch)
