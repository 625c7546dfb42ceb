"""The parts of generated graphs: edges in pieces, ids, shares and labels.

The rows are the same in memory and written file by file. A piece depends only on its number, so its size is part of the
format: another size gives another graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.tables import refuse_others
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.splits import SPLITS
from gnnflow.storage.filesystem import join
from gnnflow.storage.tables import write_table
from gnnflow.storage.writing import move_folder, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gnnflow.graph.arrays import Array, IntArray

PIECE_ROWS = 1 << 20
_ROW_GROUP = 1 << 18  # several row groups per file, so that ingest reads a file in several tasks
_LABELLED_SHARE = 0.8
_SPLIT_SHARE = (0.6, 0.2, 0.2)


@dataclass(frozen=True)
class SyntheticGraph:
    """A node table and an edge table as `docs/tables.md` describes them."""

    nodes: pa.Table
    edges: pa.Table


@dataclass(frozen=True)
class Pieces:
    """A graph whose edges are made on demand: piece(number, edges) returns the edges of a range."""

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
    holds tables of another graph.
    """
    nodes, edges, unread = join(out, "nodes.parquet"), join(out, "edges"), join(out, "_edges")
    refuse_others(out, ("nodes.parquet", "edges/part-*"))
    remove_tree(unread)  # left by a killed process
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


def numbered_ids(prefix: str, count: int, *, width: int) -> pa.Array:
    """Return `count` ids from `prefix-0000000` on, with `width` digits."""
    numbers = pc.utf8_lpad(pa.array(np.arange(count)).cast(pa.string()), width, "0")
    return pc.binary_join_element_wise(prefix, numbers, "-")


def cumulative(share: Array) -> Array:
    """Return the cumulative shares, the last one 1; `searchsorted` of uniform numbers then draws by share."""
    total: Array = np.cumsum(share)
    total /= total[-1]
    return total


def labelled_columns(classes: IntArray, *, others: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    """Return the columns label and split: four fifths of the accounts, 60/20/20; then nulls for the `others`."""
    rows = len(classes) + others
    # rows with a label, class numbers, split codes, each [rows]
    labelled = np.zeros(rows, bool)
    labelled[: len(classes)] = rng.random(len(classes)) < _LABELLED_SHARE
    label = np.zeros(rows, np.int64)
    label[: len(classes)] = classes
    part = np.searchsorted(np.cumsum(_SPLIT_SHARE)[:-1], rng.random(rows), side="right")
    return {
        "label": pa.array(label, mask=~labelled),
        "split": pa.array(SPLITS).take(pa.array(part, mask=~labelled)),
    }
