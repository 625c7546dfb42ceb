"""The pairs of a shard: which of its target nodes they join, and the nodes that negatives are drawn from.

Beside a shard's own files lie `<name>.pairs.parquet` (source, target, key, and where there are such: label, attributes,
time) and `<name>.pool.parquet` (target). Sources and targets are numbers of the shard's target nodes, in stored order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import distinct
from gnnflow.graphfeature.shards import Shard, labels_of, read_shard
from gnnflow.graphfeature.times import LateEdge, latest_edge
from gnnflow.storage.columns import to_matrix, to_numpy
from gnnflow.storage.tables import commit_table, read_artifact_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.graph.arrays import Array, FloatArray, IntArray, KeyArray
    from gnnflow.graph.facts import ShardEntry
    from gnnflow.storage.writing import FileEntry


@dataclass(frozen=True)
class PairShard:
    """A decoded shard of P pairs.

    sources and targets [P] and pool [M] are numbers of the shard's targets; keys [P] identify the pairs, whatever the
    partitions. labels are the pairs', as `Shard` has them: of links 0, the column of the true target. attributes [P, A]
    and times [P] are theirs too.
    """

    shard: Shard
    sources: IntArray
    targets: IntArray
    keys: KeyArray
    pool: IntArray
    labels: Array
    attributes: FloatArray | None = None
    times: IntArray | None = None

    @cached_property
    def moments(self) -> IntArray:
        """The distinct times of the edges of the neighbourhood, ascending [M]."""
        time = self.shard.neighborhood.edges.time
        assert time is not None, "edges have times"
        return distinct(time)

    @cached_property
    def latest(self) -> LateEdge | None:
        """The latest edge of the neighbourhood."""
        return latest_edge(self.shard.neighborhood)


def write_pairs(artifact: str, name: str, pairs: pa.Table, pool: IntArray) -> tuple[FileEntry, ...]:
    """Commit a shard's pairs (columns as in the file) and its pool, and return their files."""
    return (
        commit_table(artifact, f"shards/{name}.pairs.parquet", pairs),
        commit_table(artifact, f"shards/{name}.pool.parquet", pa.table({"target": pool.astype(np.int32)})),
    )


def read_pair_shard(artifact: str, entry: ShardEntry, *, was_read: Callable[[], None] = lambda: None) -> PairShard:
    """Return a shard with its pairs, as `read_shard` does."""
    pairs = read_artifact_table(artifact, f"shards/{entry.name}.pairs.parquet")
    pool = read_artifact_table(artifact, f"shards/{entry.name}.pool.parquet")
    names = pairs.column_names
    return PairShard(
        read_shard(artifact, entry, was_read=was_read),
        sources=to_numpy(pairs["source"]).astype(np.int64),
        targets=to_numpy(pairs["target"]).astype(np.int64),
        keys=to_numpy(pairs["key"]),
        pool=to_numpy(pool["target"]).astype(np.int64),
        labels=labels_of(pairs["label"]) if "label" in names else np.zeros(len(pairs), np.int64),
        attributes=to_matrix(pairs["attributes"]) if "attributes" in names else None,
        times=to_numpy(pairs["time"]) if "time" in names else None,
    )
