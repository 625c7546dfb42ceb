"""Cuts small graphs from the tables of a large one, on which a plan rehearses a run.

One node of K stays, chosen by the hash of its id, with all edges that lead to it, so in-degrees do not change. A source
that did not stay is replaced by one that did, drawn as often as it is a source itself, so nodes with many edges are as
frequent as in the graph. This is a scale-down sample of nodes (Leskovec and Faloutsos, "Sampling from large graphs",
KDD 2006); walks would keep more of a graph's shape, but need the graph in memory first. K is a power of four: a larger
subsample has all nodes of a smaller one, and one reading of the ids serves all.

The rows of a table that subsamples are cut from are read once, held by column, and written in the table's format.
Feature columns, which are wide, repeat the table's first rows in turn; a row keeps its values in other columns. Every
subsample has some rows of each split of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from gnnflow.graph.hashing import combine, hash_integers, seed_word
from gnnflow.ingest.fields import field_of, shared_name_fix
from gnnflow.ingest.tables import sources_of
from gnnflow.storage.columns import id_keys
from gnnflow.storage.filesystem import join
from gnnflow.storage.tables import write_table
from gnnflow.storage.user_tables import read_chunk, schema_of, survey, with_types
from gnnflow.storage.writing import open_output

if TYPE_CHECKING:
    import numpy.typing as npt

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
    from gnnflow.ingest.text import SourceTable
    from gnnflow.progress import Progress

STEP = 4
"""A subsample has as many times the nodes of the next smaller one."""

_FEWEST_NODES = 256  # of a type: small types keep more nodes, and a second hash drops some of their edges
_FEWEST_DRAWN = 64  # sources to draw from: fewer do not show which nodes have many edges
_OWN = seed_word("subsample")
_MOST_PIECES = 64  # of a table of a subsample, each of which is a task
_FEWEST_OF_SPLIT = 8  # rows of each split in a subsample


@dataclass(frozen=True)
class _Held:
    """A table's rows that a subsample may have [R], the keys of their ids by column [R], and first features.

    examples: rows of each split; labels: the columns of labels and splits. num_rows: of the table; is_text: it is CSV.
    """

    rows: pa.Table
    keys: Mapping[str, KeyArray]
    features: pa.Table
    examples: Mapping[str, pa.Table]
    labels: tuple[str, str]
    num_rows: int
    num_chunks: int
    is_text: bool

    @property
    def num_bytes(self) -> int:
        """Bytes that the rows and keys take in memory."""
        tables = (self.rows, self.features, *self.examples.values())
        return int(sum(each.nbytes for each in tables)) + sum(each.nbytes for each in self.keys.values())


@dataclass
class _Reading:
    """The state of reading the ids. as_text: for each node type, whether its ids are compared as text."""

    as_text: tuple[bool, ...]
    progress: Progress
    chunks: int
    done: int = 0

    def advance(self) -> None:
        """Take note of one more chunk."""
        self.done += 1
        self.progress.step("reading ids", self.done, self.chunks, {})


def _stays(keys: KeyArray, one_in: int) -> npt.NDArray[np.bool_]:
    """Return which keys stay where one in so many does."""
    found: npt.NDArray[np.bool_] = keys % np.uint64(one_in) == 0
    return found


def _settled(source: SourceTable) -> SourceTable:
    """Return a table with the types of columns in folder names; columns of CSV files stay text."""
    if any(chunk.csv for chunk in source.chunks):
        return source
    surveys = [survey(chunk, source.columns) for chunk in source.chunks]
    return replace(source, chunks=tuple(with_types(source.chunks, surveys, {})))


def _about_rows(source: SourceTable) -> int:
    """Return the number of rows of a table, estimated from the first block where it is text."""
    first = source.chunks[0]
    if first.num_rows is None:
        return int(read_chunk(first, schema_of(first).names[:1]).num_rows) * len(source.chunks)
    return sum(chunk.num_rows or 0 for chunk in source.chunks)


def _about_ids(node_type: int, edges: Sequence[SourceTable]) -> int:
    """Return about the number of ids of a type without a table: a fraction of the edges that have them."""
    return max(_about_rows(each) for each in edges if node_type in each.ids.values()) // STEP


def _types_of_text(tables: Sequence[tuple[SourceTable, pa.Schema]], config: GraphConfig) -> tuple[bool, ...]:
    """Return for each node type whether its ids are text. Raises TableError where a column is missing."""
    text, names = [False] * config.schema.num_types, (*config.schema.types, *map(str, config.edge_tables))
    for (source, schema), table in zip(tables, names, strict=True):
        if not source.chunks:
            continue  # a type without a table
        roles = ("graph.id",) if len(source.ids) == 1 else ("graph.src", "graph.dst")
        for (column, number), role in zip(source.ids.items(), roles, strict=True):
            fix = shared_name_fix(role, column, config.schema, table)
            found = field_of(schema, source.chunks[0], column, role, fix=fix)
            text[number] |= not (pa.types.is_integer(found.type) or pa.types.is_floating(found.type))
    return tuple(text)


def _read_held(
    source: SourceTable, schema: pa.Schema, reading: _Reading, *, config: GraphConfig, share: int, thinned: int = 1
) -> _Held:
    """Return the rows of a table whose last id stays, one in `share`.

    config: the section as this table is read by it. thinned: keep only one in so many of these, by a hash of all their
    ids.
    """
    weight = {config.weight_column} if len(source.ids) > 1 else set()
    wide = (source.numbers - weight) | {f"{name}_index" for name in source.numbers}
    names = [name for name in schema.names if name in source.columns - wide]
    features = [name for name in schema.names if name in wide]
    examples: dict[str, pa.Table] = {}
    kept: list[pa.Table] = []
    keys: list[list[KeyArray]] = []
    num_rows = 0
    for chunk in source.chunks:
        table = read_chunk(chunk, names)
        num_rows += table.num_rows
        for name in source.ids:
            table = table.filter(pc.invert(pc.is_null(table[name], nan_is_null=True)))
            if pa.types.is_floating(table[name].type):
                whole = pc.round(table[name]).cast(pa.int64(), safe=False)
                table = table.set_column(table.column_names.index(name), name, whole)
        own = [_keys(table[name], as_text=reading.as_text[of]) for name, of in source.ids.items()]
        stay = _stays(own[-1], share)
        rows = np.flatnonzero(stay & _stays(combine(own[0], own[-1]), thinned) if thinned > 1 else stay)
        _add_examples(examples, table, config.split_column)
        kept.append(table.take(pa.array(rows)))
        keys.append([each[rows] for each in own])
        reading.advance()
    return _Held(
        pa.concat_tables(kept, promote_options="permissive"),
        {name: np.concatenate(each) for name, each in zip(source.ids, zip(*keys, strict=True), strict=True)},
        read_chunk(source.chunks[0], features).slice(0, max(sum(map(len, kept)), 1)) if features else pa.table({}),
        examples,
        (config.label_column, config.split_column),
        num_rows,
        len(source.chunks),
        is_text=any(chunk.csv for chunk in source.chunks),
    )


def _write_held(
    held: _Held, rows: IntArray, stem: str, *, chunks: int, columns: Mapping[str, pa.Array] | None = None
) -> str:
    """Write rows of a table as a file in its format, and return its URI. columns: replace the table's columns.

    chunks: the fewest pieces of the file; there are more where the table's pieces are smaller.
    """
    table = _with_every_split(held, held.rows.take(pa.array(rows)))
    for name, column in (columns or {}).items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    if held.features.num_columns and held.features.num_rows:
        features = held.features.take(pa.array(np.arange(len(rows)) % held.features.num_rows))
        for name in features.column_names:
            table = table.append_column(features.schema.field(name), features[name])
    if held.is_text:
        uri = f"{stem}.csv"
        with open_output(uri) as sink:
            pa_csv.write_csv(_blanks_as_nulls(table), sink)
        return uri
    size = min(-(-held.num_rows // held.num_chunks), -(-table.num_rows // chunks))
    write_table(f"{stem}.parquet", table.replace_schema_metadata(held.rows.schema.metadata), row_group_size=size or 1)
    return f"{stem}.parquet"


def _pieces(held: _Held, fewest: int, share: float) -> int:
    return max(fewest, min(round(share * held.num_chunks), _MOST_PIECES))


def _keys(ids: pa.ChunkedArray, *, as_text: bool) -> KeyArray:
    """Return keys that are independent of the keys that choose partitions."""
    return combine(id_keys(pc.cast(ids, pa.large_string()) if as_text else ids), _OWN)


def _add_examples(examples: dict[str, pa.Table], table: pa.Table, split: str) -> None:
    """Add a chunk's rows of each split that has too few examples so far."""
    if split not in table.column_names:
        return
    column = pc.cast(table[split], pa.large_string())
    for value in pc.unique(column).drop_null().to_pylist():
        found = examples.get(value)
        if found is None or found.num_rows < _FEWEST_OF_SPLIT:
            own = table.filter(pc.equal(column, value)).slice(0, _FEWEST_OF_SPLIT)
            both = [own] if found is None else [found, own]
            examples[value] = pa.concat_tables(both, promote_options="permissive").slice(0, _FEWEST_OF_SPLIT)


