"""The tables of a graph as tasks know them: a node table per type and an edge table per relation.

Rounds run over (table, chunk) or (partition, table), so every table here knows its tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from gnnflow.config.columns_section import is_pattern
from gnnflow.graph.errors import TableError
from gnnflow.graph.schema import qualified
from gnnflow.ingest.classes import find_classes
from gnnflow.ingest.schema import (
    are_there,
    implied_node_schema,
    is_shared,
    node_table,
    read_edge_schema,
    read_node_schema,
)
from gnnflow.ingest.text import edge_source, node_source, settle_text
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.table_files import find_table_files
from gnnflow.storage.text_types import beyond_integers
from gnnflow.storage.user_tables import form_of, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.config.edge_tables import EdgeTableConfig
    from gnnflow.graph.schema import Relation
    from gnnflow.ingest.classes import FoundClasses
    from gnnflow.ingest.schema import EdgeSchema, NodeSchema
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
    from gnnflow.ingest.text import SourceTable
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.storage.table_parts import TableFiles
    from gnnflow.storage.user_tables import Chunk

_WEIGHT = "weight"  # of a table that has it; a name that is given is meant


class IdColumn(NamedTuple):
    """A column of ids in a chunk of an edge table. edges: the number of that table."""

    edges: int
    column: str


@dataclass(frozen=True)
class NodeTable:
    """The node table of one type, or the chunks of edge tables that have its ids.

    ends: for a type without a table, the column of ids in each chunk.

    config: the section as this table is read by it. stem: begins the names of its quarantine files. first: the number
    of its first chunk among the chunks of all node tables.
    """

    config: GraphConfig
    stem: str
    uri: str
    schema: NodeSchema
    chunks: tuple[Chunk, ...]
    first: int = 0
    ends: tuple[IdColumn, ...] = ()

    @property
    def tasks(self) -> range:
        """The tasks that read its chunks."""
        return range(self.first, self.first + len(self.chunks))


@dataclass(frozen=True)
class EdgeTable:
    """The edge table of one relation.

    config: the section as this table is read by it. number: among the edge tables. relation, reverse: the numbers of
    the relations of its edges and their reverses, the same without types; reverse is None where none are added. source,
    target: the numbers of the types that its edges join. ends: what an error calls the ids of each. chosen: says which
    rows are edges; None where all are.
    """

    config: GraphConfig
    stem: str
    uri: str
    schema: EdgeSchema
    chunks: tuple[Chunk, ...]
    number: int
    relation: int
    reverse: int | None
    source: int
    target: int
    ends: tuple[str, str]
    first: int = 0
    chosen: EdgeTableConfig | None = None

    @property
    def tasks(self) -> range:
        """The tasks that read its chunks."""
        return range(self.first, self.first + len(self.chunks))


@dataclass(frozen=True)
class Tables:
    """All tables of a graph: T node tables in the order of its types, edge tables in the order of relations.

    classes: of the label column, where they were counted.
    """

    nodes: tuple[NodeTable, ...]
    edges: tuple[EdgeTable, ...]
    classes: FoundClasses | None = None

    @property
    def targets(self) -> EdgeTargets | None:
        """The task's demands on the edge tables; None where targets are nodes."""
        return self.edges[0].schema.targets

    @property
    def labelled(self) -> NodeTable | EdgeTable:
        """The table whose rows are targets, the only rows that may have labels."""
        if self.targets is not None:
            return self.edges[self.targets.table]
        return next(table for table in self.nodes if table.schema.is_target)

    def table_of(self, relation: int) -> EdgeTable:
        """Return the table that the edges of a relation come from."""
        return next(table for table in self.edges if relation in (table.relation, table.reverse))


class SourceTables(NamedTuple):
    """The node tables and the edge tables that a config names, in its order."""

    nodes: list[SourceTable]
    edges: list[SourceTable]


