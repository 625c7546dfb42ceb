"""What every task of `partition` knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnflow.graph.schema import Placement
    from gnnflow.partition.planning import Planner
    from gnnflow.storage.graph_store import GraphStore


@dataclass(frozen=True)
class PartitionJob:
    """What every task knows. planner: who owns nodes; placement: where edges are computed, written beside in-edges."""

    artifact: str
    store: GraphStore
    planner: Planner
    seed: int
    placement: Placement = ""
