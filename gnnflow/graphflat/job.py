"""The job that every GraphFlat task knows."""

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
    """The graph, the hops and the targets of GraphFlat.

    layout: store writes the targets alone, where these are nodes. targets: None for labelled nodes with a split, "all",
    or dense ids [T]; with types, of the target types alone.
    pairs: how negatives are drawn, where targets are the store's pairs; None where they are nodes. mapped: whether
    dense features stay where they are read, and the tasks of shards map them; None is wherever they can, see
    `mapreduce.way`.
    """

    artifact: str
    neighbors: Neighbors
    num_hops: int
    layout: Layout
    targets: Any
    pairs: PoolPlan | None = None
    mapped: bool | None = None

    @property
    def target_columns(self) -> list[str]:
        """The columns of a target's row, of a node or of a pair."""
        facts = self.neighbors.store.facts
        if self.pairs is not None:
            return ["src", "dst", "key", "split", *self.neighbors.store.pair_columns]
        label = ["label"] if LABEL_KINDS[facts.label_kind].has_labels and facts.targets == "nodes" else []
        return ["node", "id", "split", *label]

    @property
    def end_columns(self) -> tuple[str, ...]:
        """The columns of a target's row that hold nodes to reach, the target itself last."""
        return ("node",) if self.pairs is None else ("src", "dst")

    @property
    def node_channels(self) -> tuple[str, ...]:
        """The channels of node rows, one per type."""
        return tuple(f"nodes_{number}" for number in range(self.neighbors.store.schema.num_types))

    @property
    def mapped_types(self) -> dict[int, str]:
        """The types whose features are mapped, each with the channel in which they are kept."""
        kinds = self.neighbors.store.facts.features_of_types
        is_dense = [facts is not None and facts.kind == "dense" for facts in kinds]
        return {number: f"features_{number}" for number, dense in enumerate(is_dense) if dense and self.mapped}

    @property
    def mapped_bytes(self) -> int:
        """The bytes of the dense features of all nodes, as if all had the widest."""
        store = self.neighbors.store
        widths = [0 if of is None or of.kind != "dense" else of.row_bytes for of in store.facts.features_of_types]
        return max(widths) * store.book.num_nodes