def sources_of(
    config: GraphConfig,
    *,
    targets: EdgeTargets | None,
    found: Mapping[str, TableFiles] | None = None,
    drawn: DrawnSplit | None = None,
) -> SourceTables:
    """Return the node and the edge tables that a config names. found: known files, by URI."""
    listed, times = found or {}, () if drawn is None else drawn.columns

    def files(uri: str) -> TableFiles:
        return listed.get(uri) or find_table_files(absolute(uri), form=config.format_at(uri))

    nodes = [
        node_source(scan(files(uri)) if uri else (), config, node_type=number, also=times)
        for number, uri in enumerate(config.node_tables.values())
    ]
    edges = [
        edge_source(
            scan(files(uri)),
            config,
            number=number,
            also=() if targets is None else targets.columns(config, table=number),
        )
        for number, uri in enumerate(config.edge_tables.values())
    ]
    return SourceTables(nodes, edges)


def read_tables(
    config: GraphConfig,
    runner: RoundRunner,
    *,
    targets: EdgeTargets | None = None,
    found: Mapping[str, TableFiles] | None = None,
    drawn: DrawnSplit | None = None,
) -> Tables:
    """Return the tables that a config names. Reads text and labels that are names once, else only the schemas of files.

    drawn: the split of labelled nodes, where no column has one. Raises TableError for tables that break their contract.
    """
    nodes, edges = sources_of(config, targets=targets, found=found, drawn=drawn)
    settled = settle_text([*nodes, *edges], runner)
    sources = SourceTables(settled[: len(nodes)], settled[len(nodes) :])
    return settled_tables(sources, config, runner, targets=targets, drawn=drawn)


def settled_tables(
    sources: SourceTables,
    config: GraphConfig,
    runner: RoundRunner,
    *,
    targets: EdgeTargets | None,
    drawn: DrawnSplit | None,
) -> Tables:
    """Return the tables of sources whose text has its types; labels that are names are counted first."""
    classes = None
    if config.label is not None and (targets is None or targets.have_labels):
        labelled = sources.nodes[config.target_type] if targets is None else sources.edges[targets.table]
        classes = find_classes(labelled, config.of_targets(edges=targets is not None), runner)
    if classes is None and config.classes == "whole":
        config = config.model_copy(update={"classes": None})
    return tables_of(*sources, config, targets=targets, drawn=drawn, classes=classes)


def tables_of(
    nodes: Sequence[SourceTable],
    edges: Sequence[SourceTable],
    config: GraphConfig,
    *,
    targets: EdgeTargets | None,
    drawn: DrawnSplit | None = None,
    classes: FoundClasses | None = None,
) -> Tables:
    """Return the tables of sources whose text has its types. classes: of the label column, where they were counted."""
    ends = [() if table.uri else _ends_of(number, edges) for number, table in enumerate(nodes)]
    nodes = [
        replace(table, chunks=tuple(chunk for chunk, _ in held)) if held else table
        for table, held in zip(nodes, ends, strict=True)
    ]
    schemas = [
        read_node_schema(table, config, node_type=number, targets=targets, drawn=drawn, classes=classes)
        if table.uri
        else implied_node_schema(edges, config, node_type=number)
        for number, table in enumerate(nodes)
    ]
    edge_schemas = [
        read_edge_schema(table, config, nodes=schemas, number=number, targets=targets, classes=classes)
        for number, table in enumerate(edges)
    ]
    held = [[table.schema().names if table.uri else () for table in of] for of in (nodes, edges)]
    for error in (*unknown_columns(config, *held), *_unknown_patterns(config, schemas, edge_schemas)):
        raise error
    if targets is not None:
        refuse_other_times(edges, edge_schemas, target=targets.table)
    return assembled(nodes, edges, schemas, edge_schemas, config, classes=classes)


def assembled(
    nodes: Sequence[SourceTable],
    edges: Sequence[SourceTable],
    schemas: Sequence[NodeSchema],
    edge_schemas: Sequence[EdgeSchema],
    config: GraphConfig,
    *,
    classes: FoundClasses | None,
) -> Tables:
    """Return the tables of sources with these schemas. classes: of the label column, where they were counted."""
    ends = [() if table.uri else _ends_of(number, edges) for number, table in enumerate(nodes)]
    types = config.schema.types
    stems, firsts = _stems("nodes", types, config), _firsts(nodes)
    return Tables(
        tuple(
            NodeTable(
                config=config.of_type(types[number]),
                stem=stems[number],
                uri=table.uri,
                schema=schemas[number],
                chunks=table.chunks,
                first=firsts[number],
                ends=tuple(end for _, end in ends[number]),
            )
            for number, table in enumerate(nodes)
        ),
        _edge_tables(edges, edge_schemas, config),
        classes,
    )


