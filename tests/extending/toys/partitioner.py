"""A partitioner: nodes are dealt to the partitions in turn, by their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.partition.planning import Plan, read_keys

if TYPE_CHECKING:
    from gnnflow.storage.graph_store import GraphStore


@dataclass(frozen=True)
class Toy:
    """Nodes in the order of their keys, dealt in turn."""

    clusters: int = 0

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return who owns each node."""
        order = np.argsort(read_keys(store))
        owner = np.empty(len(order), np.int64)
        owner[order] = np.arange(len(order)) % store.num_partitions
        return Plan(owner)
