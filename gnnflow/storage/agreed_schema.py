"""Agrees the files of a user's table on one schema: which types of two files mean the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.graph.errors import TableError
from gnnflow.storage.user_tables import files_of, holds_lists, holds_numbers, holds_text, plain, schema_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gnnflow.storage.user_tables import Chunk


def agreed_schema(
    chunks: Sequence[Chunk], *, columns: Collection[str], numbers: Collection[str] = frozenset()
) -> pa.Schema:
    """Return the schema that a table's files agree on, each column with its first type that is not null.

    columns: to read; numbers: the columns that may be integers in one file and floats in another. Raises TableError for
    files with other columns, for a read column that a file has twice, and for a column whose type means something else
    in another file.
    """
    files = files_of(chunks)
    first = schema_of(files[0])
    types: dict[str, tuple[pa.Field, Chunk]] = {}
    for chunk in files:
        schema = schema_of(chunk)
        counted = Counter(schema.names)
        read = [name for name in counted if name in columns]
        for name in read:
            _refuse_duplicate(counted[name], name, chunk)
        if sorted(schema.names) != sorted(first.names):
            raise TableError(
                f"has columns {schema.names}, the first file has {first.names}",
                where=chunk.uri,
                fix="Write all files of a table with the same columns.",
            )
        for name in read:
            _check_meaning(types, schema.field(name), chunk, is_number=name in numbers)
    fields = [types[field.name][0] if field.name in types else field for field in first]
    return pa.schema(fields, metadata=first.metadata)


def _refuse_duplicate(count: int, name: str, chunk: Chunk) -> None:
    if count > 1:
        also = ", one of them from its folder's name" if name in dict(chunk.keys) else ""
        raise TableError(f"has {count} columns called {name!r}{also}", where=chunk.uri, fix="Keep or rename one.")


def _check_meaning(types: dict[str, tuple[pa.Field, Chunk]], field: pa.Field, chunk: Chunk, *, is_number: bool) -> None:
    """Note a column's first type that is not null. Raises TableError where a later type means something else."""
    before, file = types.setdefault(field.name, (field, chunk))
    if pa.types.is_null(before.type):
        types[field.name] = (field, chunk)
        return
    found, first = (meaning_of(each.type, is_number=is_number) for each in (field, before))
    if found != first and not pa.types.is_null(field.type):
        raise TableError(
            f"column {field.name!r} is {field.type}, in {file.uri} it is {before.type}",
            where=chunk.uri,
            fix="Write the column with one type in all files.",
        )


def meaning_of(found: pa.DataType, *, is_number: bool = False) -> str:
    """Return the meaning of a type, for any number of bits. is_number: integers and floats mean the same."""
    found = plain(found)
    if holds_lists(found):
        return f"list of {meaning_of(found.value_type, is_number=is_number)}"
    if holds_text(found):
        return "text"
    if is_number and holds_numbers(found):
        return "number"
    if pa.types.is_timestamp(found) and found.tz:
        return f"timestamp[{found.unit}] of a time zone"  # any zone: moments are stored in UTC
    for name, is_one in (("integer", pa.types.is_integer), ("float", pa.types.is_floating)):
        if is_one(found):
            return name
    return str(found)
