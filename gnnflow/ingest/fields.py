"""Columns of the user's tables: reads what they hold from their schemas, and checks it. `kinds` has dense ones.

Raises TableError with the file and column where a table breaks its contract.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.config.messages import nearest
from gnnflow.graph.errors import TableError
from gnnflow.storage.user_tables import (
    files_of,
    holds_lists,
    holds_numbers,
    holds_text,
    plain,
    read_chunk,
    schema_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.config.columns_section import ColumnSection
    from gnnflow.graph.encodings import ColumnState
    from gnnflow.graph.facts import IdType
    from gnnflow.graph.schema import GraphSchema, Relation
    from gnnflow.ingest.text import SourceTable
    from gnnflow.storage.user_tables import Chunk


PLAIN_NUMBERS = ", such as 1234.5: without separators of thousands, units or signs of currency."
NO_WEIGHT = "Or read none: graph: {weight: null}, where only one relation lacks them {weight: {RELATION: null}}."
SPLIT_FIX = "Write train, valid, test or null, or set task.split: {kind: random}."
_FIRST = {b"text": "text", b"number": "integer beyond 64 bits"}
_ENDS = ("graph.id", "graph.src", "graph.dst")
_FEATURE_DIM = b"feature_dim"
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_WIDTH = re.compile(rb"[0-9]{1,10}")
_MAX_WIDTH = 2**31 - 1
_MAX_FOUND_WIDTH = 1 << 24  # wider only where someone says so: a model has a row of weights per feature


@dataclass(frozen=True)
class ColumnPart:
    """One column of a table in a dense matrix: a list of `width` numbers, a number (width 1), or an encoded column.

    section: its kind, None where it is read as it is. state: set once the column is fitted; without one an encoded
    column has width 0, which is not known yet. key: of its kind in graph.columns, where that is not its name.
    """

    name: str
    width: int
    is_list: bool
    section: ColumnSection | None = None
    state: ColumnState | None = None
    key: str = ""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its columns of the matrix."""
        if self.state is not None:
            return self.state.outputs
        return tuple(f"{self.name}[{place}]" for place in range(self.width)) if self.is_list else (self.name,)

    @property
    def scaled(self) -> tuple[bool, ...]:
        """Its columns of the matrix that `standard` scales."""
        return self.state.scaled if self.state is not None else (True,) * self.width

    def fitted(self, state: ColumnState) -> ColumnPart:
        """Return the column with its state."""
        return replace(self, width=len(state.outputs), state=state)


def shared_name_fix(role: str, name: str, graph: GraphSchema, table: str | Relation) -> str:
    """Return the fix for a missing column of a table of a typed graph; empty without types.

    role: the config key that names it. table: the type or relation.
    """
    if not graph.is_typed:
        return ""
    return f"Call the column {name!r} here too, or name this table's own: {role}: {{{table}: COLUMN}}."


def field_of(
    schema: pa.Schema, chunk: Chunk, name: str, role: str, *, fix: str = "", taken: Collection[str] = ()
) -> pa.Field:
    """Return a column's field; raise TableError where there is none.

    role: the config key that names it. fix: replaces the advice to change that key. taken: columns that it cannot be.
    """
    if not schema.get_all_field_indices(name):
        free = [each for each in schema.names if each not in taken]
        near = "" if role == f"graph.{name}" else nearest(name, free)  # a key's default is not misspelt
        raise TableError(
            f"has no column {name!r} ({role}); it has {', '.join(schema.names)}",
            where=chunk.uri,
            fix=f"{near} {fix or f'Set {role} to one of them, or write the column.'}".strip()
            + _without_header(schema.names, chunk, role),
        )
    return schema.field(name)


def _without_header(names: Sequence[str], chunk: Chunk, role: str) -> str:
    """Return what to write where the first line of a CSV file is likely a row; "" where it is a header."""
    can_be_row = chunk.csv is not None and chunk.csv.has_header and any(map(_NUMBER.fullmatch, names))
    if role not in _ENDS or not can_be_row:
        return ""
    return " If its first line is a row: graph.formats: {TABLE: {header: false, columns: [...]}}."


def is_unknown(field: pa.Field, chunks: Sequence[Chunk]) -> bool:
    """Return whether a column's type is unknown, as in a CSV file that is a header alone."""
    return bool(pa.types.is_null(field.type)) and not any(chunk.num_rows for chunk in chunks)


def id_type_of(schema: pa.Schema, chunk: Chunk, name: str, role: str, *, fix: str = "") -> IdType:
    """Return the type of a column's ids. role, fix: as for `field_of`."""
    found = plain(field_of(schema, chunk, name, role, fix=fix).type)
    if pa.types.is_integer(found):
        return "int64"
    if holds_text(found):
        return "string"
    more = " (pandas: astype('Int64'), which keeps gaps)" if pa.types.is_floating(found) else ""
    fix = f"Write ids as int64 or string{more}."
    raise TableError(f"column {name!r} is {found}, not an id", where=chunk.uri, fix=fix)


def check_list_of(
    schema: pa.Schema, chunk: Chunk, name: str, is_kind: Callable[[pa.DataType], bool], kind: str
) -> None:
    """Raise TableError where a column holds no lists of values of a kind."""
    found = schema.field(name).type
    if not holds_lists(found) or not is_kind(found.value_type):
        raise TableError(f"column {name!r} is {found}", where=chunk.uri, fix=f"Write lists of {kind}.")


