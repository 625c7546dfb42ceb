"""The schema that the files of a user's table agree on: the one place that says which types mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.graph.errors import TableError
from gnnflow.storage.user_tables import plain, schema_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gnnflow.storage.user_tables import Chunk


def agreed_schema(
    chunks: Sequence[Chunk], *, columns: Collection[str], numbers: Collection[str] = frozenset()
) -> pa.Schema:
    """Return the schema of a table's files, each column with the first type that is one.

    columns: those that are read; numbers: those of them that may be integers in one file and floats in another. Raises
    TableError for files with other columns, for a column that is read and that a file has twice, and for one
    whose type means something else in another file.
    """
    files = files_of(chunks)
    first = schema_of(files[0])
    types: dict[str, tuple[pa.Field, Chunk]] = {}
    for chunk in files:
        schema = schema_of(chunk)
        read = [name for name in dict.fromkeys(schema.names) if name in columns]
        for name in read:
            _once(schema, name, chunk)
        if sorted(schema.names) != sorted(first.names):
            raise TableError(
                f"has columns {schema.names}, the first file has {first.names}",
                where=chunk.uri,
                fix="Write all files of a table with the same columns.",
            )
        for name in read:
            _same_meaning(types, schema.field(name), chunk, is_number=name in numbers)
    fields = [types[field.name][0] if field.name in types else field for field in first]
    return pa.schema(fields, metadata=first.metadata)


def _once(schema: pa.Schema, name: str, chunk: Chunk) -> None:
    if schema.names.count(name) > 1:
        also = ", one of them from its folder's name" if name in dict(chunk.keys) else ""
        raise TableError(
            f"has {schema.names.count(name)} columns called {name!r}{also}", where=chunk.uri, fix="Keep or rename one."
        )


def _same_meaning(types: dict[str, tuple[pa.Field, Chunk]], field: pa.Field, chunk: Chunk, *, is_number: bool) -> None:
    """Note the first type of a column that is one; raise TableError where a later file's means something else."""
    before, file = types.setdefault(field.name, (field, chunk))
    if pa.types.is_null(before.type):
        types[field.name] = (field, chunk)
    elif not pa.types.is_null(field.type) and _differ(field.type, before.type, is_number=is_number):
        raise TableError(
            f"column {field.name!r} is {field.type}, in {file.uri} it is {before.type}",
            where=chunk.uri,
            fix="Write the column with one type in all files.",
        )


def _differ(one: pa.DataType, other: pa.DataType, *, is_number: bool) -> bool:
    return meaning_of(one, is_number=is_number) != meaning_of(other, is_number=is_number)


def meaning_of(found: pa.DataType, *, is_number: bool = False) -> str:
    """Return what values of a type are, however many bits they have. is_number: whichever numbers they are."""
    found = plain(found)
    if holds_lists(found):
        return f"list of {meaning_of(found.value_type, is_number=is_number)}"
    if holds_text(found):
        return "text"
    if is_number and holds_numbers(found):
        return "number"
    if pa.types.is_timestamp(found) and found.tz:
        return f"timestamp[{found.unit}] of a time zone"  # whichever: they are stored as moments of UTC
    for name, is_one in (("integer", pa.types.is_integer), ("float", pa.types.is_floating)):
        if is_one(found):
            return name
    return str(found)


def files_of(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return one chunk of each file."""
    return list({chunk.uri: chunk for chunk in chunks}.values())


def holds_text(found: pa.DataType) -> bool:
    """Return whether values are text, also where each distinct one is kept once."""
    found = plain(found)
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def holds_numbers(found: pa.DataType) -> bool:
    """Return whether values are numbers, or true and false."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    return any(is_one(found) for is_one in kinds)


def holds_times(found: pa.DataType) -> bool:
    """Return whether values are dates or timestamps."""
    return bool(pa.types.is_date(found) or pa.types.is_timestamp(found))


def holds_lists(found: pa.DataType) -> bool:
    """Return whether values are lists."""
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found))
