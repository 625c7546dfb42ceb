"""Clusters as a source of training steps; outputs are those of whole neighbourhoods, never of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from gnnflow.config import ClusterBatchConfig, MiniBatchConfig
from gnnflow.executions.clusterbatch import forward
from gnnflow.executions.moving import Mover
from gnnflow.graph.arrays import Array
from gnnflow.graphfeature.blocks import new_scratch
from gnnflow.layers import FeatureTensors
from gnnflow.layers.model import Model, build_model
from gnnflow.train.clusterbatch.cutting import Clusters, NodesOfClusters, PairsOfClusters
from gnnflow.train.clusterbatch.loader import ClusterLoader, ClusterTensors
from gnnflow.train.clusterbatch.plan import ClusterPlan, plan_clusters
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.dealt import Draws, PreparedStep, prepared_in_turn
from gnnflow.train.minibatch.in_memory import ShardsInMemory, hold_graph, open_store_source
from gnnflow.train.minibatch.memory import Memory
from gnnflow.train.minibatch.pair_source import PairSource, PairStep
from gnnflow.train.minibatch.pairs_in_memory import PairsInMemory, open_store_pairs
from gnnflow.train.minibatch.source import MiniBatchSource
from gnnflow.train.outputs import Outputs
from gnnflow.train.profile import added
from gnnflow.train.source import DealtBatch
from gnnflow.train.state import Row

_MOST_PAIRS = 2048


@dataclass(frozen=True)
class ClusterStep(PreparedStep[ClusterTensors]):
    """A prepared batch of clusters."""

    @property
    def features(self) -> FeatureTensors:
        """Features of the batch's rows, targets first; on a graph with types those of the targets' type."""
        features = self.batch.tensors.features
        assert features is not None
        return features.of_targets

    def logits(self, model: Model) -> Tensor:
        """Return the outputs of the batch's targets."""
        return forward(model, self.batch.tensors)


@dataclass(frozen=True)
class ClusterBatchSource:
    """One rank's clusters. scored: gives its part of each split's outputs, and labels, from the graph in memory.

    step: what a prepared batch is to the loop.
    """

    plan: ClusterPlan
    loader: ClusterLoader[Any]
    scored: MiniBatchSource | PairSource
    step: type[ClusterStep | PairStep]

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

    def steps(self, epoch: int, *, since: int) -> Iterator[ClusterStep | PairStep]:
        """Yield the prepared batches of an epoch from step `since` on."""
        own = (DealtBatch(self.plan.rank, step) for step in range(since, self.plan.num_steps))
        return self.chosen(epoch, own)

    def chosen(self, epoch: int, places: Iterable[DealtBatch]) -> Iterator[ClusterStep | PairStep]:
        """Yield the prepared batches of these places, whichever share they were dealt to."""
        seed, device = self.plan.seed, self.loader.mover.device
        prepare = partial(self.loader.batches, epoch=epoch)
        found = prepared_in_turn(places, plan=partial(self.plan.groups, epoch), prepare=prepare)
        return (self.step(batch, Draws(seed, epoch, place.step, place.share, device)) for place, batch in found)

    def outputs(self, model: Model, split: str) -> Outputs:
        """Return the outputs of this rank's part of a split over whole neighbourhoods, in dense id order."""
        return self.scored.outputs(model, split)

    def train_labels(self) -> Iterable[Array]:
        """Yield the labels of this rank's part of the train split."""
        return self.scored.train_labels()

    def spent(self) -> Row:
        """Return the seconds that making batches ready has taken so far, by part."""
        return added(self.loader.watch.seconds(), self.scored.spent())


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
    scoring = replace(job, train=_scoring(job))
    scored: MiniBatchSource | PairSource
    build: NodesOfClusters | PairsOfClusters
    if job.task.kind == "node":
        targets = graph.splits["train"]
        build, nodes = NodesOfClusters(clusters, targets), targets.nodes
        scored = open_store_source(scoring, edges=edges)
    else:
        scored = open_store_pairs(scoring, edges=edges)
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
    loader = ClusterLoader[Any](
        build,
        model,
        train.prefetch,
        Memory(train.cache, open_shards=0),
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="gnnflow-clusters"),
        keeps=job.task.kind == "node",
        mover=Mover(torch.device(job.device)),
    )
    return ClusterBatchSource(plan, loader, scored, ClusterStep if job.task.kind == "node" else PairStep)


def _scoring(job: TrainJob) -> MiniBatchConfig:
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
