"""The source of hybrid steps: mini-batch's or cluster-batch's plans of one rank, over builders of a rank's part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gnnflow.config import ClusterBatchConfig, MiniBatchConfig, PairTask
from gnnflow.executions.row_exchange import Exchange, OneRank, told_by_all
from gnnflow.neighbors.pairs import read_pairs
from gnnflow.train.clusterbatch.plan import plan_clusters
from gnnflow.train.clusterbatch.source import scoring_config
from gnnflow.train.globalbatch.graph import partitions_of
from gnnflow.train.heads import PairRule
from gnnflow.train.hybrid.batches import RankNodes, RankPairs
from gnnflow.train.hybrid.clusters import ClusterPart, RankClusterNodes, RankClusterPairs
from gnnflow.train.hybrid.part import RankPart, read_rank_part
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.in_memory import pool_of_split
from gnnflow.train.minibatch.loader import BatchLoader
from gnnflow.train.minibatch.opening import epoch_plans
from gnnflow.train.minibatch.preparing import Preparing
from gnnflow.train.minibatch.source import BatchStep, MiniBatchSource
from gnnflow.train.profile import added
from gnnflow.train.state import Row


@dataclass(frozen=True, kw_only=True)
class RankSource(MiniBatchSource):
    """One rank's part of batches that all ranks compute together."""

    part: RankPart

    def step(self, epoch: int, number: int, *, share: int | None = None) -> BatchStep:
        """Return this rank's part of a step, seeded with its rank. All ranks make theirs together."""
        return replace(super().step(epoch, number), share=self.part.exchange.rank)

    def spent(self) -> Row:
        """Return the seconds that making batches ready and the layers' stages have taken so far."""
        return added(super().spent(), self.part.stages.seconds())


def open_task_source(job: TrainJob, *, edges: bool = True, exchange: Exchange | None = None) -> RankSource:
    """Return this rank's part of a job as a source. exchange: with the other ranks; None where there is one.

    Raises TrainingError where the graph has fewer partitions than there are ranks, or a held-out link has no candidate
    left.
    """
    ranks, train, task, store = exchange or OneRank(), job.train, job.task, job.neighbors.store
    assert isinstance(train, MiniBatchConfig | ClusterBatchConfig)
    job = job.of_rank(0, 1)  # all ranks follow the plans of one
    scored = train if isinstance(train, MiniBatchConfig) else scoring_config(job)
    draws_anew, partitions = edges and scored.resample == "epoch", partitions_of(ranks.rank, ranks.size, store.book)
    part = read_rank_part(job, partitions, edges=edges, draws_anew=draws_anew, exchange=ranks)
    build: RankNodes | RankPairs
    if isinstance(task, PairTask):
        pools = {each.split: pool_of_split(store, task, each.split, seed=job.seed) for each in job.graph.entries}
        build = RankPairs.of(part, read_pairs(store, partitions), PairRule.of(job), pools)
    else:
        build = RankNodes(part, part.begins(part.own))

    def agreed(size: int) -> int:
        return int(told_by_all(ranks, np.array([size], np.int64)).max())

    preparing = replace(Preparing.of(replace(job, train=scored), draws_anew=draws_anew), agreed=agreed)
    if ranks.size > 1:  # ranks make batches together, so no thread makes them ahead
        preparing = replace(preparing, prefetch=0)
    loader = BatchLoader(build, model=part.model, preparing=preparing)
    plan = epoch_plans(job, scored, draws_anew=draws_anew)
    source = RankSource.of(job, scored, plan=plan, loader=loader, build=build, edges=edges, part=part)
    if isinstance(train, MiniBatchConfig):
        return source
    clusters = ClusterPart(part, store.facts, train.boundary_hops)
    made: RankClusterNodes | RankClusterPairs
    if isinstance(build, RankPairs):
        made = RankClusterPairs(clusters, build.stored, build.rule)
        nodes = build.stored.targets[build.stored.of("train")]
    else:
        made, nodes = RankClusterNodes(clusters), part.own.rows[part.own.of("train")] + part.own.first
    planned = plan_clusters(
        part.union(store.facts.cluster_book.number(nodes)),
        per_batch=train.clusters_per_batch,
        seed=job.seed,
        num_ranks=1,
    )
    # a cache that is not shared with scoring, and the same clock
    trained = BatchLoader(made, model=part.model, preparing=replace(preparing))
    return replace(source, plan=lru_cache(2)(planned.groups), loader=trained)
