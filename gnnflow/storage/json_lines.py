"""Reads JSON lines: one object a line, whose keys are columns. A file is read at once."""

from __future__ import annotations

import gzip
import zlib

import pyarrow as pa
import pyarrow.json as pa_json

from gnnflow.graph.errors import TableError
from gnnflow.storage.filesystem import open_input

_OF_ARRAY = "Write a line for each of its objects: pandas.read_json(FILE).to_json(NEW, orient='records', lines=True)."
_MOST_BYTES = 1 << 30  # of a block


def read_json_lines(uri: str) -> pa.Table:
    """Return the rows of a file; text that looks like a time stays text.

    Raises TableError where lines are not objects, or a key has values of several kinds.
    """
    with open_input(uri) as stream:
        content = stream.read()
    try:
        content = gzip.decompress(content) if uri.lower().endswith(".gz") else content
        if not content.strip():
            return pa.table({})
        if content.lstrip()[:1] == b"[":
            raise TableError("is one JSON array, not an object a line", where=uri, fix=_OF_ARRAY)
        table = _parsed(content, None)
        if any(pa.types.is_timestamp(field.type) for field in table.schema):
            table = _parsed(content, pa.schema([_as_text(field) for field in table.schema]))
    except (pa.ArrowException, ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TableError(
            "cannot be read as JSON lines", where=uri, fix="Write one object a line, a key with one type in all lines."
        ) from error
    return table.combine_chunks()


def _parsed(content: bytes, schema: pa.Schema | None) -> pa.Table:
    return pa_json.read_json(
        pa.BufferReader(content),
        # one block where it can be: later blocks must have the first one's types
        read_options=pa_json.ReadOptions(block_size=min(len(content) + 1, _MOST_BYTES), use_threads=False),
        parse_options=pa_json.ParseOptions(explicit_schema=schema),
    )


def _as_text(field: pa.Field) -> pa.Field:
    return field.with_type(pa.string()) if pa.types.is_timestamp(field.type) else field
