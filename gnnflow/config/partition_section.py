"""The `partition` section: which nodes share a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gnnflow.config.base import Integer, Number, Section

if TYPE_CHECKING:
    from gnnflow.graph.schema import Placement

Cost = Annotated[Number, Field(ge=0)]


class PartitionKind(Section):
    """What every kind of partitioning says."""

    @property
    def placement(self) -> Placement:
        """Where edges are placed, other than at their targets, where ingest has them."""
        return ""


class HashPartition(PartitionKind):
    """Nodes are dealt to partitions by the hash of their id, as ingest does."""

    kind: Literal["hash"] = Field("hash", description="By the hash of the node's id: the graph store as ingest has it.")


class BalancedPartition(PartitionKind):
    """Partitions that take equally long: nodes move from dear ones to cheap ones, and few edges are cut."""

    kind: Literal["balanced"] = Field(
        "balanced",
        description="Hash partitions, from which nodes move until all cost about the same (FlexGraph's balancing).",
    )
    threshold: Number = Field(
        1.05, gt=1, le=100, description="Balance factor, the largest cost over the mean, above which nodes are moved."
    )
    per_root: Cost = Field(
        1.0,
        description="What a node costs, whatever it aggregates, in any unit. `gnnflow costs RUN` learns this key and "
        "`relations` from how long the tasks of a run took.",
    )
    relations: dict[str, tuple[Cost, Cost, Cost]] = Field(
        {},
        description="What aggregating costs a node, by source__relation__target: per instance (an in-edge, or a path "
        "along a metapath), per node that these come from, and per instance squared. One that is left out costs 1 per "
        "node that its instances come from.",
    )


PARTITIONERS = {"metis": "pymetis", "louvain": "networkit"}
"""The kinds that a library makes, which is an extra of the kind's name, and its module."""


class RangePartition(PartitionKind):
    """Nodes whose ids follow one another share a partition."""

    kind: Literal["range"] = Field(
        "range",
        description="By the order of ids, equally many nodes of each type to a partition: for ids that say which nodes "
        "belong together, such as those numbered by place or time.",
    )


Load = Literal["nodes", "edges", "targets"]


class LdgPartition(PartitionKind):
    """Few edges between partitions, with little memory."""

    kind: Literal["ldg"] = Field(
        "ldg",
        description="Nodes are streamed, each to the partition that has most of its in-neighbours (LDG): cuts less "
        "than hash and more than metis, and holds no more edges than one partition has.",
    )
    imbalance: Number = Field(
        1.05, gt=1, le=2, description="Largest number in a partition, over the mean, of each thing that is even."
    )
    even: tuple[Load, ...] = Field(
        ("nodes",),
        min_length=1,
        max_length=3,
        description="What is kept even: nodes, in-edges, training targets. With several of them more edges are cut, "
        "and where they are at odds the bound is exceeded.",
    )
    passes: Integer = Field(
        3, ge=1, le=100, description="How often nodes are streamed; each pass reads all edges once and cuts fewer."
    )


class EdgePartition(PartitionKind):
    """Edges are placed where one of their ends lives."""

    kind: Literal["edge_1d"] = Field(
        "edge_1d",
        description="Nodes as hash has them, and each edge placed at one of its ends, with figures of what that would "
        "save. Global-batch training computes a layer so where that is fewer bytes.",
    )
    by: Literal["source", "target"] = Field(
        "target",
        description="The end that an edge is placed at. At targets rows of sources would be sent; at sources partial "
        "sums of targets would.",
    )

    @property
    def placement(self) -> Placement:
        """Where edges are placed: edges at their targets are where ingest has them."""
        return "source" if self.by == "source" else ""


class VertexCutPartition(PartitionKind):
    """Edges are placed on a grid of partitions, so that each node is known to few of them."""

    kind: Literal["vertex_cut"] = Field(
        "vertex_cut",
        description="Nodes as hash has them, partitions on a grid, and each edge placed in the row of its target's "
        "and the column of its source's: a node is known to its row and column alone, however many neighbours it has. "
        "Global-batch training computes a layer so where that is fewer bytes.",
    )

    @property
    def placement(self) -> Placement:
        """Where edges are placed."""
        return "grid"


class Clustered(PartitionKind):
    """Keys of the kinds that find clusters, which cluster-batch training takes whole."""

    clusters: Integer | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Clusters in all, a multiple of graph.partitions; null: each partition is one. Cluster-batch "
        "training takes its batches from them.",
    )
    imbalance: Number = Field(
        1.05,
        gt=1,
        le=2,
        description="Largest number of nodes, of edges and of training targets in a partition over the mean that is "
        "aimed at. A node is never split, so hubs may keep it from being reached.",
    )

    def clusters_per_partition(self, partitions: int) -> int:
        """Return how many clusters each partition has; 0 where it is one."""
        return 0 if self.clusters is None else self.clusters // partitions


class MetisPartition(Clustered):
    """Partitions with few edges between them, by METIS."""

    kind: Literal["metis"] = Field(
        "metis",
        description="Few edges between partitions, and nodes, edges and training targets even in them: METIS, which "
        "holds the graph's edges in one process. Needs `pip install 'gnnflow[metis]'`.",
    )


class LouvainPartition(Clustered):
    """Partitions made of whole communities, which the Louvain method finds."""

    kind: Literal["louvain"] = Field(
        "louvain",
        description="Whole communities share a partition: the Louvain method, which holds the graph's edges in one "
        "process. Needs `pip install 'gnnflow[louvain]'`.",
    )
    resolution: Number = Field(
        1.0, gt=0, le=1000, description="Resolution of modularity: above 1 communities are more and smaller."
    )


PartitionConfig = Annotated[
    HashPartition
    | RangePartition
    | BalancedPartition
    | MetisPartition
    | LouvainPartition
    | LdgPartition
    | EdgePartition
    | VertexCutPartition,
    Field(discriminator="kind"),
]
