"""The `partition` section: the division of nodes into partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gnnflow.config.base import Integer, Number, Section

if TYPE_CHECKING:
    from gnnflow.graph.schema import Placement

Cost = Annotated[Number, Field(ge=0)]


class PartitionKind(Section):
    """The base of every kind of partitioning."""

    @property
    def placement(self) -> Placement:
        """The placement of edges; empty where they stay at their targets, as ingest wrote them."""
        return ""


class HashPartition(PartitionKind):
    """Nodes go to partitions by the hash of their id, as in ingest."""

    kind: Literal["hash"] = Field(
        "hash", description="By the hash of the node's id: the graph store as ingest wrote it."
    )


class BalancedPartition(PartitionKind):
    """Partitions of equal cost: nodes move from expensive partitions to cheap ones, and few edges are cut."""

    kind: Literal["balanced"] = Field(
        "balanced",
        description="Hash partitions, from which nodes move until all cost about the same (FlexGraph's balancing).",
    )
    threshold: Number = Field(
        1.05, gt=1, le=100, description="Balance factor, the largest cost over the mean, above which nodes are moved."
    )
    per_root: Cost = Field(
        1.0,
        description="The cost of a node without its neighbours, in any unit. `gnnflow costs RUN` learns this key and "
        "`relations` from the durations of a run's tasks.",
    )
    relations: dict[str, tuple[Cost, Cost, Cost]] = Field(
        {},
        description="The costs of aggregation for a node, by source__relation__target: per instance (an in-edge, or a "
        "path along a metapath), per source node of the instances, and per instance squared. A relation that is left "
        "out costs 1 per source node.",
    )


PARTITIONERS = {"metis": "pymetis", "louvain": "networkit"}
"""The kinds that need a library, and the library's module; the extra has the kind's name."""


class RangePartition(PartitionKind):
    """Nodes with consecutive ids share a partition."""

    kind: Literal["range"] = Field(
        "range",
        description="By the order of ids, equally many nodes of each type in a partition: for ids whose order groups "
        "nodes that belong together, such as ids by place or time.",
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
        1.05, gt=1, le=2, description="Largest number in a partition over the mean, for each quantity of `even`."
    )
    even: tuple[Load, ...] = Field(
        ("nodes",),
        min_length=1,
        max_length=3,
        description="The quantities that are kept even: nodes, in-edges, training targets. With several of them more "
        "edges are cut, and where they conflict the bound is exceeded.",
    )
    passes: Integer = Field(
        3, ge=1, le=100, description="How often nodes are streamed; each pass reads all edges once and cuts fewer."
    )


class EdgePartition(PartitionKind):
    """Edges are placed in the partition of one of their ends."""

    kind: Literal["edge_1d"] = Field(
        "edge_1d",
        description="Nodes as with hash, and each edge placed at one of its ends, with figures of what that would "
        "save. Global-batch training uses this placement for a layer where it sends fewer bytes.",
    )
    by: Literal["source", "target"] = Field(
        "target",
        description="The end that an edge is placed at. At targets rows of sources would be sent; at sources partial "
        "sums of targets would.",
    )

    @property
    def placement(self) -> Placement:
        """The placement of edges; empty for edges at their targets, as ingest wrote them."""
        return "source" if self.by == "source" else ""


class VertexCutPartition(PartitionKind):
    """Edges are placed on a grid of partitions, so that few partitions need a node."""

    kind: Literal["vertex_cut"] = Field(
        "vertex_cut",
        description="Nodes as with hash, partitions on a grid, and each edge placed in the row of its target's "
        "partition and the column of its source's: only one row and one column need a node, however many neighbours it "
        "has. Global-batch training uses this placement for a layer where it sends fewer bytes.",
    )

    @property
    def placement(self) -> Placement:
        """The placement of edges."""
        return "grid"


class Clustered(PartitionKind):
    """The keys of the kinds that find clusters, for cluster-batch training."""

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
        description="Target for the largest number of nodes, of edges and of training targets in a partition over the "
        "mean. A node is never split, so hubs may make it unreachable.",
    )

    def clusters_per_partition(self, partitions: int) -> int:
        """Return the number of clusters of each partition; 0 where a partition is one cluster."""
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
