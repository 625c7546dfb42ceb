"""The types of columns in CSV files and folder names, agreed over all tables before any row is ingested.

Ids of a node type are integers only where its table and its edge tables write all of them as integers; in a table with
column types the type decides. Other columns agree over all blocks of all files of their table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.storage.agreed_schema import agreed_schema
from gnnflow.storage.text_types import TextFacts, TextType
from gnnflow.storage.user_tables import Chunk, Survey, schema_of, survey, with_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.schema import Relation
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner

_WRITTEN = ("categorical", "multicategorical", "text")


@dataclass(frozen=True)
class SourceTable:
    """The chunks of one table and the columns that may be read: all, id columns, and number columns.

    key: the config key that names its uri. ids: for each id column the number of its node type. texts: columns of
    values that stay as they are written, where they are text. foreign: the id columns that may hold whole floats.
    """

    uri: str
    key: str
    chunks: tuple[Chunk, ...]
    columns: frozenset[str]
    ids: Mapping[str, int]
    numbers: frozenset[str]
    texts: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()

    def schema(self) -> pa.Schema:
        """Return the schema that its files agree on. Raises TableError where they do not."""
        return agreed_schema(self.chunks, columns=self.columns, numbers=self.numbers)


def node_source(
    chunks: Sequence[Chunk], config: GraphConfig, *, node_type: int = 0, also: Sequence[str] = ()
) -> SourceTable:
    """Return a type's node table with the columns that may be read. also: columns of nodes that are targets."""
    name, uri = list(config.node_tables.items())[node_type]
    config = config.of_type(name)
    features = config.feature_names(name, schema_of(chunks[0]).names if chunks else ())
    numbers = frozenset([*features, *(f"{feature}_value" for feature in features)])
    columns = numbers.union([config.id_column], (f"{feature}_index" for feature in features))
    if node_type == config.target_type:
        columns = columns.union([config.label_column, config.split_column], also)
    key = "graph.nodes" if isinstance(config.nodes, str) else f"graph.nodes.{name}"
    texts = _texts(config, features, config.column_owner(name, "nodes"))
    return SourceTable(uri, key, tuple(chunks), columns, {config.id_column: node_type}, numbers, texts)


def edge_source(
    chunks: Sequence[Chunk], config: GraphConfig, *, number: int = 0, also: Sequence[str] = ()
) -> SourceTable:
    """Return one edge table with the columns that may be read. also: columns of edges that are targets."""
    relation, uri = list(config.edge_tables.items())[number]
    config = config.of_relation(relation)
    attributes = config.edge_feature_names(relation, schema_of(chunks[0]).names if chunks else ())
    numbers = frozenset([config.weight_column, *attributes])
    columns = numbers.union([config.src_column, config.dst_column], also, filter_columns(config, relation))
    types = config.schema.types
    ids = {config.src_column: types.index(relation.source), config.dst_column: types.index(relation.target)}
    key = "graph.edges" if isinstance(config.edges, str) else f"graph.edges.{relation}"
    texts = _texts(config, attributes, config.column_owner(relation, "edges"))
    foreign = frozenset() if config.edge_table_of(relation) is None else frozenset(ids)
    return SourceTable(uri, key, tuple(chunks), columns, ids, numbers, texts, foreign)


def _texts(config: GraphConfig, columns: Sequence[str], owner: str) -> frozenset[str]:
    """Return the columns whose values are no numbers, whatever they look like."""
    sections = {name: config.column_section(owner, name) for name in columns}
    return frozenset(name for name, held in sections.items() if held is not None and held.kind in _WRITTEN)


def filter_columns(config: GraphConfig, relation: Relation) -> tuple[str, ...]:
    """Return the columns whose values say which rows of a table are edges of a relation."""
    table = config.edge_table_of(relation)
    return () if table is None else tuple(table.where or ())


def settle_text(tables: Sequence[SourceTable], runner: RoundRunner) -> list[SourceTable]:
    """Return the tables with the types of their text. Reads every block of text once, in a round.

    Raises TableError for CSV that is not UTF-8, has lines of another length than the header, or open quotes.
    """
    blocks = [(table, chunk) for table in tables for chunk in table.chunks if chunk.csv]
    counted = []
    if blocks:
        tasks = tuple((chunk, table.columns) for table, chunk in blocks)
        counted = runner.run(Round("text_read", len(tasks), 1, partial(survey_block, tasks=tasks)))
    found = iter(counted)
    surveys = [
        [_survey_of(next(found).counts) if chunk.csv else survey(chunk, table.columns) for chunk in table.chunks]
        for table in tables
    ]
    return with_agreed_types(tables, surveys)


def with_agreed_types(tables: Sequence[SourceTable], surveys: Sequence[Sequence[Survey]]) -> list[SourceTable]:
    """Return the tables with the types of their text. surveys: of the chunks of each table."""
    integers: dict[int, bool] = {}
    for table, held in zip(tables, surveys, strict=True):
        for column, node_type in table.ids.items():
            integers[node_type] = integers.get(node_type, True) and _are_integers(table, column, held)
    settled = []
    for table, held in zip(tables, surveys, strict=True):
        # whole floats are read as numbers, and become integers with the ids of edges
        floats = {name for name in table.foreign if integers[table.ids[name]] and not _are_exact(name, held)}
        ids = {name: integers[of] for name, of in table.ids.items() if name not in floats}
        settled.append(replace(table, chunks=_typed(table, held, ids)))
    return settled


def _typed(table: SourceTable, surveys: Sequence[Survey], ids: Mapping[str, bool]) -> tuple[Chunk, ...]:
    """Return a table's chunks with the types of their text. ids: for each id column whether it holds integers."""
    return tuple(_as_written(chunk, table.texts) for chunk in with_types(table.chunks, surveys, ids))


def _are_exact(name: str, surveys: Sequence[Survey]) -> bool:
    """Return whether a column of text holds integers as Python writes them."""
    return all(found.columns[name].exact for found in surveys if name in found.columns)


def _as_written(chunk: Chunk, texts: frozenset[str]) -> Chunk:
    """Return a chunk whose given columns stay text."""
    kept = {name: TextType("text") for name in chunk.types if name in texts}
    return replace(chunk, types={**chunk.types, **kept}) if kept else chunk


def survey_block(index: int, inbox: Inbox, *, tasks: Sequence[tuple[Chunk, frozenset[str]]]) -> TaskOutput:
    """Look through one block of text."""
    found = survey(*tasks[index])
    columns = {name: asdict(facts) for name, facts in found.columns.items()}
    return TaskOutput(counts={"rows": found.rows, "columns": columns})


def _survey_of(counts: dict[str, Any]) -> Survey:
    columns = {name: TextFacts(**facts) for name, facts in counts["columns"].items()}
    return Survey(counts["rows"], columns)


def _are_integers(table: SourceTable, name: str, surveys: Sequence[Survey]) -> bool:
    """Return whether all ids of a column are integers, as they are written or by their type."""
    facts = [found.columns[name] for found in surveys if name in found.columns]
    if facts or not table.chunks:
        may_be_floats = name in table.foreign
        return all(each.exact or (may_be_floats and each.number and not each.integer) for each in facts)
    schema = schema_of(table.chunks[0])
    places = schema.get_all_field_indices(name)
    if not places:
        return True
    kind = schema.field(places[0]).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
