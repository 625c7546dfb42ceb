"""The checks of training: ranks and workers, stores, clusters and the whole graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.base import problem
from gnnflow.config.cluster_section import AddressCluster, SynchronousCluster
from gnnflow.config.messages import show
from gnnflow.config.neighbors_section import DirectNeighbors, WalkNeighbors
from gnnflow.config.partition_section import Clustered
from gnnflow.config.train_section import (
    FIXED_MEMORY,
    ClusterBatchConfig,
    GlobalBatchConfig,
    MiniBatchConfig,
    is_hybrid,
    needs_ranks,
    pipeline_of,
    trains_from_shards,
)

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections


def check_workers(config: Sections) -> None:
    """Raise where the cluster has no worker for each rank."""
    if not needs_ranks(config.train) or isinstance(config.cluster, AddressCluster):
        return
    if isinstance(config.cluster, SynchronousCluster):
        raise problem(
            f"train.workers is {config.train.workers} with train.updater {config.train.updater.kind}, and ranks are "
            "tasks of a Dask cluster, which cluster.kind: synchronous is not",
            key="train.workers",
            fix=f"Set cluster to {{kind: local, workers: {config.train.workers}}}, or train.workers to 1.",
        )
    if config.cluster.workers < config.train.workers and not config.train.elastic:
        raise problem(
            f"{config.train.workers} ranks need as many Dask workers, and cluster.workers is {config.cluster.workers}",
            key="train.workers",
            fix=f"Set cluster.workers to {config.train.workers}, or train.elastic to true.",
        )


def check_store_training(config: Sections) -> None:
    """Raise where training on a graph store meets keys that only shards support."""
    if trains_from_shards(config.train):
        return
    if config.task.kind != "node":
        _check_times(config)
    if isinstance(config.train, MiniBatchConfig) and config.train.resample == "epoch":
        _check_resampling(config)
    if isinstance(config.train, ClusterBatchConfig) and config.neighbors.sampling.kind != "none":
        raise problem(
            f"{config.neighbors.sampling.kind} is not allowed where train.strategy is cluster-batch, whose batches "
            "have every edge among their nodes",
            key="neighbors.sampling.kind",
            fix="Set it to none, or train with mini-batch.",
        )
    if isinstance(config.train, ClusterBatchConfig):
        _check_cluster_count(config, config.train.clusters_per_batch)


def check_shard_keys(config: Sections) -> None:
    """Raise where keys describe shards and the strategy writes none."""
    if trains_from_shards(config.train):
        return
    trained = "source: store" if isinstance(config.train, MiniBatchConfig) else config.train.strategy
    for key in ("shard_size", "layout", "targets"):
        value = getattr(config.flat, key)
        if value != type(config.flat).model_fields[key].default:
            raise problem(
                f"{show(value)} describes GraphFlat's shards, and training by {trained} reads none",
                key=f"flat.{key}",
                fix="Leave it out, or set train to {strategy: mini-batch, source: shards}.",
            )


def _check_times(config: Sections) -> None:
    task, strategy = config.task, config.train.strategy
    other = "it to mini-batch"
    if is_hybrid(config.train):
        strategy, other = f"{strategy} with train.parallel: hybrid", "train to {strategy: mini-batch}"
    elif isinstance(config.train, MiniBatchConfig):
        return
    if task.kind != "node" and task.split.earlier_only:
        raise problem(
            f"{strategy} computes a node once in a step, and where edges have times its row differs at each time",
            key="train.parallel" if is_hybrid(config.train) else "train.strategy",
            fix=f"Set {other}, which computes a node once for each time, from shards or from the store. "
            "Or choose a task.split that is not by time, without earlier_only.",
        )


def _check_cluster_count(config: Sections, per_batch: int) -> None:
    own = config.partition.clusters if isinstance(config.partition, Clustered) else None
    found = config.graph.partitions if own is None else own
    if found is not None and found < max(per_batch, 2):
        raise problem(
            f"{found} is not allowed where train.strategy is cluster-batch: a graph has two clusters or more, and "
            f"a batch takes {per_batch} of them",
            key="partition.clusters" if own else "graph.partitions",
            fix="Raise it, or lower train.clusters_per_batch. Without partition.clusters a partition is a cluster.",
        )


def _check_resampling(config: Sections) -> None:
    neighbors = config.neighbors
    if isinstance(neighbors, DirectNeighbors) and neighbors.sampling.kind in {"uniform", "weighted"}:
        return
    if isinstance(neighbors, WalkNeighbors):
        if is_hybrid(config.train):
            raise problem(
                "epoch draws walks from the whole graph, and with train.parallel: hybrid a rank has only a part of it",
                key="train.resample",
                fix="Leave it out, or set train.parallel to data.",
            )
        return
    direct = isinstance(neighbors, DirectNeighbors)
    said = f"sampling.kind is {neighbors.sampling.kind}" if direct else f"kind is {neighbors.kind}"
    raise problem(
        f"epoch draws a uniform or weighted sample of direct neighbours, or walks, anew, and neighbors.{said}",
        key="train.resample",
        fix="Leave it out, or set neighbors.sampling to {kind: uniform, fanout: [...]} or neighbors.kind to walks.",
    )


def check_global_batch(config: Sections) -> None:
    """Raise where ranks cannot share the whole graph."""
    train, partitions = config.train, config.graph.partitions
    if not pipeline_of(train).is_joint:
        return
    named = "train.parallel is hybrid" if is_hybrid(train) else f"train.strategy is {train.strategy}"
    if train.updater.kind != "all_reduce":
        raise problem(
            f"{train.updater.kind} is not allowed where {named}: ranks compute every step together, so no rank has "
            "its own gradients to push",
            key="train.updater.kind",
            fix="Leave train.updater out.",
        )
    if isinstance(train, GlobalBatchConfig):
        if train.folds != GlobalBatchConfig.model_fields["folds"].default:
            _check_folds(config, train)
        if train.memory is not None:
            _check_budget(config, train)
    if partitions is not None and partitions < train.workers:
        raise problem(
            f"{train.workers} ranks share {partitions} partitions under "
            f"{'hybrid' if is_hybrid(train) else train.strategy}, and each needs one",
            key="graph.partitions",
            fix=f"Set it to {train.workers} or more.",
        )


def _check_folds(config: Sections, train: GlobalBatchConfig) -> None:
    """Raise where folds have no effect: training edges stay in the graph, and an epoch is one step."""
    if config.task.kind == "node" or (config.task.kind == "edge" and config.task.messages):
        why = " with task.messages: true" if config.task.kind == "edge" else ""
        raise problem(
            f"{train.folds} is not allowed where task.kind is {config.task.kind}{why}: an epoch is one step then",
            key="train.folds",
            fix="Leave it out.",
        )


def _check_budget(config: Sections, train: GlobalBatchConfig) -> None:
    held: dict[str, tuple[object, tuple[object, ...], str]] = {
        "train.device": (train.device, ("cpu", "cuda"), "the budget is for the memory of one device"),
        "train.precision": (train.precision, ("float32",), "files hold float32"),
        "task.kind": (config.task.kind, ("node",), "a step has one row per target, and pairs have two ends"),
    }
    for key, (found, allowed, why) in held.items():
        if found not in allowed:
            raise problem(
                f"{found} is not allowed where train.memory is set: {why}",
                key=key,
                fix=f"Set it to {' or '.join(map(str, allowed))}, or leave train.memory out.",
            )
    _check_budget_relations(config, train)
    if train.memory is not None and train.memory < FIXED_MEMORY[train.device]:
        raise problem(
            f"{show(train.memory)} is not enough for any graph",
            key="train.memory",
            fix="Set it to what the machine can spare, such as 2GiB: where that is not enough for this graph, "
            "`gnnflow plan CONFIG` and training name the least that is.",
        )


def _check_budget_relations(config: Sections, train: GlobalBatchConfig) -> None:
    """Raise where edges of some relation cannot lie in files of intervals of one node type each."""
    relations, neighbors = config.aggregated_relations or {}, config.neighbors
    if train.device == "cuda" and (config.graph.schema.is_typed or len(relations) > 1):
        where = "typed" if config.graph.schema.is_typed else f"one whose {neighbors.kind} give several relations"
        raise problem(
            f"cuda is not allowed where train.memory is set and the graph is {where}: a card takes chunks of one "
            "relation",
            key="train.device",
            fix="Set it to cpu, or leave train.memory out.",
        )
    if train.workers > 1 and set(relations.values()) - {1}:
        raise problem(
            f"{train.workers} is not allowed where train.memory is set and neighbours are {neighbors.kind}: the "
            "leaves of one edge may lie on any rank",
            key="train.workers",
            fix="Set it to 1, or leave train.memory out.",
        )
