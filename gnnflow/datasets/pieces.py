"""Edges in pieces: the same rows whether a graph is held in memory or written file by file.

A piece is a function of its number alone, so its size is part of the format: another size is another graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.datasets.tables import refuse_others
from gnnflow.graph.errors import ConfigError
from gnnflow.storage.filesystem import join
from gnnflow.storage.tables import write_table
from gnnflow.storage.writing import move_folder, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECE_ROWS = 1 << 20
_ROW_GROUP = 1 << 18  # several row groups per file, so that ingest reads a file in several tasks


@dataclass(frozen=True)
class SyntheticGraph:
    """A node table and an edge table as `docs/tables.md` describes them."""

    nodes: pa.Table
    edges: pa.Table


@dataclass(frozen=True)
class Pieces:
    """A graph whose edges are made on demand. piece(number, edges) returns the edges of a range."""

    nodes: pa.Table
    num_edges: int
    piece: Callable[[int, range], pa.Table]

    def __iter__(self) -> Iterator[pa.Table]:
        """Make the edges, piece by piece."""
        for number, first in enumerate(range(0, self.num_edges, PIECE_ROWS)):
            yield self.piece(number, range(first, min(first + PIECE_ROWS, self.num_edges)))


def collect(graph: Pieces) -> SyntheticGraph:
    """Return the whole graph in memory."""
    return SyntheticGraph(graph.nodes, pa.concat_tables(graph).combine_chunks())


def write_pieces(out: str, graph: Pieces) -> list[str]:
    """Write `nodes.parquet` and `edges/part-*.parquet` below a folder and return [node URI, edge folder URI].

    An earlier graph there stays until all edges are written, then is replaced. Raises StorageError where the folder
    holds tables that are not of such a graph.
    """
    nodes, edges, unread = join(out, "nodes.parquet"), join(out, "edges"), join(out, "_edges")
    refuse_others(out, ("nodes.parquet", "edges/part-*"))
    remove_tree(unread)  # of one that was killed
    try:
        for number, piece in enumerate(graph):
            write_table(join(unread, f"part-{number:05d}.parquet"), piece, row_group_size=_ROW_GROUP)
    except BaseException:
        remove_tree(unread)
        raise
    remove_tree(edges)
    write_table(nodes, graph.nodes, row_group_size=_ROW_GROUP)
    move_folder(unread, edges)
    return [nodes, edges]


def require(name: str, value: int, minimum: int) -> None:
    """Raise ConfigError for a size below its minimum."""
    if value < minimum:
        raise ConfigError(f"{value} is below the minimum of {minimum}", where=name, fix=f"Give {name} >= {minimum}.")
