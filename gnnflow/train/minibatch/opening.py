"""Sources of a job's mini-batches: where they ask what targets are, and what batches are cut from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from gnnflow.config import MiniBatchConfig, PairTask, TaskConfig
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.sampling import Sampling
from gnnflow.graphfeature.shards import read_pair_shard, read_shard
from gnnflow.layers.model import Model
from gnnflow.neighbors.link_candidates import KnownLinks
from gnnflow.neighbors.selected import Neighbors
from gnnflow.train.heads import PairRule
from gnnflow.train.job import Shards, StoredGraph, TrainJob
from gnnflow.train.minibatch.batches import FIXED_VIEW, EpochPlan, plan_epoch
from gnnflow.train.minibatch.in_memory import PairsInMemory, ShardsInMemory, TargetsInMemory
from gnnflow.train.minibatch.loader import BatchLoader
from gnnflow.train.minibatch.nodes import NodeBatches
from gnnflow.train.minibatch.pairs import PairBatches
from gnnflow.train.minibatch.preparing import Preparing
from gnnflow.train.minibatch.source import MiniBatchSource
from gnnflow.train.outputs import Outputs

Read = Callable[[ShardEntry], Any]
"""Reads a Shard, or a PairShard where targets are pairs."""


def open_task_source(job: TrainJob, *, edges: bool = True) -> MiniBatchSource:
    """Return the job's shards, or its graph in memory, as a source."""
    return open_store_source(job, edges=edges) if isinstance(job.graph, StoredGraph) else open_source(job, edges=edges)


def open_source(
    job: TrainJob, *, edges: bool = True, read: Read | None = None, draws_anew: bool = False
) -> MiniBatchSource:
    """Return the job's shards as a source.

    `read` replaces reading them from the artifact; draws_anew: it reads a new view in each epoch. Raises TrainingError
    where a held-out link of this rank has no candidate left.
    """
    train = job.train
    assert isinstance(train, MiniBatchConfig)
    preparing, model = Preparing.of(job, draws_anew=draws_anew), job.model.build().eval()
    sampling = job.graph.sampling if edges else Sampling.no_edges(model.num_layers)
    if read is None:
        assert isinstance(job.graph, Shards)
        pairs = isinstance(job.task, PairTask)
        read = shard_reader(job.graph.artifact, job.graph.neighbors, pairs=pairs, was_read=preparing.was_read)
    rule = PairRule.of(job) if isinstance(job.task, PairTask) else None
    build = _builder(read, model=model, preparing=preparing, sampling=sampling, rule=rule)
    loader, plan = BatchLoader(build, model=model, preparing=preparing), epoch_plans(job, train, draws_anew=draws_anew)
    return MiniBatchSource.of(job, train, plan=plan, loader=loader, build=build, edges=edges)


def shard_reader(
    artifact: str, neighbors: Neighbors | None, *, pairs: bool = False, was_read: Callable[[], None] = lambda: None
) -> Read:
    """Return what reads GraphFlat's shards. neighbors: as of `Shards`; was_read: as `read_shard` calls it."""
    if neighbors is not None:
        return TargetsInMemory(artifact, neighbors)
    return partial(read_pair_shard if pairs else read_shard, artifact, was_read=was_read)


def epoch_plans(job: TrainJob, train: MiniBatchConfig, *, draws_anew: bool) -> Callable[[int, int], EpochPlan]:
    """Return the plans of a job by epoch and share. draws_anew: each epoch trains on another view."""
    trained_on = [entry for entry in job.graph.entries if entry.split == "train"]

    def plan(epoch: int, share: int) -> EpochPlan:
        view = FIXED_VIEW + 1 + epoch if draws_anew else FIXED_VIEW
        keys = {"rank": share, "world_size": job.share.num_ranks, "view": view}
        return plan_epoch(trained_on, seed=job.seed, epoch=epoch, batch_size=train.batch_size, **keys)

    return lru_cache(job.share.num_ranks + 1)(plan)


def open_store_source(job: TrainJob, *, edges: bool = True) -> MiniBatchSource:
    """Return a job's mini-batches, cut from the graph store in memory."""
    assert isinstance(job.train, MiniBatchConfig)
    assert isinstance(job.graph, StoredGraph)
    draws_anew = job.train.resample == "epoch" and edges
    graph = ShardsInMemory(job.graph.neighbors, job.seed, draws_anew, job.graph.walks, job.train.threads)
    read = PairsInMemory(graph, job.task, job.seed) if isinstance(job.task, PairTask) else graph
    return open_source(job, edges=edges, read=read, draws_anew=draws_anew)


def outputs_on_shards(
    model: Model,
    entries: Sequence[ShardEntry],
    read: Read,
    *,
    sampling: Sampling,
    train: MiniBatchConfig,
    task: TaskConfig | None = None,
    seed: int = 0,
    known: KnownLinks | None = None,
) -> Outputs:
    """Return a model's outputs for all targets of some shards of one split, in stored order.

    sampling: GraphFlat's. train says how much memory, prefetching and which batch size that may take. task: None where
    targets are nodes. seed, known: as `PairRule` has them. Raises TrainingError where there are no labels.
    """
    preparing = Preparing(train.cache, train.prefetch)
    rule = PairRule(task, seed, known) if isinstance(task, PairTask) else None
    build = _builder(read, model=model, preparing=preparing, sampling=sampling, rule=rule)
    loader, split = BatchLoader(build, model=model, preparing=preparing), entries[0].split
    source = MiniBatchSource(
        plan=lambda _epoch, _share: (),
        loader=loader,
        entries=entries,
        splits=(split,),
        build=build,
        scoring=loader,
        seed=seed,
        eval_batch_size=train.scoring_size,
    )
    return source.outputs(model, split)


def outputs_on_store(
    model: Model,
    split: str,
    *,
    neighbors: Neighbors,
    train: MiniBatchConfig,
    task: TaskConfig | None = None,
    seed: int = 0,
    known: KnownLinks | None = None,
) -> Outputs:
    """Return a model's outputs for the targets of a split, in the store's order, over the scored sample.

    train, task, seed, known: as `outputs_on_shards` reads them.
    """
    graph, pairs = ShardsInMemory(neighbors, seed=0), task if isinstance(task, PairTask) else None
    return outputs_on_shards(
        model,
        [entry for entry in StoredGraph(neighbors).entries if entry.split == split],
        graph if pairs is None else PairsInMemory(graph, pairs, seed),
        sampling=neighbors.sampling,
        train=train,
        task=task,
        seed=seed,
        known=known,
    )


def _builder(
    read: Read, *, model: Model, preparing: Preparing, sampling: Sampling, rule: PairRule | None
) -> NodeBatches | PairBatches:
    if rule is None:
        return NodeBatches(read, model, preparing, sampling)
    return PairBatches(read, model, preparing, rule, sampling)