def _ends_of(node_type: int, edges: Sequence[SourceTable]) -> tuple[tuple[Chunk, IdColumn], ...]:
    """Return the chunks of edge tables with ids of a type, and the column of each; both ends may be of one type."""
    return tuple(
        (chunk, IdColumn(number, column))
        for number, table in enumerate(edges)
        for column, of in table.ids.items()
        if of == node_type
        for chunk in table.chunks
    )


def _edge_tables(
    edges: Sequence[SourceTable], schemas: Sequence[EdgeSchema], config: GraphConfig
) -> tuple[EdgeTable, ...]:
    graph, names = config.schema, list(config.edge_tables)
    stems, firsts = _stems("edges", names, config), _firsts(edges)
    # the types of both ends of each table's edges
    ends = [(graph.types.index(each.source), graph.types.index(each.target)) for each in names]
    return tuple(
        EdgeTable(
            config=config.of_relation(names[number]),
            stem=stems[number],
            uri=table.uri,
            schema=schemas[number],
            chunks=table.chunks,
            number=number,
            relation=graph.relations.index(names[number]),
            reverse=_reverse(config, names[number]),
            source=source,
            target=target,
            ends=(node_table(config, source), node_table(config, target)),
            first=firsts[number],
            chosen=config.edge_table_of(names[number]),
        )
        for number, (table, (source, target)) in enumerate(zip(edges, ends, strict=True))
    )


def _firsts(tables: Sequence[SourceTable]) -> list[int]:
    return [sum(len(table.chunks) for table in tables[:number]) for number in range(len(tables))]


def _stems(what: str, names: Sequence[str | Relation], config: GraphConfig) -> list[str]:
    return [qualified(what, config.schema.name_of(name)) for name in names]


def _reverse(config: GraphConfig, relation: Relation) -> int | None:
    """Return the number of the relation of a table's reverse edges; None without these."""
    if not config.reverse_edges:
        return None
    return config.schema.relations.index(config.reverses.get(relation, relation))


def unknown_columns(
    config: GraphConfig, nodes: Sequence[Collection[str]] | None, edges: Sequence[Collection[str]] | None
) -> Iterator[TableError]:
    """Yield an error for each column that is named for all tables and that no table has.

    nodes, edges: the columns of each table; None where not all tables are known.
    """
    if nodes is not None:
        yield from _unknown_features(config, nodes)
    if edges is not None:
        yield from _unknown_attributes(config, edges)


def _unknown_features(config: GraphConfig, nodes: Sequence[Collection[str]]) -> Iterator[TableError]:
    if not is_shared(config.features, config) or "features" not in config.model_fields_set:
        return
    assert isinstance(config.features, tuple)
    asked = [config.feature_names(kind, [*names]) for kind, names in zip(config.schema.types, nodes, strict=True)]
    if not any(are_there(each, names) for each, names in zip(asked, nodes, strict=True)):
        yield TableError(
            f"no node table has any of the columns {', '.join(config.features)}",
            where="graph.features",
            fix="Name columns of these tables, or give {type: columns}.",
        )


def _unknown_attributes(config: GraphConfig, edges: Sequence[Collection[str]]) -> Iterator[TableError]:
    held = {name for names in edges for name in names}
    fix = "Name the column of weights, or leave the key out where edges have none."
    if isinstance(config.weight, str) and config.weight not in (_WEIGHT, *held):
        yield TableError(f"no edge table has a column {config.weight!r}", where="graph.weight", fix=fix)
    for relation, names in zip(config.edge_tables, edges, strict=True):
        column = config.weight.get(str(relation)) if isinstance(config.weight, Mapping) else None
        if column is not None and column not in names:
            yield TableError(f"its edge table has no column {column!r}", where=f"graph.weight.{relation}", fix=fix)
    if is_shared(config.edge_features, config):
        for name in config.edge_features:
            if name not in held and not is_pattern(name):
                fix = "Name columns of these tables, or give {relation: columns}."
                yield TableError(f"no edge table has a column {name!r}", where="graph.edge_features", fix=fix)


