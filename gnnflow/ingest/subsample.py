"""A small graph like a large one, from its tables: what a plan rehearses a run on.

Of K nodes one stays, chosen by the hash of its id, with all edges that lead to it: in-degrees are those of the graph. A
source that did not stay is replaced by one that did, drawn as often as that is a source itself, so that nodes with many
edges are met as often as in the graph. That is a scale-down sample of nodes (Leskovec and Faloutsos, "Sampling from
large graphs", KDD 2006); what keeps more of a graph's shape, walks, would need the graph in memory first. K is a power
of four: the nodes of a smaller subsample are among those of a larger one, and all are cut from one reading of the ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.hashing import combine, hash_integers
from gnnflow.ingest.subsample_rows import Reading, about_rows, read_held, settled, stays, types_of_text, write_held
from gnnflow.ingest.tables import sources_of
from gnnflow.storage.filesystem import join

if TYPE_CHECKING:
    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray
    from gnnflow.ingest.subsample_rows import Held
    from gnnflow.ingest.targets import EdgeTargets
    from gnnflow.progress import Progress

STEP = 4
"""A subsample has as many times the nodes of the next smaller one."""

_FEWEST_NODES = 256  # of a type: where fewer would stay more do, and edges are left out by a hash of their own
_FEWEST_DRAWN = 64  # sources to draw from: fewer are no sample of which nodes have many edges


@dataclass(frozen=True)
class Subsample:
    """What subsamples are cut from: the rows of the largest one, of each table, and how many nodes a type has about."""

    config: GraphConfig
    nodes: tuple[Held, ...]
    edges: tuple[Held, ...]
    num_nodes: tuple[int, ...]

    @property
    def num_rows(self) -> tuple[int, int]:
        """How many rows the graph's node and edge tables have."""
        return sum(each.num_rows for each in self.nodes), sum(each.num_rows for each in self.edges)

    @property
    def num_bytes(self) -> int:
        """What it takes of memory."""
        return sum(each.num_bytes for each in (*self.nodes, *self.edges))

    def write(self, folder: str, *, one_in: int, chunks: int) -> GraphConfig:
        """Write the subsample of one node in so many, and return the config that names its tables.

        chunks: what a table is cut into at least, so that as many tasks can read it. One in one is the graph itself.
        """
        graph, types = self.config, self.config.schema.types
        if one_in == 1:
            return graph
        nodes, edges = {}, {}
        for number, (name, held) in enumerate(zip(types, self.nodes, strict=True)):
            nodes[name] = write_held(held, self._rows_of(number, one_in), join(folder, f"nodes-{name}"), chunks=chunks)
        for relation, held in zip(graph.edge_tables, self.edges, strict=True):
            ends = types.index(relation.source), types.index(relation.target)
            rows, sources = self._edges(held, ends, one_in)
            columns = {graph.src: sources}
            uri = write_held(held, rows, join(folder, f"edges-{relation}"), chunks=chunks, columns=columns)
            edges[str(relation)] = uri
        tables = {
            "nodes": next(iter(nodes.values())) if isinstance(graph.nodes, str) else nodes,
            "edges": next(iter(edges.values())) if isinstance(graph.edges, str) else edges,
        }
        return graph.model_copy(update=tables)

    def _rows_of(self, number: int, one_in: int) -> IntArray:
        """Return the rows of a type's nodes that stay."""
        keys = self.nodes[number].keys[self.config.id]
        return np.flatnonzero(stays(keys, _share(self.num_nodes[number], one_in)))

    def _edges(self, held: Held, ends: tuple[int, int], one_in: int) -> tuple[IntArray, pa.Array]:
        """Return the rows of a table's edges that stay, and the ids that these come from."""
        from_share, to_share = (_share(self.num_nodes[number], one_in) for number in ends)
        source, target = held.keys[self.config.src], held.keys[self.config.dst]
        rows = np.flatnonzero(stays(target, to_share) & stays(combine(source, target), one_in // to_share))
        known = stays(source, from_share)
        # Drawn from all rows that are held: these tell better than this subsample's which nodes have many edges.
        drawn, ids = np.flatnonzero(known), held.rows[self.config.src].combine_chunks()
        if len(drawn) < _FEWEST_DRAWN:
            own = self._rows_of(ends[0], one_in)
            nodes = self.nodes[ends[0]].rows[self.config.id].take(pa.array(own)).cast(ids.type).combine_chunks()
            drawn, ids = np.arange(len(ids), len(ids) + len(nodes)), pa.concat_arrays([ids, nodes])
        picks = (hash_integers(rows) % np.uint64(max(len(drawn), 1))).astype(np.int64)
        return rows, ids.take(pa.array(np.where(known[rows], rows, drawn[picks])))


def levels(num_edges: int, *, smallest: int, largest: int) -> tuple[int, ...]:
    """Return of how many nodes one stays in each subsample, from about `smallest` edges to `largest` at most.

    Two at least: of a small graph a quarter, and all of it.
    """
    finest, coarsest = 1, STEP
    while num_edges > largest * finest:
        finest *= STEP
    while num_edges > smallest * coarsest or coarsest <= finest:
        coarsest *= STEP
    found = [coarsest]
    while found[-1] > finest:
        found.append(found[-1] // STEP)
    return tuple(found)


def read_subsample(
    config: GraphConfig, *, targets: EdgeTargets | None, smallest: int, largest: int, progress: Progress
) -> tuple[Subsample, tuple[int, ...]]:
    """Return what subsamples of a graph's tables are cut from, and their `levels`. Reads all ids once.

    Raises TableError for tables that cannot be read, or lack a column of ids.
    """
    nodes, edges = ([settled(each) for each in of] for of in sources_of(config, targets=targets))
    num_nodes = tuple(about_rows(each) for each in nodes)
    found = levels(sum(about_rows(each) for each in edges), smallest=smallest, largest=largest)
    finest, types = found[-1], config.schema.types
    tables = [(each, each.schema()) for each in (*nodes, *edges)]
    reading = Reading.of(config, types_of_text(tables, len(types)), [*nodes, *edges], progress)
    node_tables, edge_tables = tables[: len(nodes)], tables[len(nodes) :]
    held_nodes = [
        read_held(*table, reading, share=_share(count, finest))
        for table, count in zip(node_tables, num_nodes, strict=True)
    ]
    held_edges = []
    for relation, table in zip(config.edge_tables, edge_tables, strict=True):
        share = _share(num_nodes[types.index(relation.target)], finest)
        held_edges.append(read_held(*table, reading, share=share, thinned=finest // share))
    return Subsample(config, tuple(held_nodes), tuple(held_edges), num_nodes), found


def _share(nodes: int, one_in: int) -> int:
    """Return of how many nodes of a type one stays: fewer than of the graph's, where else hardly any would."""
    while one_in > 1 and nodes < _FEWEST_NODES * one_in:
        one_in //= STEP
    return one_in
