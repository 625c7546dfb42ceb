"""How training is cut: ranks and workers, stores, clusters and the whole graph."""

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


def ranks_have_workers(config: Sections) -> None:
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


def a_store_can_be_trained_on(config: Sections) -> None:
    """Raise where training on a graph store is asked for what only shards have."""
    if trains_from_shards(config.train):
        return
    if config.task.kind != "node":
        _pairs_can_be_trained_on(config)
    if isinstance(config.train, MiniBatchConfig) and config.train.resample == "epoch":
        _sample_can_be_drawn_again(config)
    if isinstance(config.train, ClusterBatchConfig) and config.neighbors.sampling.kind != "none":
        raise problem(
            f"{config.neighbors.sampling.kind} is not allowed where train.strategy is cluster-batch, whose batches "
            "have every edge among their nodes",
            key="neighbors.sampling.kind",
            fix="Set it to none, or train with mini-batch.",
        )
    if isinstance(config.train, ClusterBatchConfig):
        _clusters_are_enough(config, config.train.clusters_per_batch)


def shards_are_cut_where_they_are_described(config: Sections) -> None:
    """Raise where keys say how shards are laid out and the strategy cuts none."""
    if trains_from_shards(config.train):
        return
    trained = "source: store" if isinstance(config.train, MiniBatchConfig) else config.train.strategy
    for key in ("shard_size", "layout", "targets"):
        value = getattr(config.flat, key)
        if value != type(config.flat).model_fields[key].default:
            raise problem(
                f"{show(value)} is of GraphFlat's shards, and training by {trained} reads none",
                key=f"flat.{key}",
                fix="Leave it out, or set train to {strategy: mini-batch, source: shards}.",
            )


def _pairs_can_be_trained_on(config: Sections) -> None:
    task, strategy = config.task, config.train.strategy
    other = "it to mini-batch"
    if is_hybrid(config.train):
        strategy, other = f"{strategy} with train.parallel: hybrid", "train to {strategy: mini-batch}"
    elif isinstance(config.train, MiniBatchConfig):
        return
    if task.kind != "node" and task.split.earlier_only:
        raise problem(
            f"{strategy} computes a node once in a step, and where edges have times it is another node at each of them",
            key="train.parallel" if is_hybrid(config.train) else "train.strategy",
            fix=f"Set {other}, which computes a node once for each time asked for, from shards or from the store. Or "
            "choose a task.split that is not by time, without earlier_only.",
        )


def _clusters_are_enough(config: Sections, per_batch: int) -> None:
    own = config.partition.clusters if isinstance(config.partition, Clustered) else None
    found = config.graph.partitions if own is None else own
    if found is not None and found < max(per_batch, 2):
        raise problem(
            f"{found} is not allowed where train.strategy is cluster-batch: a graph has two clusters or more, and "
            f"a batch takes {per_batch} of them",
            key="partition.clusters" if own else "graph.partitions",
            fix="Raise it, or lower train.clusters_per_batch. Without partition.clusters a partition is a cluster.",
        )


def _sample_can_be_drawn_again(config: Sections) -> None:
    neighbors = config.neighbors
    if isinstance(neighbors, DirectNeighbors) and neighbors.sampling.kind in {"uniform", "weighted"}:
        return
    if isinstance(neighbors, WalkNeighbors):
        if is_hybrid(config.train):
            raise problem(
                "epoch draws walks anew from the whole graph, of which a rank under train.parallel: hybrid has a part",
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


def the_whole_graph_can_be_one_batch(config: Sections) -> None:
    """Raise where ranks cannot share the whole graph."""
    train, partitions = config.train, config.graph.partitions
    if not pipeline_of(train).is_joint:
        return
    named = "train.parallel is hybrid" if is_hybrid(train) else f"train.strategy is {train.strategy}"
    if train.updater.kind != "all_reduce":
        raise problem(
            f"{train.updater.kind} is not allowed where {named}: ranks compute every step together, so none has "
            "gradients of its own to push",
            key="train.updater.kind",
            fix="Leave train.updater out.",
        )
    if isinstance(train, GlobalBatchConfig):
        if train.folds != GlobalBatchConfig.model_fields["folds"].default:
            _edges_are_held_out(config, train)
        if train.memory is not None:
            _files_keep_the_budget(config, train)
    if partitions is not None and partitions < train.workers:
        raise problem(
            f"{train.workers} ranks share {partitions} partitions under "
            f"{'hybrid' if is_hybrid(train) else train.strategy}, and each needs one",
            key="graph.partitions",
            fix=f"Set it to {train.workers} or more.",
        )


def _edges_are_held_out(config: Sections, train: GlobalBatchConfig) -> None:
    """Raise where no training edge is held out of the graph that scores it, so that an epoch is one step."""
    if config.task.kind == "node" or (config.task.kind == "edge" and config.task.messages):
        why = " with task.messages: true" if config.task.kind == "edge" else ""
        raise problem(
            f"{train.folds} is not allowed where task.kind is {config.task.kind}{why}: an epoch is one step then",
            key="train.folds",
            fix="Leave it out.",
        )


def _files_keep_the_budget(config: Sections, train: GlobalBatchConfig) -> None:
    held: dict[str, tuple[object, tuple[object, ...], str]] = {
        "train.device": (train.device, ("cpu", "cuda"), "the budget is that of one device's memory"),
        "train.precision": (train.precision, ("float32",), "files hold float32"),
        "task.kind": (config.task.kind, ("node",), "a step's rows are those of targets, and pairs have two ends"),
    }
    for key, (found, allowed, why) in held.items():
        if found not in allowed:
            raise problem(
                f"{found} is not allowed where train.memory is set: {why}",
                key=key,
                fix=f"Set it to {' or '.join(map(str, allowed))}, or leave train.memory out.",
            )
    _files_hold_the_relations(config, train)
    if train.memory is not None and train.memory < FIXED_MEMORY[train.device]:
        raise problem(
            f"{show(train.memory)} is not enough for any graph",
            key="train.memory",
            fix="Set it to what the machine can spare, such as 2GiB: where that is not enough for this graph, "
            "`gnnflow plan CONFIG` and training name the least that is.",
        )


def _files_hold_the_relations(config: Sections, train: GlobalBatchConfig) -> None:
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