def _with_every_split(held: _Held, table: pa.Table) -> pa.Table:
    """Return the rows with labels and splits of examples in some, so that no split is missing."""
    split = held.labels[1]
    if not held.examples or split not in table.column_names:
        return table
    column = pc.cast(table[split], pa.large_string())
    counts = {value: int(pc.sum(pc.equal(column, value)).as_py() or 0) for value in held.examples}
    lacking = [value for value, count in counts.items() if count < held.examples[value].num_rows]
    free = np.flatnonzero(~np.asarray(pc.is_in(column, pa.array(lacking, pa.large_string()))))
    index, pieces = np.arange(table.num_rows), [table]
    for value in lacking:
        own = held.examples[value].select(table.column_names).cast(table.schema)
        places, free = np.split(free, [own.num_rows - counts[value]])
        index[places] = sum(each.num_rows for each in pieces) + np.arange(len(places))
        pieces.append(own)
    taken = pa.concat_tables(pieces).take(pa.array(index))
    for name in {*held.labels} & {*table.column_names}:
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), taken[name])
    return table


def _blanks_as_nulls(table: pa.Table) -> pa.Table:
    """Return text with null for an empty string, so a blank field is written without quotes."""
    columns = [pc.if_else(pc.equal(column, ""), None, column) for column in table.columns]
    return pa.table(columns, names=table.column_names)


