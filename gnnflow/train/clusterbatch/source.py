"""Clusters as a source of training steps; outputs are computed from whole neighbourhoods, never from clusters."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from gnnflow.config import ClusterBatchConfig, MiniBatchConfig, PairTask
from gnnflow.graphfeature.blocks import new_scratch
from gnnflow.train.clusterbatch.cutting import Clusters, NodesOfClusters, PairsOfClusters
from gnnflow.train.clusterbatch.plan import plan_clusters
from gnnflow.train.heads import PairRule
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch import MiniBatchSource, open_store_source
from gnnflow.train.minibatch.in_memory import PairsInMemory, ShardsInMemory, hold_graph
from gnnflow.train.minibatch.loader import BatchLoader

_MOST_PAIRS = 2048


def open_cluster_source(job: TrainJob, *, edges: bool = True) -> MiniBatchSource:
    """Return a job's clusters as a source. Raises TrainingError where there are fewer with targets than ranks."""
    train = job.train
    assert isinstance(train, ClusterBatchConfig)
    facts, graph = job.neighbors.store.facts, hold_graph(job.neighbors)
    whole, model = graph.neighborhood, job.model.build().eval()
    if not edges:
        whole = replace(whole, degrees=whole.degrees.zeros, edges=whole.edges.no_edges)
    clusters = Clusters(whole, facts, model, train.boundary_hops, new_scratch(whole.num_nodes))
    build: NodesOfClusters | PairsOfClusters
    if isinstance(job.task, PairTask):
        entry = next(entry for entry in job.graph.entries if entry.split == "train")
        pairs = PairsInMemory(ShardsInMemory(job.neighbors, job.seed), job.task, job.seed)(entry)
        rule = PairRule(job.task, job.seed)
        build, nodes = PairsOfClusters(clusters, pairs, graph.neighborhood.degrees, rule), pairs.targets
    else:
        targets = graph.splits["train"]
        build, nodes = NodesOfClusters(clusters, targets), targets.nodes
    plan = plan_clusters(
        np.unique(facts.cluster_book.number(nodes)),
        per_batch=train.clusters_per_batch,
        seed=job.seed,
        num_ranks=job.share.num_ranks,
    )
    scored = open_store_source(replace(job, train=scoring_config(job)), edges=edges)
    # a cache that is not shared with scoring, whose batches may fill it, and the same clock
    preparing = replace(scored.scoring.preparing, open_shards=0)
    loader = BatchLoader(build, model=model, preparing=preparing)
    return replace(scored, plan=lru_cache(job.share.num_ranks + 1)(plan.groups), loader=loader)


def scoring_config(job: TrainJob) -> MiniBatchConfig:
    """Return how outputs are computed: by default each rank's part of a split at once, a row only once then.

    Pairs have a row for each of many negatives, so at most so many of them.
    """
    train = job.train
    assert isinstance(train, ClusterBatchConfig)
    most = max(entry.num_samples for entry in job.graph.entries)
    size = train.eval_batch_size or -(-most // job.share.num_ranks)
    if job.task.kind != "node" and not train.eval_batch_size:
        size = min(size, _MOST_PAIRS)
    return MiniBatchConfig(source="store", batch_size=size, cache=train.cache, prefetch=train.prefetch)