def first_text(field: pa.Field) -> str:
    """Return the first row of a text column that is no number, or no 64-bit integer, if one was seen."""
    held = field.metadata or {}
    found = [(what, held[kind]) for kind, what in _FIRST.items() if kind in held]
    return "".join(f" (the first {what} is {place.decode()})" for what, place in found)


def list_width(found: pa.DataType, chunks: Sequence[Chunk], name: str) -> int:
    """Return the length of a column's lists, by its type or by the first list that is not empty."""
    is_fixed = pa.types.is_fixed_size_list(found)
    if is_fixed and found.list_size:
        return int(found.list_size)
    for chunk in () if is_fixed else chunks:
        widths = pc.list_value_length(read_chunk(chunk, [name]).column(0))
        if len(held := widths.filter(pc.greater(widths, 0))):
            return int(held[0].as_py())
    raise TableError(f"column {name!r} is empty in every row", where=chunks[0].uri, fix="Write at least one value.")


def split_is_text(schema: pa.Schema, chunk: Chunk, name: str) -> bool:
    """Return whether there is a column of splits; raise TableError where it is no text."""
    if name not in schema.names:
        return False
    found = plain(schema.field(name).type)
    if not holds_text(found) and not pa.types.is_null(found):
        raise TableError(f"column {name!r} is {found}, not a split", where=chunk.uri, fix=SPLIT_FIX)
    return True


def weight_is_number(schema: pa.Schema, chunks: Sequence[Chunk], name: str) -> bool:
    """Return whether there is a column of weights; raise TableError where it holds no numbers."""
    if name not in schema.names:
        return False
    field: Any = schema.field(name)
    if not holds_numbers(field.type) and not is_unknown(field, chunks):
        raise TableError(
            f"column {name!r} is {field.type}, not a weight{first_text(field)}",
            where=chunks[0].uri,
            fix=f"Write weights as numbers{PLAIN_NUMBERS} {NO_WEIGHT}",
        )
    return True


def quoted(stated: bytes) -> str:
    """Return the beginning of a metadata value, quoted for an error."""
    return repr(stated[:60].decode(errors="replace"))


def sparse_stem(schema: pa.Schema, table: SourceTable, features: Sequence[str], config: GraphConfig) -> str | None:
    """Return the stem of the sparse features' columns `_index` and `_value`; None where features are dense."""
    held = {*schema.names}
    stems = [name for name in features if name not in held and f"{name}_index" in held]
    if stems and len(features) > 1:
        raise TableError(
            f"graph.features mixes the sparse column {stems[0]!r} with others",
            where=table.uri,
            fix="Use one sparse feature, or dense columns only.",
        )
    if stems and config.normalize == "standard":
        raise TableError(
            "normalize: standard would make sparse features dense",
            where=table.uri,
            fix="Use normalize: row or none for x_index/x_value.",
        )
    if stems and config.storage != "float32":
        raise TableError(
            f"graph.storage is {config.storage}, and the column {stems[0]!r} is sparse",
            where=table.uri,
            fix="Leave graph.storage out: only dense features are stored in fewer bytes.",
        )
    if not stems:
        return None
    check_list_of(schema, table.chunks[0], f"{stems[0]}_index", pa.types.is_integer, "integers")
    if f"{stems[0]}_value" in schema.names:
        check_list_of(schema, table.chunks[0], f"{stems[0]}_value", holds_numbers, "numbers")
    return stems[0]


def sparse_width(table: SourceTable, stem: str, config: GraphConfig) -> int:
    """Return the width of sparse features, from the config, the files' metadata, or the largest index."""
    if config.feature_dim is not None:
        return config.feature_dim
    stated = {width for chunk in files_of(table.chunks) if (width := _stated_width(chunk)) is not None}
    if len(stated) > 1:
        raise TableError(
            f"files state different widths: {', '.join(map(str, sorted(stated)))}",
            where=f"{table.uri}, metadata feature_dim",
            fix="Write one, or set graph.feature_dim.",
        )
    if stated:
        return stated.pop()
    width = 1
    for chunk in table.chunks:
        largest = pc.max(pc.list_flatten(read_chunk(chunk, [f"{stem}_index"]).column(0))).as_py()
        if largest is not None and largest >= _MAX_FOUND_WIDTH:
            raise TableError(
                f"column {stem + '_index'!r}: the largest index is {largest:,}",
                where=chunk.place,
                fix="Number features from 0 without gaps, or set graph.feature_dim (up to 2147483647).",
            )
        width = max(width, 1 + (largest or 0))
    return width


def _stated_width(chunk: Chunk) -> int | None:
    stated = (schema_of(chunk).metadata or {}).get(_FEATURE_DIM)
    if stated is None:
        return None
    if not _WIDTH.fullmatch(stated) or not 0 < int(stated) <= _MAX_WIDTH:
        raise TableError(
            f"is {quoted(stated)}, not a width from 1 to {_MAX_WIDTH}",
            where=f"{chunk.uri}, metadata feature_dim",
            fix="Write the number of feature columns, or set graph.feature_dim.",
        )
    return int(stated)