def _unknown_patterns(
    config: GraphConfig, nodes: Sequence[NodeSchema], edges: Sequence[EdgeSchema]
) -> Iterator[TableError]:
    held = [[name for schema in schemas for name in schema.columns_read] for schemas in (nodes, edges)]
    return unknown_patterns(config, *held)


def unknown_patterns(
    config: GraphConfig, nodes: Sequence[str] | None, edges: Sequence[str] | None
) -> Iterator[TableError]:
    """Yield an error for each pattern that no column of nodes or of edges matches; `*` may match none.

    nodes, edges: None where not all of them are known.
    """
    for key, asked, held in (("features", config.features, nodes), ("edge_features", config.edge_features, edges)):
        if held is None:
            continue
        every = asked if isinstance(asked, tuple) else [each for columns in asked.values() for each in columns]
        for pattern in filter(is_pattern, every):
            if pattern != "*" and pattern not in held and not any(fnmatchcase(name, pattern) for name in held):
                fix = "Mend the pattern, or take it out."
                yield TableError(f"no column matches {pattern!r}", where=f"graph.{key}", fix=fix)


def check_column_sections(tables: Tables, config: GraphConfig) -> None:
    """Raise TableError where graph.columns names a column that no table has, or none reads."""
    owners = [config.column_owner(name, "nodes") for name in config.schema.types]
    owners += [config.column_owner(name, "edges") for name in config.edge_tables]
    schemas: list[NodeSchema | EdgeSchema] = [table.schema for table in tables.nodes]
    schemas += [table.schema for table in tables.edges]
    read = [(owner, name) for owner, schema in zip(owners, schemas, strict=True) for name in schema.columns_read]
    names = {name for _, name in read} | {f"{owner}.{name}" for owner, name in read}
    for name in config.columns:
        if name not in names:
            fix = f"The columns read are {', '.join(dict.fromkeys(each for _, each in read))}."
            raise TableError(f"no table has a column {name!r} that is read", where="graph.columns", fix=fix)


def refuse_other_times(edges: Sequence[SourceTable], schemas: Sequence[EdgeSchema], *, target: int) -> None:
    """Raise TableError where a table's times have another unit than the targets'; they are compared as numbers."""
    for table, schema in zip(edges, schemas, strict=True):
        if schema.has_time and schema.time != schemas[target].time:
            raise TableError(
                f"times are {schema.time} (graph.timestamp), in {edges[target].uri} they are {schemas[target].time}",
                where=table.uri,
                fix="Write the column with one type in all tables.",
            )


def report_missing_times(tables: Tables, config: GraphConfig, tell: Callable[[str], None]) -> None:
    """Report relations without times in a graph with times: targets see their edges at any time."""
    if not any(table.schema.has_time for table in tables.edges):
        return
    for name, table in zip(config.edge_tables, tables.edges, strict=True):
        if not table.schema.has_time and any(chunk.num_rows for chunk in table.chunks):
            column = table.config.time_column
            tell(f"{name}: its table has no column {column}, so its edges are taken to be older than all")


def report_text(tables: Tables, names: Sequence[str], tell: Callable[[str], None]) -> None:
    """Report unusual forms of CSV files, and their columns with integers beyond 64 bits.

    names: of the tables, node tables first.
    """
    read = [() if table.ends else table.chunks for table in tables.nodes] + [table.chunks for table in tables.edges]
    for name, chunks in zip(names, read, strict=True):
        if form := form_of(chunks):
            tell(f"{name}: read with {form}")
        for text in beyond_integers(chunks[0].types if chunks else {}):
            tell(f"{name}: {text}")


def report_missing_features(tables: Tables, config: GraphConfig, tell: Callable[[str], None]) -> None:
    """Report types without features, since a list for all types names no column of their tables."""
    if not isinstance(config.features, tuple):
        return
    for name, table in zip(config.schema.types, tables.nodes, strict=True):
        if not table.schema.has_features and not table.schema.embeddings and not table.ends:
            columns, but = ", ".join(config.features), " but their degrees" if table.schema.degrees else ""
            tell(f"{name}: its table has none of the columns {columns}, so its nodes have no features{but}")
