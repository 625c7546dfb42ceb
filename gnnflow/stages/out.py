"""Predictions at a place of the user's: one Parquet file, which appears whole or not at all.

It replaces an earlier one. A workspace names folders by content, which other programs cannot guess. One file has one
commit on every filesystem; several could be read while some are new and some old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from gnnflow.config.graph_section import tables_by_name
from gnnflow.graph.errors import StorageError
from gnnflow.storage.filesystem import absolute, has_pattern, is_below, is_below_match, join
from gnnflow.storage.table_files import format_of
from gnnflow.storage.tables import read_artifact_table
from gnnflow.storage.workspace import Workspace
from gnnflow.storage.writing import write_in_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from gnnflow.config import Config
    from gnnflow.storage.writing import FileEntry


def out_file(out: str, *, name: str = "predictions") -> str:
    """Return the file for `--out`: itself where it is named .parquet, else `<name>.parquet` in that folder.

    Raises StorageError for the name of another format, a pattern, or no name.
    """
    reason, fix = "", "Name another place."
    if not out:
        reason = "is empty"
    elif has_pattern(out):
        reason = "holds one of the characters * ? [, which object stores read as a pattern"
    elif not out.endswith("/") and format_of(out) not in {"parquet", None}:
        reason = "has the name of another format; scores are written as Parquet"
        fix = "Name a file .parquet, or a folder."
    if reason:
        raise StorageError(reason, where=f"--out {out}", fix=fix)
    return absolute(out) if format_of(out) == "parquet" else join(absolute(out), f"{name}.parquet")


def refuse_taken(file: str, config: Config) -> None:
    """Raise StorageError if a file would replace one of a config's tables, or lie among its artifacts."""
    reason = ""
    if Workspace.at(config.workspace).owns(file):
        reason = "lies in the workspace, whose files nobody changes"
    elif any(_is_part_of(file, table) for table in tables_by_name(config.graph).values()):
        reason = "is one of the config's tables, or lies in its folder, and would be read as a table"
    if reason:
        raise StorageError(reason, where=f"--out {file}", fix="Name another place.")


def _is_part_of(file: str, table: str) -> bool:
    return is_below(file, absolute(table)) or (has_pattern(table) and is_below_match(file, table))


def write_out(folder: str, parts: Sequence[str], file: str) -> FileEntry:
    """Write the Parquet files of a run, or of an artifact, as one file, part by part.

    For an object store the file is held in memory until it is whole.
    """

    def write(sink: pa.NativeFile) -> None:
        first = read_artifact_table(folder, parts[0])
        with pq.ParquetWriter(sink, first.schema, compression="zstd") as writer:
            writer.write_table(first)
            for name in parts[1:]:
                writer.write_table(read_artifact_table(folder, name))

    return write_in_pieces(file, write)
