"""Reads GraphFeatures as protobuf messages, for users outside gnnflow. Training reads columns: `decode.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from gnnflow.graph.errors import StorageError
from gnnflow.graphfeature.graph_feature_pb2 import GraphFeature
from gnnflow.storage.filesystem import exists, join, list_names
from gnnflow.storage.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COLUMN = "graph_feature"


def read_graph_features(uri: str) -> Iterator[GraphFeature]:
    """Yield the GraphFeatures of one shard, `.../shards/<name>.parquet`, or of a folder's shards, ordered by name.

    With `layout: shared` a shard is one message, of all its targets; with `layout: inline` there is one per target, in
    stored order. Raises StorageError for a file or folder without GraphFeatures, and for damaged messages.
    """
    for file in _files(uri):
        table = read_table(file, [_COLUMN])
        if _COLUMN not in table.column_names:
            raise StorageError(
                f"has no column {_COLUMN}",
                where=file,
                fix="Name a shard that GraphFlat wrote with flat.layout: shared or inline.",
            )
        for row, content in enumerate(table[_COLUMN]):
            yield _message(content.as_py(), row=row, where=file)


def _files(uri: str) -> Sequence[str]:
    """Return the files that hold the GraphFeatures of a shard or of a folder's shards."""
    if uri.endswith(".parquet"):
        # with `layout: shared` the GraphFeature lies in a separate file, and the shard's rows refer to it
        whole = f"{uri.removesuffix('.parquet')}.graph.parquet"
        return [whole if exists(whole) else uri]
    # a shard's other files have a further suffix: `.graph.parquet`, `.pairs.parquet`, `.pool.parquet`
    shards = [name for name in list_names(uri) if name.endswith(".parquet") and name.count(".") == 1]
    if not shards:
        raise StorageError(
            "holds no shards", where=uri, fix="Name the folder `shards` of a GraphFlat artifact, or a shard in it."
        )
    return [file for name in shards for file in _files(join(uri, name))]


def _message(content: bytes | None, *, row: int, where: str) -> GraphFeature:
    try:
        message = GraphFeature.FromString(content or b"")
    except DecodeError:
        message = GraphFeature()
    if not message.format:  # written last, so that a message cut off between two fields has none
        raise StorageError(
            f"row {row} is truncated, or not a GraphFeature",
            where=where,
            fix="Delete the artifact's folder and run the stage again.",
        )
    return message
