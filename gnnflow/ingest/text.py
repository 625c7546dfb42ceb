"""Which types the columns of CSV files and of folders' names have: agreed over both tables before any row is ingested.

Ids are integers only where all of them, in both tables, are written as one; a table that is typed already has decided.
Other columns agree over all blocks of all files of their table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.storage.text_types import TextFacts
from gnnflow.storage.user_tables import Chunk, Survey, schema_of, survey, with_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner


@dataclass(frozen=True)
class SourceTable:
    """The chunks of one table and the columns of it that may be read: all, those of ids, and those of numbers."""

    chunks: tuple[Chunk, ...]
    columns: frozenset[str]
    ids: tuple[str, ...]
    numbers: frozenset[str]


def node_source(chunks: Sequence[Chunk], config: GraphConfig) -> SourceTable:
    """Return the node table with the columns that may be read."""
    numbers = frozenset([*config.features, *(f"{name}_value" for name in config.features)])
    index = [f"{name}_index" for name in config.features]
    columns = numbers.union([config.id, config.label, config.split, *index])
    return SourceTable(tuple(chunks), columns, (config.id,), numbers)


def edge_source(chunks: Sequence[Chunk], config: GraphConfig, *, also: Sequence[str] = ()) -> SourceTable:
    """Return the edge table with the columns that may be read. also: those of edges that are targets."""
    numbers = frozenset([config.weight, *config.edge_features])
    columns = numbers.union([config.src, config.dst], also)
    return SourceTable(tuple(chunks), columns, (config.src, config.dst), numbers)


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
    integers = all(_are_integers(table, held) for table, held in zip(tables, surveys, strict=True))
    return [
        replace(table, chunks=tuple(with_types(table.chunks, held, dict.fromkeys(table.ids, integers))))
        for table, held in zip(tables, surveys, strict=True)
    ]


def survey_block(index: int, inbox: Inbox, *, tasks: Sequence[tuple[Chunk, frozenset[str]]]) -> TaskOutput:
    """Look through one block of text."""
    found = survey(*tasks[index])
    columns = {name: asdict(facts) for name, facts in found.columns.items()}
    return TaskOutput(counts={"rows": found.rows, "columns": columns})


def _survey_of(counts: dict[str, Any]) -> Survey:
    columns = {name: TextFacts(**facts) for name, facts in counts["columns"].items()}
    return Survey(counts["rows"], columns)


def _are_integers(table: SourceTable, surveys: Sequence[Survey]) -> bool:
    """Return whether all ids of a table are integers, as they are written or by their type."""
    for name in table.ids:
        facts = [found.columns[name] for found in surveys if name in found.columns]
        if not all(each.exact for each in facts):
            return False
        for chunk in () if facts or not table.chunks else table.chunks[:1]:
            schema = schema_of(chunk)
            places = schema.get_all_field_indices(name)
            if places and not pa.types.is_integer(_plain(schema.field(places[0]).type)):
                return False
    return True


def _plain(found: pa.DataType) -> pa.DataType:
    return found.value_type if pa.types.is_dictionary(found) else found
