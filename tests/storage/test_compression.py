"""Columns are compressed where it pays, and how a table lies in memory does not show in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.storage.columns import from_matrix
from gnnflow.storage.tables import read_table, write_table

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(0)
ROWS = 20_000


def table() -> pa.Table:
    mostly_zeros = np.zeros((ROWS, 8), np.float32)
    mostly_zeros[:, 0] = 1
    return pa.table(
        {
            "id": np.arange(ROWS),
            "hash": RNG.integers(0, 2**63, ROWS),
            "x": from_matrix(RNG.standard_normal((ROWS, 8), np.float32)),
            "one_hot": from_matrix(mostly_zeros),
            "blob": pa.array([b"1234"] * ROWS, pa.large_binary()),
        }
    )


def test_columns_that_would_not_shrink_stay_as_they_are(tmp_path: Path) -> None:
    write_table(str(tmp_path / "t.parquet"), table())
    group = pq.ParquetFile(tmp_path / "t.parquet").metadata.row_group(0)
    found = {group.column(i).path_in_schema.split(".")[0]: group.column(i).compression for i in range(5)}
    assert found == {"id": "ZSTD", "hash": "UNCOMPRESSED", "x": "UNCOMPRESSED", "one_hot": "ZSTD", "blob": "ZSTD"}


def test_equal_tables_give_equal_files(tmp_path: Path) -> None:
    whole = table()
    pieces = pa.concat_tables([whole.slice(0, 777), whole.slice(777)])
    part_of_more = pa.concat_tables([whole, whole]).combine_chunks().slice(ROWS)
    digests = {
        write_table(str(tmp_path / f"{number}.parquet"), each).sha256
        for number, each in enumerate((whole, pieces, part_of_more))
    }
    assert len(digests) == 1


def test_empty_and_null_columns_are_written(tmp_path: Path) -> None:
    for number, rows in enumerate((0, 3)):
        column = pa.table({"a": pa.nulls(rows, pa.float32()), "b": pa.nulls(rows, pa.large_string())})
        write_table(str(tmp_path / f"{number}.parquet"), column)
        assert read_table(str(tmp_path / f"{number}.parquet")).num_rows == rows