class TableRows(NamedTuple):
    """Numbers of rows of the graph's node and edge tables."""

    nodes: int
    edges: int


@dataclass(frozen=True)
class Subsample:
    """The rows of the largest subsample, by table, and about how many nodes each type of the graph has.

    A type without a table has no rows.
    """

    config: GraphConfig
    nodes: tuple[_Held | None, ...]
    edges: tuple[_Held, ...]
    num_nodes: tuple[int, ...]

    @property
    def num_rows(self) -> TableRows:
        """Numbers of rows of the graph's node and edge tables."""
        known = zip(self.nodes, self.num_nodes, strict=True)
        nodes = sum(count if held is None else held.num_rows for held, count in known)
        return TableRows(nodes, sum(each.num_rows for each in self.edges))

    @property
    def num_bytes(self) -> int:
        """Bytes that the rows take in memory."""
        return sum(each.num_bytes for each in (*self.nodes, *self.edges) if each is not None)

    def write(self, folder: str, *, one_in: int, chunks: int, share: float = 0.0) -> GraphConfig:
        """Write the subsample of one node in so many, and return the config that names its tables.

        chunks: the fewest pieces of a table, so that as many tasks can read it; share: of the table's own pieces that
        there are as well, so that a piece is to a partition as in the graph. One in one is the graph itself.
        """
        graph, types = self.config, self.config.schema.types
        if one_in == 1:
            return graph
        nodes: dict[str, str | None] = {}
        edges: dict[str, Any] = {}
        for number, (name, held) in enumerate(zip(types, self.nodes, strict=True)):
            nodes[name] = None
            if held is not None:
                rows = self._rows_of(held, number, one_in)
                pieces = _pieces(held, chunks, share)
                nodes[name] = _write_held(held, rows, join(folder, f"nodes-{name}"), chunks=pieces)
        for relation, held in zip(graph.edge_tables, self.edges, strict=True):
            ends = types.index(relation.source), types.index(relation.target)
            rows, sources = self._edges(held, ends, one_in)
            columns = {graph.of_relation(relation).src_column: sources}
            pieces = _pieces(held, chunks, share)
            uri = _write_held(held, rows, join(folder, f"edges-{relation}"), chunks=pieces, columns=columns)
            edges[str(relation)] = uri
        held_edges = {} if isinstance(graph.edges, str) else graph.edges
        for name, table in held_edges.items():
            if not isinstance(table, str):
                edges[name] = table.model_copy(update={"table": edges[name]})
        tables = {
            "nodes": next(iter(nodes.values())) if isinstance(graph.nodes, str) else nodes,
            "edges": next(iter(edges.values())) if isinstance(graph.edges, str) else edges,
        }
        return graph.model_copy(update=tables)

    def _rows_of(self, held: _Held, number: int, one_in: int) -> IntArray:
        """Return the rows of a type's nodes that stay."""
        (keys,) = held.keys.values()
        return np.flatnonzero(_stays(keys, _share(self.num_nodes[number], one_in)))

    def _edges(self, held: _Held, ends: tuple[int, int], one_in: int) -> tuple[IntArray, pa.Array]:
        """Return the rows of a table's edges that stay, and the ids of their sources."""
        from_share, to_share = (_share(self.num_nodes[number], one_in) for number in ends)
        (column, source), (_, target) = held.keys.items()
        rows = np.flatnonzero(_stays(target, to_share) & _stays(combine(source, target), one_in // to_share))
        known = _stays(source, from_share)
        # drawn from all held rows, which show better than this subsample's rows which nodes have many edges
        drawn, ids = np.flatnonzero(known), held.rows[column].combine_chunks()
        of_sources = self.nodes[ends[0]]
        if len(drawn) < _FEWEST_DRAWN and of_sources is not None:
            own = self._rows_of(of_sources, ends[0], one_in)
            named = of_sources.rows[next(iter(of_sources.keys))]
            nodes = named.take(pa.array(own)).cast(ids.type).combine_chunks()
            drawn, ids = np.arange(len(ids), len(ids) + len(nodes)), pa.concat_arrays([ids, nodes])
        picks = (hash_integers(rows) % np.uint64(max(len(drawn), 1))).astype(np.int64)
        return rows, ids.take(pa.array(np.where(known[rows], rows, drawn[picks])))


class SubsampleLevels(NamedTuple):
    """The rows that subsamples are cut from, and for each subsample the K of its one node in K."""

    subsample: Subsample
    levels: tuple[int, ...]


def levels(num_edges: int, *, smallest: int, largest: int) -> tuple[int, ...]:
    """Return the K of each subsample's one node in K, from about `smallest` edges to `largest` at most.

    There are two at least: a quarter of a small graph, and all of it.
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
    config: GraphConfig,
    *,
    targets: EdgeTargets | None,
    drawn: DrawnSplit | None = None,
    smallest: int,
    largest: int,
    progress: Progress,
) -> SubsampleLevels:
    """Return the rows that subsamples are cut from, and their `levels`. Reads all ids once.

    drawn: the split of labelled nodes that is made.

    Raises TableError for tables that cannot be read, or lack a column of ids.
    """
    nodes, edges = ([_settled(each) for each in of] for of in sources_of(config, targets=targets, drawn=drawn))
    counted = enumerate(nodes)
    num_nodes = tuple(_about_rows(each) if each.chunks else _about_ids(number, edges) for number, each in counted)
    found = levels(sum(_about_rows(each) for each in edges), smallest=smallest, largest=largest)
    finest, types = found[-1], config.schema.types
    tables = [(each, each.schema() if each.chunks else pa.schema([])) for each in (*nodes, *edges)]
    num_chunks = sum(len(each.chunks) for each in (*nodes, *edges))
    reading = _Reading(_types_of_text(tables, config), progress, num_chunks)
    node_tables, edge_tables = tables[: len(nodes)], tables[len(nodes) :]
    held_nodes = [
        _read_held(*table, reading, config=config.of_type(name), share=_share(count, finest))
        if table[0].chunks
        else None
        for name, table, count in zip(types, node_tables, num_nodes, strict=True)
    ]
    held_edges = []
    for relation, table in zip(config.edge_tables, edge_tables, strict=True):
        share = _share(num_nodes[types.index(relation.target)], finest)
        own = config.of_relation(relation)
        held_edges.append(_read_held(*table, reading, config=own, share=share, thinned=finest // share))
    return SubsampleLevels(Subsample(config, tuple(held_nodes), tuple(held_edges), num_nodes), found)


def _share(nodes: int, one_in: int) -> int:
    """Return a type's K of one node in K: smaller than the graph's where hardly any node would stay."""
    while one_in > 1 and nodes < _FEWEST_NODES * one_in:
        one_in //= STEP
    return one_in
