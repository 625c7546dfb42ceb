"""The pairs of a shard: which of its target nodes they join, and the nodes that negatives are drawn from.

Beside a shard's own files lie `<name>.pairs.parquet` (source, target, key) and `<name>.pool.parquet` (target). Sources
and targets are numbers of the shard's target nodes, in stored order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graphfeature.shards import Shard, read_shard
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.tables import commit_table, read_artifact_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.graph.facts import ShardEntry
    from gnnflow.storage.filesystem import FileEntry


@dataclass(frozen=True)
class PairShard:
    """A decoded shard of P pairs.

    sources and targets [P] and pool [M] are numbers of the shard's targets; keys [P] identify the pairs, whatever the
    partitions.
    """

    shard: Shard
    sources: IntArray
    targets: IntArray
    keys: KeyArray
    pool: IntArray


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
    return PairShard(
        read_shard(artifact, entry, was_read=was_read),
        sources=to_numpy(pairs["source"]).astype(np.int64),
        targets=to_numpy(pairs["target"]).astype(np.int64),
        keys=to_numpy(pairs["key"]),
        pool=to_numpy(pool["target"]).astype(np.int64),
    )
