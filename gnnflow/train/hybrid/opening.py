"""The source of hybrid steps: mini-batch's or cluster-batch's, of one rank, over builders of a rank's part."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnflow.config import ClusterBatchConfig, MiniBatchConfig, PairTask
from gnnflow.executions.moving import Mover
from gnnflow.executions.row_exchange import Exchange, OneRank, joined, told_by_all
from gnnflow.graph.arrays import IntArray, distinct
from gnnflow.neighbors.pairs import read_pairs
from gnnflow.train.clusterbatch.plan import plan_clusters
from gnnflow.train.clusterbatch.source import ClusterBatchSource, scoring_of
from gnnflow.train.globalbatch.graph import partitions_of
from gnnflow.train.hybrid.batches import OwnPairs, RankNodes, RankPairs
from gnnflow.train.hybrid.clusters import ClusterPart, RankClusterNodes, RankClusterPairs
from gnnflow.train.hybrid.part import RankPart, read_rank_part
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.in_memory import pool_of_split
from gnnflow.train.minibatch.loader import BatchLoader, SplitBuilder
from gnnflow.train.minibatch.preparing import Preparing
from gnnflow.train.minibatch.source import MiniBatchSource
from gnnflow.train.profile import added
from gnnflow.train.state import Row


@dataclass(frozen=True, kw_only=True)
class RankSource(MiniBatchSource):
    """One rank's part of batches that all ranks compute together."""

    part: RankPart

    def spent(self) -> Row:
        """Return the seconds that making batches ready has taken so far, and the seconds of the layers' stages."""
        return added(super().spent(), self.part.stages.seconds())


def open_task_source(
    job: TrainJob, *, edges: bool = True, exchange: Exchange | None = None
) -> RankSource | ClusterBatchSource:
    """Return this rank's part of a job as a source of what its strategy and task have: an `OpenJointSource`.

    Raises TrainingError where the graph has fewer partitions than there are ranks.
    """
    exchange, train, task = exchange or OneRank(), job.train, job.task
    assert isinstance(train, MiniBatchConfig | ClusterBatchConfig)
    assert job.neighbors is not None
    draws_anew = edges and isinstance(train, MiniBatchConfig) and train.resample == "epoch"
    part = read_rank_part(job, edges=edges, draws_anew=draws_anew, exchange=exchange)
    pairs: OwnPairs | None = None
    build: SplitBuilder
    if isinstance(task, PairTask):
        store = job.neighbors.store
        own = partitions_of(exchange.rank, exchange.size, store.book)
        pairs = OwnPairs.of(part, read_pairs(store, own), task, job.known)
        pools = {each.split: pool_of_split(store, task, each.split, seed=job.seed) for each in job.entries}
        build = RankPairs(pairs, pools)
    else:
        build = RankNodes.of(part)
    scored = train if isinstance(train, MiniBatchConfig) else scoring_of(replace(job, num_ranks=1))
    source = RankSource(
        entries=job.entries,
        build=build,
        loader=BatchLoader(build, model=part.model, preparing=_preparing(job, exchange)),
        seed=job.seed,
        batch_size=scored.batch_size,
        eval_batch_size=scored.scoring_size,
        draws_anew=draws_anew,
        part=part,
    )
    if edges:  # without them the candidates are the same
        source.check_candidates()
    if isinstance(train, MiniBatchConfig):
        return source
    facts = job.neighbors.store.facts
    clusters = ClusterPart(part, facts, train.boundary_hops)
    nodes = (
        part.own.rows[part.own.of("train")] + part.own.first
        if pairs is None
        else pairs.stored.targets[pairs.stored.of("train")]
    )
    numbers = distinct(facts.cluster_book.number(nodes))
    plan = plan_clusters(
        distinct(joined(exchange, numbers[:, None])[:, 0]),
        per_batch=train.clusters_per_batch,
        seed=job.seed,
        rank=0,
        num_ranks=1,
    )
    made = RankClusterNodes(clusters) if pairs is None else RankClusterPairs(clusters, pairs)
    loader = BatchLoader[IntArray](made, model=part.model, preparing=_preparing(job, exchange))
    return ClusterBatchSource(plan, loader, source)


def _preparing(job: TrainJob, exchange: Exchange) -> Preparing:
    """Return what making batches may take. Several ranks make them in turn with computing, so that all keep step."""
    train = job.train
    assert isinstance(train, MiniBatchConfig | ClusterBatchConfig)

    def largest(size: int) -> int:
        return int(told_by_all(exchange, np.array([size], np.int64)).max())

    prefetch = train.prefetch if exchange.size == 1 else 0
    mover = Mover(torch.device(job.device))
    return Preparing(train.cache, prefetch, open_shards=0, mover=mover, rank=exchange.rank, agreed=largest)
