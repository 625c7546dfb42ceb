"""The in-edges that a run aggregates over, as every later stage reads them: selected ones or all of the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.edges import InEdges, join_relations
from gnnflow.graph.sampling import EVERY_EDGE, Sampling
from gnnflow.storage.columns import combine, to_matrix, to_numpy, to_ragged
from gnnflow.storage.graph_store import edges_file
from gnnflow.storage.tables import read_artifact_table

if TYPE_CHECKING:
    from gnnflow.graph.arrays import IntArray
    from gnnflow.storage.graph_store import GraphStore

NEXT_ARRIVAL = "next_arrival"
"""The column of a weighted sample that `InEdges.next_arrival` is read from."""


@dataclass(frozen=True)
class Neighbors:
    """In-edges by partition, each node's in priority order.

    artifact: of stage `select`, "" where it kept the store's edges. It holds only URIs and facts, so it is cheap to
    send to workers.
    """

    store: GraphStore
    artifact: str = ""
    sampling: Sampling = EVERY_EDGE

    def in_edges(self, partition: int) -> InEdges:
        """Return the in-edges of a partition's nodes in all relations, by local row; sources are dense ids."""
        return join_relations([self._in_edges(partition, each) for each in range(self.store.schema.num_relations)])

    def _in_edges(self, partition: int, relation: int) -> InEdges:
        columns = ("dst", "src", *self.store.edge_columns_of(relation))
        if self.artifact:
            drawn = (NEXT_ARRIVAL,) if self.sampling.kind == "weighted" else ()
            name = edges_file(partition, self.store.schema, relation=relation)
            table = read_artifact_table(self.artifact, name, (*columns, *drawn))
        else:
            table = self.store.edges(partition, columns, relation=relation)
        book = self.store.book
        return edges_by_row(table, to_numpy(table["dst"]) - book.start(partition), num_nodes=book.size(partition))


def edges_by_row(table: pa.Table, rows: IntArray, *, num_nodes: int, num_relations: int = 1) -> InEdges:
    """Return edges grouped by the row that each leads to; relation r of node v is row r N + v.

    table: with src, a list where edges have leaves, and perhaps weight, attributes, next_arrival and time. rows: [E]. A
    row's edges keep the table's order.
    """
    # the source of each edge, or all leaves with the offsets of each edge's
    names, source = table.column_names, combine(table["src"])
    leaves, sources = (None, to_numpy(source)) if pa.types.is_integer(source.type) else to_ragged(source)
    edges = InEdges(
        offsets=offsets_of(np.bincount(rows, minlength=num_relations * num_nodes)),
        sources=sources,
        weight=to_numpy(table["weight"]) if "weight" in names else None,
        attributes=to_matrix(table["attributes"]) if "attributes" in names else None,
        next_arrival=to_numpy(table[NEXT_ARRIVAL]) if NEXT_ARRIVAL in names else None,
        time=to_numpy(table["time"]) if "time" in names else None,
        num_relations=num_relations,
        leaves=leaves,
    )
    if np.all(rows[1:] >= rows[:-1]):
        return edges
    return edges.take(np.argsort(rows, kind="stable"), offsets=edges.offsets)
