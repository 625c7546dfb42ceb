"""The kind of each dense column: what the config says, or what its type and its first rows show.

Raises TableError with the file and column where a column cannot be of its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import ISO_DATE, find_forms, words_of
from gnnflow.config.columns_section import (
    CategoricalColumn,
    EmbeddingColumn,
    MulticategoricalColumn,
    NumericalColumn,
    TextColumn,
    TimestampColumn,
)
from gnnflow.config.environment import config_line
from gnnflow.graph.errors import TableError
from gnnflow.ingest.fields import PLAIN_NUMBERS, ColumnPart, field_of, first_text, is_unknown, list_width
from gnnflow.storage.columns import combine
from gnnflow.storage.user_tables import holds_lists, holds_numbers, holds_text, holds_times, plain, read_chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.config.columns_section import ColumnSection
    from gnnflow.graph.schema import Relation
    from gnnflow.storage.user_tables import Chunk

_SEPARATORS = ("|", ";", ",", "/", " ")
_MOST_SHOWN = 1000  # values that show the kind of a column of text


@dataclass(frozen=True)
class KindsAsked:
    """The kinds that a config says of a table's columns, by name.

    encodes: False where rows are scaled to sum one, which leaves only numbers. taken: the columns with another role,
    which no misspelt input means.
    """

    config: GraphConfig
    owner: str
    encodes: bool
    taken: frozenset[str]

    @classmethod
    def of(cls, config: GraphConfig, name: str | Relation, untyped: str, *, encodes: bool = True) -> KindsAsked:
        """Return the kinds that are asked of a type's or a relation's table."""
        return cls(config, config.column_owner(name, untyped), encodes, frozenset(config.taken_columns(name)))

    def section(self, column: str) -> ColumnSection | None:
        """Return a column's section, None where the config does not name it."""
        return self.config.column_section(self.owner, column)

    def key(self, column: str) -> str:
        """Return the column's key in graph.columns."""
        return self.config.column_key(self.owner, column)


def parts_of(
    schema: pa.Schema, chunks: Sequence[Chunk], names: Sequence[str], role: str, *, asked: KindsAsked, fix: str = ""
) -> tuple[ColumnPart, ...]:
    """Return how the columns of a table are read. role, fix: as for `field_of`."""
    return tuple(part_of(schema, chunks, name, role, asked=asked, fix=fix) for name in names)


def part_of(
    schema: pa.Schema,
    chunks: Sequence[Chunk],
    name: str,
    role: str,
    *,
    asked: KindsAsked,
    fix: str = "",
) -> ColumnPart:
    """Return how a column of a table is read. role, fix: as for `field_of`.

    Its kind follows from its type where the config says none. Reads a chunk's rows where only they show the kind.
    """
    field = field_of(schema, chunks[0], name, role, fix=fix, taken=asked.taken)
    found, said, encodes, key = field.type, asked.section(name), asked.encodes, asked.key(name)
    section = said
    is_number = holds_numbers(found) or holds_times(found) or is_unknown(field, chunks)
    if section is None and (is_number or (encodes and pa.types.is_null(found))):
        return ColumnPart(name, 1, is_list=False, section=NumericalColumn() if encodes else None)
    is_embedding = holds_lists(found) and holds_numbers(found.value_type)
    if is_embedding and (section is None or isinstance(section, EmbeddingColumn)):
        return ColumnPart(name, list_width(found, chunks, name), is_list=True)
    if section is None:
        section = _kind_of(found, chunks, name)
    if section is None or not _holds(found, section):
        kind = "numerical" if said is None else said.kind
        wanted = "text, for which graph.columns says its form" if _has_form(section) else _CONTENT[kind]
        fix = _number_fix(name, found, chunks) if said is None else _kind_fix(key, found)
        if isinstance(said, MulticategoricalColumn) and (mark := _separator_of(name, found, chunks)):
            line = config_line({"columns": {key: {"kind": said.kind, "separator": mark}}})
            fix = f"Set graph: {line}, as {mark!r} stands between its values."
        if _has_form(section):
            fix = "Write text in this form; or, where no model knows the column, leave decimal and format out."
        raise TableError(
            f"column {name!r} is {found}, not {wanted}{first_text(field)}",
            where=chunks[0].uri,
            fix=fix,
        )
    if not encodes:
        raise TableError(
            f"column {name!r} is {section.kind}, and graph.normalize: row would divide it by numbers",
            where=chunks[0].uri,
            fix=f"Set graph.normalize to standard or none, or take {name} out of the features.",
        )
    return ColumnPart(name, 0, is_list=False, section=section, key=key)


_CONTENT = {
    "numerical": "numbers",
    "categorical": "single values",
    "multicategorical": "lists of values, or text with graph.columns' separator",
    "timestamp": "dates or times",
    "text": "text",
    "embedding": "lists of numbers",
}


