"""Partitions of nodes with consecutive ids, for ids that keep related nodes together.

Every partition gets equally many nodes of each type, the first one the smallest ids; text is ordered by its bytes.
Memory: the ids of one type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.partition.planning import Plan
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.storage.graph_store import GraphStore


@dataclass(frozen=True)
class Ranges:
    """Nodes in the order of the users' ids, cut into runs."""

    clusters: int = 0

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return the owner of each node."""
        parts, book = store.num_partitions, store.book
        owner = np.zeros(book.num_nodes, np.int64)
        for number in range(store.schema.num_types):
            ids = pa.concat_tables([store.nodes(part, ["id"], node_type=number) for part in range(parts)])["id"]
            rows = [book.rows(part, number) for part in range(parts)]
            starts = [book.start(part) for part in range(parts)]
            # the dense ids of the type's nodes, as its tables have them
            dense = np.concatenate([start + np.arange(r.start, r.stop) for start, r in zip(starts, rows, strict=True)])
            order = to_numpy(pc.sort_indices(ids)).astype(np.int64)
            owner[dense[order]] = np.arange(len(order)) * parts // max(len(order), 1)
        return Plan(owner)
