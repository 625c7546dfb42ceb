"""What every import ends in: a node and an edge table, or one of each per type; and the one place they are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from gnnflow.graph.errors import StorageError, TableError
from gnnflow.storage.filesystem import join
from gnnflow.storage.tables import write_table

_TYPE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ROW_GROUP = 1 << 18  # several row groups per file, so that ingest reads a large table in several tasks


@dataclass(frozen=True)
class GraphTables:
    """A graph with one node type: nodes (id, features, label, split) and edges (src, dst, weight, attributes)."""

    nodes: pa.Table
    edges: pa.Table


@dataclass(frozen=True)
class TypedGraphTables:
    """A graph with several types: node tables by type, edge tables by `source__relation__target`."""

    nodes: Mapping[str, pa.Table]
    edges: Mapping[str, pa.Table]


def edge_type_name(source: str, relation: str, target: str, *, where: str) -> str:
    """Return `source__relation__target`. Raises TableError where that is not a file name or cannot be split again."""
    for part in (source, relation, target):
        if not _TYPE_NAME.fullmatch(part) or "__" in part:
            raise TableError(
                f"the type {part!r} cannot be part of a file name",
                where=where,
                fix="Rename it: letters, digits, '.', '-' and single '_', starting with a letter or digit.",
            )
    return f"{source}__{relation}__{target}"


def save_tables(tables: GraphTables | TypedGraphTables, out: str) -> list[str]:
    """Write tables below a folder and return their URIs, node tables first.

    One type: `nodes.parquet` and `edges.parquet`. Several: `nodes/TYPE.parquet` and
    `edges/SOURCE__RELATION__TARGET.parquet`.
    """
    if isinstance(tables, GraphTables):
        named = {"nodes.parquet": tables.nodes, "edges.parquet": tables.edges}
    else:
        named = {f"nodes/{name}.parquet": table for name, table in tables.nodes.items()}
        named |= {f"edges/{name}.parquet": table for name, table in tables.edges.items()}
    for name, table in named.items():
        try:
            write_table(join(out, name), table, row_group_size=_ROW_GROUP)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            why = error.strerror if isinstance(error, OSError) and error.strerror else "no such place can be"
            raise StorageError(
                f"the tables cannot be written ({why})", where=repr(out), fix="Give a folder that can be written to."
            ) from error
    return [join(out, name) for name in named]
