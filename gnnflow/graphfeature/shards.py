"""Shards: AGL's triples <target id, label, GraphFeature> as Parquet rows, in one of three layouts.

shared: the shard's merged GraphFeature is stored once, in `<name>.graph.parquet`; a row's GraphFeature refers to its
target's place in it. inline: every row has a whole GraphFeature, as in AGL. store: rows have none, and whoever reads
them holds the graph (`train/minibatch/in_memory.py`). All are read as a `Shard`.

Where targets are pairs, a shard also has `<name>.pairs.parquet` (source, target, key, and perhaps label, attributes,
time) and `<name>.pool.parquet` (target), the nodes that negatives are drawn from. Sources and targets are numbers of
the shard's target nodes, in stored order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import distinct
from gnnflow.graph.errors import StorageError
from gnnflow.graph.facts import Layout, ShardEntry
from gnnflow.graphfeature.blocks import extract_rows
from gnnflow.graphfeature.decode import decode_references, decode_rows
from gnnflow.graphfeature.encode import encode_references, encode_rows
from gnnflow.graphfeature.neighborhood import Neighborhood, merge, side_by_side
from gnnflow.graphfeature.times import LateEdge, latest_edge
from gnnflow.storage.columns import combine, to_matrix, to_numpy
from gnnflow.storage.filesystem import join
from gnnflow.storage.tables import commit_table, read_artifact_table
from gnnflow.storage.verified import remedy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.graph.arrays import Array, FloatArray, IntArray, KeyArray
    from gnnflow.graph.sampling import Sampling
    from gnnflow.storage.writing import FileEntry

_INLINE_CHUNK = 256  # targets expanded at a time, which bounds the memory of their neighbourhoods


@dataclass(frozen=True)
class Shard:
    """A decoded shard. rows [T] are the targets' rows in the neighbourhood, targets [T] their dense ids.

    labels: int64 [T], float32 [T, C], float32 [T], or None where the graph has none.
    """

    neighborhood: Neighborhood
    rows: IntArray
    targets: IntArray
    labels: Array | None


class CommittedShard(NamedTuple):
    """A shard's entry in the facts, and its files."""

    entry: ShardEntry
    files: tuple[FileEntry, ...]


def write_shard(
    artifact: str,
    neighborhood: Neighborhood,
    targets: pa.Table,
    *,
    name: str,
    split: str,
    layout: Layout,
    sampling: Sampling,
    num_hops: int,
) -> CommittedShard:
    """Commit a shard's files and return the entries of the shard and of its files.

    targets: columns node, id, split and perhaps label, in the order of the neighbourhood's roots.
    """
    files: list[FileEntry] = []
    assert layout != "store", "the graph store has the neighbourhoods"
    if layout == "shared":
        features = encode_references(neighborhood.roots)
        body = pa.table({"graph_feature": encode_rows(side_by_side([neighborhood]))})
        files.append(commit_table(artifact, f"shards/{name}.graph.parquet", body))
    else:
        features = _inline(neighborhood, sampling=sampling, num_hops=num_hops)
    rows = targets.append_column("graph_feature", features)
    files.append(
        commit_table(
            artifact, f"shards/{name}.parquet", rows, row_group_size=None if layout == "shared" else _INLINE_CHUNK
        )
    )
    entry = ShardEntry(
        name=name,
        split=split,
        layout=layout,
        num_targets=targets.num_rows,
        num_nodes=neighborhood.num_nodes,
        num_edges=neighborhood.num_edges,
        num_bytes=sum(entry.size for entry in files),
    )
    return CommittedShard(entry, tuple(files))


def write_targets(
    artifact: str, targets: pa.Table, *, name: str, split: str, num_nodes: int, num_edges: int
) -> CommittedShard:
    """Commit a shard of targets alone, whose neighbourhoods are in a graph of so many nodes and edges.

    targets: as of `write_shard`, by dense id.
    """
    file = commit_table(artifact, f"shards/{name}.parquet", targets)
    entry = ShardEntry(name, split, "store", targets.num_rows, num_nodes, num_edges, file.size)
    return CommittedShard(entry, (file,))


def _inline(neighborhood: Neighborhood, *, sampling: Sampling, num_hops: int) -> pa.ChunkedArray:
    chunks = [
        encode_rows(
            extract_rows(
                neighborhood, neighborhood.roots[start : start + _INLINE_CHUNK], sampling=sampling, num_layers=num_hops
            )
        )
        for start in range(0, len(neighborhood.roots), _INLINE_CHUNK)
    ]
    return pa.chunked_array(chunks, pa.large_binary())


def read_shard(artifact: str, entry: ShardEntry, *, was_read: Callable[[], None] = lambda: None) -> Shard:
    """Return a shard, targets in stored order. Raises StorageError for a file that is missing or not as listed.

    was_read: called between reading its files and decoding them.
    """
    table = _targets_of(artifact, entry)
    body = read_artifact_table(artifact, f"shards/{entry.name}.graph.parquet") if entry.layout == "shared" else None
    was_read()
    column = combine(table["graph_feature"])
    if body is not None:
        return _shard(table, decode_rows(body["graph_feature"]).neighborhood, decode_references(column))
    neighborhood = merge([decode_rows(column).neighborhood])
    # the row of each target among the merged nodes [T]
    return _shard(table, neighborhood, np.searchsorted(neighborhood.node_ids, to_numpy(table["node"])))


def read_targets(artifact: str, entry: ShardEntry, whole: Neighborhood) -> Shard:
    """Return a shard of targets alone in the neighbourhood of all nodes, in dense id order. Raises as `read_shard`."""
    table = _targets_of(artifact, entry)
    return _shard(table, whole, to_numpy(table["node"]))


def _shard(table: pa.Table, neighborhood: Neighborhood, rows: IntArray) -> Shard:
    """Return the shard of some targets [T], which have these rows in a neighbourhood."""
    labels = labels_of(table["label"]) if "label" in table.column_names else None
    return Shard(neighborhood, rows, to_numpy(table["node"]), labels)


def _targets_of(artifact: str, entry: ShardEntry) -> pa.Table:
    """Return the rows of a shard's targets. Raises StorageError where they are not those that the manifest lists."""
    name = f"shards/{entry.name}.parquet"
    table = read_artifact_table(artifact, name)
    if table.num_rows != entry.num_targets:
        raise StorageError(
            f"has {table.num_rows} targets, the manifest says {entry.num_targets}",
            where=join(artifact, name),
            fix=remedy(artifact),
        )
    return table


def labels_of(column: pa.ChunkedArray) -> Array:
    """Return a column of labels for training: int64 [T], float32 [T], or float32 [T, C]."""
    return to_matrix(column) if pa.types.is_fixed_size_list(column.type) else to_numpy(column)


@dataclass(frozen=True)
class PairShard:
    """A decoded shard of P pairs.

    sources and targets [P] and pool [M] are numbers of the shard's targets; keys [P] identify the pairs in any
    partitioning. labels (as in `Shard`; of links 0, the column of the true target), attributes [P, A] and times [P]
    belong to the pairs.
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
