"""The `partition` section: which nodes share a partition."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gnnflow.config.base import Number, Section

Cost = Annotated[Number, Field(ge=0)]


class HashPartition(Section):
    """Nodes are dealt to partitions by the hash of their id, as ingest does."""

    kind: Literal["hash"] = Field("hash", description="By the hash of the node's id: the graph store as ingest has it.")


class BalancedPartition(Section):
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


PartitionConfig = Annotated[HashPartition | BalancedPartition, Field(discriminator="kind")]
