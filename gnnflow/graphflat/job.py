"""The job of GraphFlat, known to every task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnflow.graph.labels import LABEL_KINDS

if TYPE_CHECKING:
    from gnnflow.graph.facts import Layout
    from gnnflow.neighbors.pairs import PoolPlan
    from gnnflow.neighbors.selected import Neighbors


@dataclass(frozen=True)
class FlatJob:
    """The job of GraphFlat, known to every task.

    targets: None for labelled nodes with a split, "all", or dense ids [T]; only of the target types. pairs: the plan of
    negatives where targets are pairs.
    """

    artifact: str
    neighbors: Neighbors
    num_hops: int
    layout: Layout
    targets: Any
    pairs: PoolPlan | None = None

    @property
    def target_columns(self) -> list[str]:
        """The node columns of a target's row."""
        facts = self.neighbors.store.facts
        label = ["label"] if LABEL_KINDS[facts.label_kind].has_labels and facts.targets == "nodes" else []
        return ["node", "id", "split", *label]

    @property
    def node_channels(self) -> tuple[str, ...]:
        """The channels of node rows, one per type."""
        return tuple(f"nodes_{number}" for number in range(self.neighbors.store.schema.num_types))
