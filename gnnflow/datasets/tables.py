"""The result of every import: a node and an edge table, or one of each per type; and its writing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pyarrow as pa

from gnnflow.graph.errors import StorageError, TableError
from gnnflow.graph.schema import NAME
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.tables import write_table

_SIDES = ("nodes", "edges")
_HALF_WRITTEN = "*/.*.tmp"  # left by a killed process
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

    def uris(self, out: str) -> dict[str, dict[str, str]]:
        """Return the locations that `save_tables` writes below a folder: the maps `nodes` and `edges` of a config."""
        return {
            "nodes": {name: join(out, "nodes", f"{name}.parquet") for name in self.nodes},
            "edges": {name: join(out, "edges", f"{name}.parquet") for name in self.edges},
        }


def edge_type_name(source: str, relation: str, target: str, *, where: str) -> str:
    """Return `source__relation__target`. Raises TableError where a part cannot be part of a file name."""
    return "__".join(type_name(part, where=where) for part in (source, relation, target))


def type_name(name: str, *, where: str) -> str:
    """Return the name of a type or relation. Raises TableError where it cannot be part of a file name."""
    if not NAME.fullmatch(name):
        raise TableError(
            f"the type {name!r} cannot be part of a file name",
            where=where,
            fix="Rename it: letters, digits, '.', '-' and single '_' between them.",
        )
    return name


def refuse_others(out: str, names: Collection[str]) -> None:
    """Raise StorageError where a folder holds tables of another graph.

    names: patterns, below the folder, of the tables that will be written.
    """
    held = [name for name in list_names(out) if name in {f"{side}.parquet" for side in _SIDES}]
    held += [f"{side}/{name}" for side in _SIDES for name in list_names(join(out, side))]
    for name in held:
        if not any(fnmatchcase(name, pattern) for pattern in (*names, _HALF_WRITTEN)):
            raise StorageError(
                f"holds {name!r}, which belongs to another graph and would stay", where=out, fix="Give an empty folder."
            )


def save_tables(tables: GraphTables | TypedGraphTables, out: str) -> list[str]:
    """Write tables below a folder and return their URIs, node tables first.

    One type: `nodes.parquet` and `edges.parquet`. Several: `nodes/TYPE.parquet` and
    `edges/SOURCE__RELATION__TARGET.parquet`. A graph of the same tables is replaced; raises StorageError where the
    folder holds others.
    """
    if isinstance(tables, GraphTables):
        placed = {join(out, "nodes.parquet"): tables.nodes, join(out, "edges.parquet"): tables.edges}
    else:
        uris = tables.uris(out)
        placed = {uri: tables.nodes[name] for name, uri in uris["nodes"].items()}
        placed |= {uri: tables.edges[name] for name, uri in uris["edges"].items()}
    refuse_others(out, [uri.removeprefix(join(out, "")) for uri in placed])
    for uri, table in placed.items():
        try:
            write_table(uri, table, row_group_size=_ROW_GROUP)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            why = error.strerror if isinstance(error, OSError) and error.strerror else "the path is invalid"
            raise StorageError(
                f"the tables cannot be written ({why})", where=repr(out), fix="Give a folder that can be written to."
            ) from error
    return list(placed)
