"""Keeps tables from memory as Parquet files of the workspace, named by their content.

A table is anything with `__arrow_c_stream__`: a frame of pandas or Polars, a relation of DuckDB, a table or reader of
Arrow. The same rows give the same file whichever library held them, so types that say the same become one: every form
of text, of lists and of dictionaries. The name says the content and stands for it in fingerprints (`filesystem.stamp`):
the same rows are the same table in every workspace.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.graph.errors import TableError
from gnnflow.storage.filesystem import exists, size_of
from gnnflow.storage.tables import unnamed_file
from gnnflow.storage.writing import write_in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.storage.workspace import Workspace

_ROWS = 1 << 17  # of a row group, which is the unit that tasks read
_COPIED = 1 << 24
_PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")  # an index without a name, such as the rows of a filter


def keep_table(table: Any, workspace: Workspace, *, where: str) -> str:
    """Write a table to the workspace unless it is there, and return its URI.

    where: the key of the config that it stands for. Raises TableError where its columns have no Arrow types.
    """
    with unnamed_file() as path:
        try:
            _write(pa.RecordBatchReader.from_stream(table), path)
        except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
            raise TableError(
                f"the table cannot be read as Arrow ({' '.join(str(error).split())})",
                where=where,
                fix="Give each column values of one type.",
            ) from error
        with Path(path).open("rb") as file:
            digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
        uri = workspace.table(digest)
        if not exists(uri) or size_of(uri) != size:
            write_in_pieces(uri, lambda sink: _copy(path, sink))
    return uri


def _write(reader: pa.RecordBatchReader, path: str) -> None:
    kept = [number for number, name in enumerate(reader.schema.names) if not _PANDAS_INDEX.fullmatch(name)]
    fields = [reader.schema.field(number) for number in kept]
    schema = pa.schema([(field.name, _plain(field.type)) for field in fields])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(reader, kept, schema):
            writer.write_table(group, row_group_size=_ROWS)


def _groups(reader: pa.RecordBatchReader, kept: list[int], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows in groups of one size, however the library divides them."""
    rest = schema.empty_table()
    for batch in reader:
        columns = [_cast(batch.column(number), field.type) for number, field in zip(kept, schema, strict=True)]
        rest = pa.concat_tables([rest, pa.Table.from_arrays(columns, schema=schema)])
        while rest.num_rows >= _ROWS:
            yield rest.slice(0, _ROWS).combine_chunks()
            rest = rest.slice(_ROWS)
    yield rest.combine_chunks()


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):  # its values first: Arrow cannot take from all forms of text
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(kind)).dictionary_decode()
    return column.cast(kind)


def _plain(held: pa.DataType) -> pa.DataType:
    """Return the one type for all that say the same."""
    if pa.types.is_dictionary(held):
        return _plain(held.value_type)
    if pa.types.is_large_string(held) or pa.types.is_string_view(held):
        return pa.string()
    if pa.types.is_large_binary(held) or pa.types.is_binary_view(held):
        return pa.binary()
    if pa.types.is_list(held) or pa.types.is_large_list(held) or pa.types.is_fixed_size_list(held):
        return pa.list_(_plain(held.value_type))
    return held


def _copy(path: str, sink: pa.NativeFile) -> None:
    with Path(path).open("rb") as file:
        while piece := file.read(_COPIED):
            sink.write(piece)
