"""A graph cut into intervals: how many of each type, and how large they and the chunks are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnflow.graph.schema import GraphSchema
from gnnflow.train.streamed.size import GraphSize


@dataclass(frozen=True)
class Cut:
    """A rank's intervals of each type, rows of the largest of them, and about how many edges the largest chunk has."""

    size: GraphSize
    schema: GraphSchema
    of_types: tuple[int, ...]
    rows: int
    chunk: int

    @classmethod
    def of(cls, size: GraphSize, schema: GraphSchema, intervals: int) -> Cut:
        """Return the cut of so many intervals of the largest type."""
        of = size.by_type
        most = max(of.nodes)
        rows = math.ceil(most / intervals)
        cut = [intervals if nodes == most else max(1, math.ceil(nodes / max(rows, 1))) for nodes in of.nodes]
        ends = zip(of.edges, schema.source_types, schema.target_types, strict=True)
        # about how many edges a chunk has, which then is one piece; a hub may have more, which pieces bound
        into = [1] * len(cut) if size.has_leaves else cut  # edges with leaves come from all intervals at once
        chunks = (edges // (into[source] * cut[target] * size.ranks) for edges, source, target in ends)
        return cls(size, schema, tuple(cut), rows, max(chunks, default=0))

    @property
    def types_of_plan(self) -> tuple[int, ...]:
        """Intervals of each type, as a `Plan` has them: none of a graph without types."""
        return self.of_types if self.size.typed is not None else ()
