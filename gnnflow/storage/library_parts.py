"""Reads what a library reads of a table: an inner table of a file, or a fragment of a Lance table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gnnflow.storage.inner_tables import inner_schema, library, library_errors, read_inner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.storage.table_parts import LibraryPart


def schema_and_rows(part: LibraryPart) -> tuple[pa.Schema, int]:
    """Return the schema of a part and its number of rows."""
    if part.kind == "lance":
        fragment = _fragment(part)
        return fragment.schema, int(fragment.count_rows())
    return inner_schema(part.kind, part.place, part.name)


def read_part(part: LibraryPart, columns: Sequence[str], rows: int) -> pa.Table:
    """Return columns of the first rows of a part. Raises TableError where the library cannot read it."""
    if part.kind == "lance":
        fix = "Check the table, or write its current rows out as Parquet."
        with library_errors("a Lance table", where=part.place, fix=fix):
            found: pa.Table = _fragment(part).to_table(columns=list(columns), limit=rows)
        return found.select(list(columns))
    return read_inner(part.kind, part.place, part.name, columns=columns, rows=rows)


def _fragment(part: LibraryPart) -> Any:
    """Return a fragment of the version of a table that was listed."""
    lance = library("lance", extra="lance", instead="write it as Parquet", where=part.place)
    return lance.dataset(part.place, version=part.version).get_fragment(part.fragment)