def _has_form(section: ColumnSection | None) -> bool:
    """Return whether the config says in which form the text of a column is written."""
    return getattr(section, "decimal", None) is not None or getattr(section, "format", None) is not None


def _holds(found: pa.DataType, section: ColumnSection) -> bool:
    """Return whether a column of this type can be of a kind."""
    found = plain(found)
    if pa.types.is_null(found):
        return not isinstance(section, EmbeddingColumn)
    is_text, is_time, is_number = holds_text(found), holds_times(found), holds_numbers(found)
    if _has_form(section):
        is_time = is_number = False  # these say how text is read
    match section:
        case NumericalColumn() | CategoricalColumn():
            return is_number or is_time or is_text
        case TimestampColumn():
            return is_time or is_text
        case MulticategoricalColumn() if holds_lists(found):
            return _holds(found.value_type, CategoricalColumn())
        case MulticategoricalColumn():
            return is_text and section.separator is not None
        case _:
            return is_text and isinstance(section, TextColumn)


def _kind_of(found: pa.DataType, chunks: Sequence[Chunk], name: str) -> ColumnSection | None:
    """Return the kind of a column without numbers, by its type and values of its first chunk; None where it has none.

    The values are spread over the chunk: tables are often sorted, and their first rows then alike.
    """
    if holds_lists(found) and holds_text(found.value_type):
        return MulticategoricalColumn()
    if pa.types.is_dictionary(found):
        return CategoricalColumn()
    if not holds_text(found):
        return None
    for chunk in chunks:
        text = combine(read_chunk(chunk, [name]).column(0)).cast(pa.large_string())
        text = text.filter(pc.not_equal(pc.utf8_trim_whitespace(text), ""))
        if not len(text):
            continue
        text = text.take(pa.array(np.arange(0, len(text), -(-len(text) // _MOST_SHOWN))))
        if pc.match_substring_regex(text[0], ISO_DATE).as_py():
            return TimestampColumn()
        # numbers or amounts with a few words are most likely meant as numbers: the user has to say
        return CategoricalColumn() if 2 * words_of(text).sum() > len(text) else None
    return CategoricalColumn()


def _kind_fix(key: str, found: pa.DataType) -> str:
    """Return the fix for a column that its kind cannot read: the kind that its type shows. key: in graph.columns."""
    kinds = (TimestampColumn,) if holds_times(found) else (NumericalColumn,) if holds_numbers(found) else ()
    kind = next((each().kind for each in (*kinds, CategoricalColumn) if _holds(found, each())), None)
    if kind is None:
        return f"Leave {key} out of graph.columns: its kind then follows from its type."
    return f"Set graph: {config_line({'columns': {key: {'kind': kind}}})}."


def _separator_of(name: str, found: pa.DataType, chunks: Sequence[Chunk]) -> str:
    """Return the sign that more values of a column of text have than another; "" where fewer than half have any."""
    if not holds_text(found):
        return ""
    text = combine(read_chunk(chunks[0], [name]).column(0)).cast(pa.large_string()).drop_null()
    counts = {mark: pc.sum(pc.match_substring(text, mark)).as_py() or 0 for mark in _SEPARATORS}
    mark = max(counts, key=lambda each: counts[each])
    return mark if 2 * counts[mark] >= len(text) > 0 else ""


def _number_fix(name: str, found: pa.DataType, chunks: Sequence[Chunk]) -> str:
    """Return the fix for a column of neither numbers nor times: the form that alone reads all its text, if any does."""
    if holds_lists(found) and holds_times(found.value_type):
        return "Write a column for each place of the list, or lists of seconds since 1970."
    if not holds_text(found):
        return "Write numbers or lists of numbers, or leave it out: graph.exclude, where a pattern names it."
    if (form := _only_form(name, chunks)) is not None:
        line = config_line({"columns": {name: form}})
        return f"Set graph: {line}, which reads every value, or write numbers{PLAIN_NUMBERS}"
    line = config_line({"columns": {name: {"kind": "categorical"}}})
    said = f" Or set graph: {line}, or numerical if it is plain numbers with gaps; "
    said += "{kind: numerical, decimal: point} reads amounts such as $1,234.50, comma 1.234,50 €."
    dates = "" if chunks[0].types.get(name) else " Write dates as dates or timestamps."
    return f"Write numbers or lists of numbers{PLAIN_NUMBERS}{dates}{said}"


def _only_form(name: str, chunks: Sequence[Chunk]) -> dict[str, str] | None:
    """Return the keys of the form in which every text of a column is an amount; None without one, or with several."""
    known: list[dict[str, str]] | None = None
    for chunk in chunks:
        text = combine(read_chunk(chunk, [name]).column(0)).cast(pa.large_string()).drop_null()
        if len(text):
            found = find_forms(text, "numerical")
            known = [form for form in found if known is None or form in known]
    return known[0] if known is not None and len(known) == 1 else None
