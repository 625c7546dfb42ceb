"""The checks of tables and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.base import problem
from gnnflow.config.graph_section import table_key, tables_by_name
from gnnflow.config.neighbors_section import DirectNeighbors, MetapathNeighbors, NoSampling
from gnnflow.config.partition_section import BalancedPartition, Clustered

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections


def check_memory_urls(config: Sections) -> None:
    """Raise where several processes are to read tables or a workspace in the memory of one process."""
    if config.cluster.kind == "synchronous":
        return
    tables = {table_key(name): uri for name, uri in tables_by_name(config.graph).items()}
    for key, uri in {"workspace": config.workspace, **tables}.items():
        if uri.startswith("memory:"):
            raise problem(
                f"{uri!r} is in the memory of one process, and the workers of a {config.cluster.kind} cluster are "
                "other processes",
                key=key,
                fix="Set cluster to {kind: synchronous}, or give a folder or a bucket.",
            )


def check_balance(config: Sections) -> None:
    """Raise where partitions are balanced by cost and the neighbours have no costs."""
    if not isinstance(config.partition, BalancedPartition):
        return
    if not isinstance(config.neighbors, (DirectNeighbors, MetapathNeighbors)):
        raise problem(
            f"balanced is not allowed where neighbors.kind is {config.neighbors.kind}: only direct neighbours and "
            "metapaths have costs",
            key="partition.kind",
            fix="Set it to metis, louvain or hash.",
        )
    known = [str(relation) for relation in config.aggregated_relations or ()]
    if unknown := [name for name in config.partition.relations if name not in known]:
        key = "partition.relations"
        raise problem(f"{unknown[0]!r} is not an aggregated relation", key=key, fix=f"They are {', '.join(known)}.")


def check_placement(config: Sections) -> None:
    """Raise where edges are placed and the neighbours are not all of the graph's own edges."""
    if not config.partition.placement:
        return
    if not isinstance(config.neighbors, DirectNeighbors) or not isinstance(config.neighbors.sampling, NoSampling):
        chosen = config.neighbors.kind
        if isinstance(config.neighbors, DirectNeighbors):
            chosen = f"sampled ({config.neighbors.sampling.kind})"
        raise problem(
            f"{config.partition.kind} is not allowed where neighbours are {chosen}: it places the graph's own edges, "
            "and such neighbours are chosen at their target",
            key="partition.kind",
            fix="Set neighbors to direct ones without sampling, or this to hash, metis, louvain or ldg.",
        )


def check_clusters(config: Sections) -> None:
    """Raise where clusters cannot be divided evenly among partitions."""
    clusters = config.partition.clusters if isinstance(config.partition, Clustered) else None
    partitions = config.graph.partitions
    if clusters is not None and (partitions is None or clusters % partitions):
        asked, fix = "left to the sizes of the tables", "Set graph.partitions to a number that divides it."
        if partitions is not None:
            asked, fix = str(partitions), f"Set it to {max(round(clusters / partitions), 1) * partitions}."
        raise problem(
            f"{clusters} is not a multiple of graph.partitions, which is {asked}", key="partition.clusters", fix=fix
        )
