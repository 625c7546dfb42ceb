"""What the columns of the user's tables hold, read from their schemas.

Raises TableError with the file and column where a table breaks its contract.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import TableError
from gnnflow.storage.agreed_schema import holds_lists, holds_numbers, holds_text, holds_times
from gnnflow.storage.user_tables import plain, read_chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.graph.facts import IdType
    from gnnflow.storage.text_types import TextType
    from gnnflow.storage.user_tables import Chunk


_PLAIN = ", such as 1234.5: without separators of thousands, units or signs of currency."
_FIRST = {b"text": "text", b"number": "integer beyond 64 bits"}
_DATE = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True)
class ColumnPart:
    """One column of a dense matrix: a list of `width` numbers, or a scalar (width 1)."""

    name: str
    width: int
    is_list: bool


def one_for_all(role: str, name: str, num_tables: int) -> str:
    """Return what helps where a table lacks a column that a key names for several tables; empty where it is for one."""
    if num_tables == 1:
        return ""
    return (
        f"Call the column {name!r} here too, or set {role}, which is one name for {num_tables} tables, to one that all "
        "of them have."
    )


def field_of(schema: pa.Schema, chunk: Chunk, name: str, role: str, *, fix: str = "") -> pa.Field:
    """Return a column's field; raise TableError where there is none.

    role: the key of the config that names it. fix: what helps, where another value of the key does not.
    """
    if name not in schema.names:
        raise TableError(
            f"has no column {name!r} ({role}); it has {', '.join(schema.names)}",
            where=chunk.uri,
            fix=fix or f"Set {role} to one of them, or write the column.",
        )
    return schema.field(name)


def is_unknown(field: pa.Field, chunks: Sequence[Chunk]) -> bool:
    """Return whether nothing says what a column would hold: it is of a CSV file that is a header alone."""
    return bool(pa.types.is_null(field.type)) and not any(chunk.num_rows for chunk in chunks)


def id_type_of(schema: pa.Schema, chunk: Chunk, name: str, role: str, *, fix: str = "") -> IdType:
    """Return of which type the ids of a column are. role, fix: as for `field_of`."""
    found = plain(field_of(schema, chunk, name, role, fix=fix).type)
    if pa.types.is_integer(found):
        return "int64"
    if holds_text(found):
        return "string"
    raise TableError(f"column {name!r} is {found}, not an id", where=chunk.uri, fix="Write ids as int64 or string.")


def check_list_of(
    schema: pa.Schema, chunk: Chunk, name: str, is_kind: Callable[[pa.DataType], bool], kind: str
) -> None:
    """Raise TableError where a column holds no lists of values of a kind."""
    found = schema.field(name).type
    if not holds_lists(found) or not is_kind(found.value_type):
        raise TableError(f"column {name!r} is {found}", where=chunk.uri, fix=f"Write lists of {kind}.")


def part_of(schema: pa.Schema, chunks: Sequence[Chunk], name: str, role: str, *, fix: str = "") -> ColumnPart:
    """Return how a column of numbers or times, or of lists of numbers, is read. role, fix: as for `field_of`."""
    field = field_of(schema, chunks[0], name, role, fix=fix)
    found = field.type
    if holds_numbers(found) or holds_times(found) or is_unknown(field, chunks):
        return ColumnPart(name, 1, is_list=False)
    if not holds_lists(found) or not holds_numbers(found.value_type):
        raise TableError(
            f"column {name!r} is {found}, not numbers{text_at(field)}",
            where=chunks[0].uri,
            fix=_how_to_write(found, chunks[0].types.get(name)),
        )
    return ColumnPart(name, list_width(found, chunks, name), is_list=True)


def _how_to_write(found: pa.DataType, text: TextType | None) -> str:
    """Return what helps where a column is neither of numbers nor of times. text: what a column of a CSV file is."""
    if holds_lists(found) and holds_times(found.value_type):
        return "Write a column for each place of the list, or lists of seconds since 1970."
    if text is not None and _DATE.match(text.text):
        return (
            "Dates are text in CSV: write seconds since 1970, or the table as Parquet with a column of dates or "
            "timestamps, which is read as these."
        )
    if not holds_text(found):
        return "Write numbers or lists of numbers."
    return f"Write numbers or lists of numbers{_PLAIN}" + ("" if text else " Write dates as dates or timestamps.")


def text_at(field: pa.Field) -> str:
    """Return where a column of text stops being numbers, or integers of 64 bits, if that was seen."""
    held = field.metadata or {}
    found = [(what, held[kind]) for kind, what in _FIRST.items() if kind in held]
    return "".join(f" (the first {what} is {place.decode()})" for what, place in found)


def list_width(found: pa.DataType, chunks: Sequence[Chunk], name: str) -> int:
    """Return how long a column's lists are: as its type says, or its first list that holds anything."""
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
        raise TableError(f"column {name!r} is {found}", where=chunk.uri, fix="Write train, valid, test or null.")
    return True


def weight_is_number(schema: pa.Schema, chunks: Sequence[Chunk], name: str) -> bool:
    """Return whether there is a column of weights; raise TableError where it holds no numbers."""
    if name not in schema.names:
        return False
    field: Any = schema.field(name)
    if not holds_numbers(field.type) and not is_unknown(field, chunks):
        raise TableError(
            f"column {name!r} is {field.type}, not a weight{text_at(field)}",
            where=chunks[0].uri,
            fix=f"Write weights as numbers{_PLAIN}",
        )
    return True


def shown(stated: bytes) -> str:
    """Return what a file's metadata states, as an error tells it."""
    return repr(stated[:60].decode(errors="replace"))
