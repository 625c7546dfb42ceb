"""Estimates how many bytes the rows of a table take in memory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gnnflow.graph.errors import GnnflowError
from gnnflow.storage.table_files import format_of
from gnnflow.storage.user_tables import kind_of, parquet_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow.parquet as pq

    from gnnflow.storage.filesystem import Stamp
    from gnnflow.storage.table_parts import TableFiles

OF_PACKED = 4
"""Bytes in memory of a byte of a file that is packed in an unknown way: zipped, or text in a dictionary."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_LEAST_OF_TEXT = 8  # bytes of a value: where it begins


def bytes_in_memory(files: Iterable[Stamp], growth: float = OF_PACKED) -> int:
    """Return about the bytes that the rows of a table's files take in memory: text as many as it has.

    growth: bytes in memory of a byte of Parquet, from `growth_of`.
    """
    sizes = 0
    for each in files:
        packed = OF_PACKED if each.name.lower().endswith(".gz") else 1
        sizes += int(each.size * (growth if format_of(each.name) == "parquet" else packed))
    return sizes


def growth_of(table: TableFiles) -> float:
    """Return how many bytes in memory a byte of the table's Parquet becomes.

    The footer of the first file says it. Without one that can be read the table counts as packed: ingest says why.
    """
    first = next((file for file in table.files if kind_of(file) == "parquet" and file.part is None), None)
    if first is None:
        return OF_PACKED
    with suppress(GnnflowError):
        columns = parquet_columns(first.uri)
        stored = sum(each.total_compressed_size for each in columns)
        return sum(map(_bytes_of, columns)) / stored if stored else OF_PACKED
    return OF_PACKED


def _bytes_of(column: pq.ColumnChunkMetaData) -> int:
    """Return about the bytes of a column chunk in memory; nulls count as values."""
    width = _WIDTHS.get(column.physical_type)
    if width is not None:
        return int(width * column.num_values)
    if any("DICTIONARY" in each for each in column.encodings):  # a text is stored once, whoever has it
        return max(int(column.total_compressed_size) * OF_PACKED, _LEAST_OF_TEXT * int(column.num_values))
    return int(column.total_uncompressed_size) + _LEAST_OF_TEXT * int(column.num_values)
