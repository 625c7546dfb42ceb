"""Which nodes share a partition, and what partitions then have to offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.base import problem
from gnnflow.config.neighbors_section import DirectNeighbors, MetapathNeighbors, NoSampling
from gnnflow.config.partition_section import BalancedPartition, Clustered

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections


def partitions_can_be_balanced(config: Sections) -> None:
    """Raise where partitions are to cost alike and the neighbours have no costs."""
    if not isinstance(config.partition, BalancedPartition):
        return
    if not isinstance(config.neighbors, (DirectNeighbors, MetapathNeighbors)):
        raise problem(
            f"balanced is not allowed where neighbors.kind is {config.neighbors.kind}: costs are those of direct "
            "neighbours or of metapaths",
            key="partition.kind",
            fix="Set it to metis, louvain or hash.",
        )
    known = [str(relation) for relation in config.aggregated_relations or ()]
    if unknown := [name for name in config.partition.relations if name not in known]:
        key = "partition.relations"
        raise problem(f"{unknown[0]!r} is no relation that is aggregated", key=key, fix=f"They are {', '.join(known)}.")


def placed_edges_are_the_graphs_own(config: Sections) -> None:
    """Raise where edges are placed that the chosen neighbours do not consist of."""
    if not config.partition.placement:
        return
    if not isinstance(config.neighbors, DirectNeighbors) or not isinstance(config.neighbors.sampling, NoSampling):
        chosen = config.neighbors.kind
        if isinstance(config.neighbors, DirectNeighbors):
            chosen = f"sampled ({config.neighbors.sampling.kind})"
        raise problem(
            f"{config.partition.kind} is not allowed where neighbours are {chosen}: these are chosen at their "
            "target, and the graph's own edges are placed",
            key="partition.kind",
            fix="Set neighbors to direct ones without sampling, or this to hash, metis, louvain or ldg.",
        )


def clusters_are_a_multiple_of_partitions(config: Sections) -> None:
    """Raise where partitions would not have as many clusters each."""
    clusters = config.partition.clusters if isinstance(config.partition, Clustered) else None
    partitions = config.graph.partitions
    if clusters is not None and (partitions is None or clusters % partitions):
        asked, fix = "left to the sizes of the tables", "Set graph.partitions to a number that divides it."
        if partitions is not None:
            asked, fix = str(partitions), f"Set it to {max(round(clusters / partitions), 1) * partitions}."
        raise problem(
            f"{clusters} is no multiple of graph.partitions, which is {asked}", key="partition.clusters", fix=fix
        )
