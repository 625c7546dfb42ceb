"""The work of a stage that no table has: the in-degree of each node, as one row per node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.stages.base import Made
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from gnnflow.stages.base import StageRun


@dataclass(frozen=True)
class DegreeFacts:
    """The largest in-degree."""

    largest: int


def work(run: StageRun) -> Made:
    """Write the in-degrees of the store's nodes."""
    parts = [run.store.nodes(index, ["in_degree"]) for index in range(run.store.num_partitions)]
    table = pa.concat_tables(parts)
    file = commit_table(run.artifact, "degrees.parquet", table)
    facts = DegreeFacts(max(table["in_degree"].to_pylist()))
    return Made((file,), rows_in=table.num_rows, rows_out=table.num_rows, facts=facts)
